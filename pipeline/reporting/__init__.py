"""From evaluations to what people read: the curve, the tables, the gallery, one page."""

from pipeline.reporting.page import write_report
from pipeline.reporting.selection import ReportSettings

__all__ = ["ReportSettings", "write_report"]
