"""The section of the report, where there are answers."""

import json
import re

import pytest

from pipeline.analysis.selection import ReportSettings
from pipeline.report.report_page import write_report
from pipeline.slices.slice_reports import REPORT
from pipeline.study.design import StudyDesign


@pytest.mark.slow
def test_the_report_has_a_section_where_raters_answered(full_world, trial, all_right, tmp_path):
    study = tmp_path / "study"
    trial.make(study, StudyDesign(pairs=4, raters=1, rounds=4))
    key = json.loads((study / "key.json").read_text())
    (study / "answers").mkdir()
    for sheet in key["sheets"]:
        lines = "".join(json.dumps(each) + "\n" for each in all_right(key, sheet))
        (study / "answers" / f"{sheet['sheet']}.jsonl").write_text(lines)

    def page(study):
        out = tmp_path / "report"
        settings, inputs = ReportSettings(images=0), {"study": study}
        write_report(full_world.sweep, [], full_world.prepared, None, out, settings, inputs=inputs, parts=REPORT)
        return (out / "report.html").read_text(), (out / "tables.md").read_text()

    html, tables = page(study)
    section = re.search(r'<section id="study".*?</section>', html, re.DOTALL)[0]
    assert 'href="#study"' in html
    assert "PSST-Multinomial" in section
    assert "100.0" in section
    assert "Which of two similar images is a caption of?" in tables
    html, tables = page(None)
    assert "study" not in html
    assert "similar images is a caption" not in tables
