"""The slices' own reports. They stand apart from `slices.py`, because the report stage needs no networks."""

from pipeline.dialog.report.dialog_page import write_dialog_report
from pipeline.dialog.report.dialog_ranking import MRR
from pipeline.report.report_kind import ReportKind

REPORTS = (ReportKind(MRR, write_dialog_report),)
