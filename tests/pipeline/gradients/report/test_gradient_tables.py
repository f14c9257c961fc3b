"""Tables and figures of measured gradients, from a file whose numbers are round."""

from __future__ import annotations

import csv
import io
import json

import pytest

from pipeline.errors import UserError
from pipeline.gradients.report.gradient_tables import (
    build_claim_panels,
    build_gradients_tables,
    build_plane_panels,
    format_gradients_csv,
    read_gradients,
)
from pipeline.report.method_names import assign_method_colours, choose_estimator_colour
from pipeline.report.number_files import format_markdown


def test_a_row_per_estimator_with_accuracy_and_cost(gradients_file):
    table = build_gradients_tables(read_gradients(gradients_file))[0]
    assert table.caption.endswith("K = 4 captions per image")
    assert [column.label for column in table.columns] == [
        "Estimator", "ρ", "τ", "bias", "cosine", "length", "variance", "ms", "K=1", "K=4", "K=16",
    ]  # fmt: skip
    centred, gumbel, psst = table.rows[:3]
    # variance × time is 1.5 × 2 × 10 ms for K = 4, and 1.5 × .5 × 40 ms for K = 16
    assert centred == [
        "REINFORCE, greedy, centred ~", "–", "–", "0.15 [0.10, 0.20]", "0.90 [0.90, 0.90]", "0.80", "3.00", "10.0",
        "–", "30", "30",
    ]  # fmt: skip
    assert gumbel[:3] == ["ST-Gumbel ~", "–", "0.5"]
    assert psst == [
        "PSST-Multinomial", "0", "–", "0.75 [0.50, 1.00]", "0.90 [0.90, 0.90]", "0.80", "1.50", "40.0",
        "60", "60", "60",
    ]  # fmt: skip
    assert "at most 0.05" in table.notes[1]


def test_the_effect_of_rho_beside_the_claim(gradients_file):
    table = build_gradients_tables(read_gradients(gradients_file))[1]
    assert table.groups == [("", 1), ("bias", 2), ("variance", 2)]
    assert table.rows == [
        ["claimed", "0.50", "0.00", "0.50", "0.00"],
        ["PSST-Multinomial", "1.20", "2.00", "0.50", "0.10"],
        ["PSST-Multinomial (hinge among images)", "1.20", "2.00", "1.00", "1.00"],
    ]


def test_the_rows_of_an_estimator_may_have_any_order(gradients_file):
    expected = build_gradients_tables(read_gradients(gradients_file))[1].rows
    content = json.loads(gradients_file.read_text())
    gradients_file.write_text(json.dumps(content | {"rows": content["rows"][::-1]}))
    assert sorted(build_gradients_tables(read_gradients(gradients_file))[1].rows) == sorted(expected)


def test_noise_against_bias_for_one_sample_and_for_many(gradients_file):
    one, many = build_plane_panels(read_gradients(gradients_file))
    assert (one.title, many.title) == ("1 caption per image", "16 captions per image")
    points = {series.label: series.points for series in one.series}
    assert not points["REINFORCE, greedy, centred"]
    assert [point.x for point in points["PSST-Multinomial"]] == pytest.approx([0.75, 0.9, 1.5])
    assert points["PSST-Multinomial"][0].y == pytest.approx(6**0.5)
    assert points["ST-Gumbel"][0].label == "ST-Gumbel, τ 0.5, K 1, bias 0.750, noise 2.449, cosine 0.900"
    assert {series.label: series.points for series in many.series}["PSST-Multinomial"][0].y == pytest.approx(
        (6 / 16) ** 0.5
    )


def test_an_estimator_has_the_colour_of_its_method_in_all_figures(gradients_file):
    expected = assign_method_colours(["reinforce", "st_gumbel", "psst_multinomial"])
    for panel in (
        *build_plane_panels(read_gradients(gradients_file)),
        *build_claim_panels(read_gradients(gradients_file)),
    ):
        found = {series.label: series.style.colour for series in panel.series}
        assert found["PSST-Multinomial"] == expected["psst_multinomial"]
        assert found.get("ST-Gumbel", expected["st_gumbel"]) == expected["st_gumbel"]
        assert found.get("REINFORCE, greedy, centred", expected["reinforce"]) == expected["reinforce"]
        assert panel.includes == ((0, 1), (0, 1)), "expected no error and an error as large as the true gradient"
    assert (choose_estimator_colour("PSST-Gumbel-Rao"), choose_estimator_colour("Gumbel-Rao, k = 10")) == (10, 6)


def test_a_panel_has_a_line_for_the_claim_and_for_the_estimator(gradients_file):
    bias, variance = build_claim_panels(read_gradients(gradients_file))
    claim, psst = bias.series
    assert [(point.x, point.y) for point in claim.points] == [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)]
    assert [point.y for point in psst.points] == pytest.approx([1.0, 1.2, 2.0])
    assert [point.y for point in variance.series[1].points] == pytest.approx([1.0, 0.5, 0.1])


def test_every_number_of_every_world_is_in_the_csv(gradients_file):
    found = list(csv.DictReader(io.StringIO(format_gradients_csv(read_gradients(gradients_file)))))
    assert len(found) == 2 * (2 + 3 * 7)
    assert found[1] == {
        "score": "hinge", "estimator": "REINFORCE, greedy, centred", "rho": "", "temperature": "", "samples": "4",
        "exact": "False", "world": "2", "bias": "0.2", "bias_error": "0.05", "cosine": "0.9", "length": "0.8",
        "variance": "4.0", "seconds": "0.01",
    }  # fmt: skip


def test_markdown_needs_no_rule_of_selection(gradients_file):
    text = format_markdown(build_gradients_tables(read_gradients(gradients_file)))
    assert text.startswith("**Gradient estimators against the exact gradient")


def test_a_broken_file_is_reported(tmp_path):
    (tmp_path / "gradients.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        read_gradients(tmp_path / "gradients.json")


@pytest.mark.parametrize("content", [[], {}, {"rows": [{"name": "PSST", "settings": {}, "worlds": []}]}])
def test_another_content_is_reported(tmp_path, content):
    (tmp_path / "gradients.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"gradients.json: expected the results of `python -m stages.gradients`, found"):
        read_gradients(tmp_path / "gradients.json")
