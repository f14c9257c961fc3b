"""The report's section on measured gradients, which is left out without a measurement."""

import re

import pytest

from pipeline.analysis.selection import ReportSettings
from pipeline.report.report_page import write_report
from pipeline.slices.slice_reports import REPORT


@pytest.mark.slow
def test_the_section_on_gradients_is_left_out_without_a_measurement(world, tmp_path, gradients_file):
    def write_page(path):
        write_report(
            world.sweep,
            world.evaluations,
            world.prepared,
            None,
            tmp_path,
            ReportSettings(images=0),
            inputs={"gradients": path},
            parts=REPORT,
        )
        return (tmp_path / "report.html").read_text()

    html = write_page(tmp_path / "nowhere.json")
    assert 'id="gradients"' not in html
    assert "#gradients" not in html
    html = write_page(gradients_file)
    section = re.search(r'<section id="gradients".*?</section>', html, re.DOTALL)[0]
    assert section.count("<svg viewBox") == 4
    assert 'id="claim-caption"' in section
    assert "PSST-Multinomial, ρ 0.5, bias × 1.20" in section
    assert "gradients.json" in re.search(r'<section id="settings".*?</section>', html, re.DOTALL)[0]
    assert "Gradient estimators against the exact gradient" in (tmp_path / "tables.md").read_text()
