"""The changes of docs/how_to/figure.md, applied to a copy of the project."""

import re

from how_to_pages import apply_page, copy_project, run_program

REPORT = """
import sys
from pathlib import Path
from pipeline.analysis.selection import ReportSettings
from pipeline.report.report_page import write_report
from pipeline.slices.slice_reports import REPORT

data = Path(sys.argv[1])
evaluations = sorted((data / "evaluation").iterdir())
write_report(
    data / "sweep", evaluations, data / "prepared", None, Path("report"), ReportSettings(images=0), parts=REPORT
)
"""


def test_a_module_and_a_line_are_a_section_of_the_report(world, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    copy_project(copy)
    assert apply_page("figure", copy) == [
        "pipeline/report/page_sections/splits_section.py",
        "pipeline/report/sections.py",
    ]
    done = run_program(copy, REPORT, str(world.root))
    assert done.returncode == 0, done.stderr
    html = (copy / "report/report.html").read_text(encoding="utf-8")
    section = re.search(r'<section id="splits".*?</section>', html, re.DOTALL)[0]
    assert section.count("<svg viewBox") == 1
    assert "PSST-Multinomial" in section
    assert 'href="#splits">Validation and test<' in html
    titles = re.findall(r"^\*\*(.*)\*\*$", (copy / "report/tables.md").read_text(encoding="utf-8"), re.MULTILINE)
    index = titles.index("R@10 on both splits, in %")
    assert "equal" in titles[index - 1]
    assert "human captions" in titles[index + 1]
    assert (copy / "report/splits.png").stat().st_size > 0
