"""Section of the report on the human evaluation, if raters answered."""

from __future__ import annotations

from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import ReportSection, SectionContent
from pipeline.study.study_tables import ANSWERS, build_study_tables

EXPLANATION = """\
Raters answered the two questions of the PSST paper (Vered et al. 2019, Tables 4 and 5): which of two \
similar images a caption describes, and which of
two captions of an image is better written. They did not know the methods."""


def build_study(content: ReportContent) -> SectionContent:
    """Return the tables of the tasks with answers; none without a study."""
    folder = content.find_input("study")
    return SectionContent(build_study_tables(folder, [folder / ANSWERS]) if folder else [])


STUDY = ReportSection("study", "Human evaluation", build_study, label="Raters", explanation=EXPLANATION, summary="")
