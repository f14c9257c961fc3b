"""Sections and other parts of the report, including the slices' parts.

`slice_agents.py` does not contain them, since it imports networks that the report stage does not need.
"""

from pipeline.dialog.report.dialog_page import write_dialog_report
from pipeline.dialog.report.dialog_ranking import MRR
from pipeline.gradients.report.gradients_section import GRADIENTS
from pipeline.report.report_parts import ReportKind, ReportParts
from pipeline.report.report_section import insert_sections
from pipeline.report.sections import SECTIONS
from pipeline.study.study_section import STUDY
from pipeline.worlds.gallery_scenes import find_gallery_scenes, has_simulated_captions

REPORT = ReportParts(
    sections=insert_sections(SECTIONS, after={"rewarded": STUDY, "along": GRADIENTS}),
    scenes=find_gallery_scenes,
    simulated=has_simulated_captions,
    kinds=(ReportKind(MRR, write_dialog_report),),
)
