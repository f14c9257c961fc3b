"""The section of the report on the answers of raters."""

import json
import re

import pytest

from pipeline.analysis.selection import ReportSettings
from pipeline.report.report_page import write_report
from pipeline.slices.slice_reports import REPORT
from pipeline.study.design import StudyDesign


@pytest.mark.slow
def test_the_report_has_a_section_if_raters_answered(full_world, finished_run, answer_correctly, tmp_path):
    study = tmp_path / "study"
    finished_run.make(study, StudyDesign(pairs=4, raters=1, rounds=4))
    key = json.loads((study / "key.json").read_text())
    (study / "answers").mkdir()
    for sheet in key["sheets"]:
        lines = "".join(json.dumps(each) + "\n" for each in answer_correctly(key, sheet))
        (study / "answers" / f"{sheet['sheet']}.jsonl").write_text(lines)

    def write_page(study):
        out = tmp_path / "report"
        settings, inputs = ReportSettings(images=0), {"study": study}
        write_report(full_world.sweep, [], full_world.prepared, None, out, settings, inputs=inputs, parts=REPORT)
        return (out / "report.html").read_text(), (out / "tables.md").read_text()

    html, tables = write_page(study)
    section = re.search(r'<section id="study".*?</section>', html, re.DOTALL)[0]
    assert 'href="#study"' in html
    assert "PSST-Multinomial" in section
    assert "100.0" in section
    assert "Which of two similar images does a caption describe?" in tables
    html, tables = write_page(None)
    assert "study" not in html
    assert "Which of two similar images does a caption describe?" not in tables
