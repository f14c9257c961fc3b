"""A report has the judges of its evaluations: here an unknown judge, with or without the own listener."""

import csv
import re

import pytest

from pipeline.analysis.comparison import compare_methods
from pipeline.analysis.judge_titles import make_recall_keys
from pipeline.analysis.results import read_results
from pipeline.analysis.selection import ReportSettings, choose_all, describe_rule
from pipeline.report.figures import build_drift_panel
from pipeline.report.report_page import write_report

SETTINGS = ReportSettings(images=2, frozen_speakers=("luo",))


@pytest.fixture(params=[("own", "clip"), ("clip",)], ids="+".join)
def judges(request):
    return request.param


@pytest.fixture
def judged_world(full_world, make_full_cell, judges):
    """Write two methods along λ and the control with `judges` alone; clip has the independent judge's ranks."""
    source = {"own": "own", "clip": "judge"}
    steps = ((0.001, 1.00, 0.55), (0.005, 0.97, 0.70), (0.02, 0.88, 0.95))
    cells = [
        make_full_cell(method, cider, share - difference, **{"lambda": lam, "rho": rho, "seed": 1})
        for lam, cider, share in steps
        for method, rho, difference in (
            ("psst_multinomial", 0.0, 0.1),
            ("psst_multinomial", 0.5, 0.0),
            ("luo", None, 0.05),
        )
    ]
    control = make_full_cell("mle", 0.96, 0.5, seed=1)
    for entry in (*cells, control):
        for split in ("val", "test"):
            entry[split]["judges"] = {judge: entry[split]["judges"][source[judge]] for judge in judges}
        entry["captions"] = [
            {name: value for name, value in row.items() if not name.startswith(("rank_", "retrieved_"))}
            | {f"{name}_{judge}": row[f"{name}_{source[judge]}"] for judge in judges for name in ("rank", "retrieved")}
            for row in entry["captions"]
        ]
    full_world.write(cells, [control])
    return full_world


def test_the_first_judge_selects_and_defines_the_curves(judged_world, judges):
    results = read_results(judged_world.sweep, judged_world.evaluations, first=("mle",))
    assert list(results.judges) == list(judges)
    assert results.first_judge.title == {"own": "Own listener", "clip": "clip"}[judges[0]]
    assert results.judges["clip"].description == "clip"
    luo = {choice.method: choice.point for choice in choose_all(results, SETTINGS)}["luo"]
    natural = [p for p in results.get_points("luo") if p.mean("val", "language", "CIDEr") >= 0.95 * 0.96]
    assert luo is max(natural, key=lambda point: point.mean("val", *make_recall_keys(judges[0])))
    assert f"R@10 ({results.first_judge.title.lower()})" in describe_rule(results, SETTINGS)
    comparison = compare_methods(results, SETTINGS)
    assert {judge for found in comparison.at_cider[0].differences.values() for judge in found} == set(judges)
    assert (build_drift_panel(results, []) is None) == ("own" not in judges)


def test_page_tables_figures_and_gallery_show_exactly_these_judges(judged_world, judges, tmp_path):
    write_report(
        judged_world.sweep, judged_world.evaluations, judged_world.prepared, judged_world.images, tmp_path, SETTINGS
    )
    html = (tmp_path / "report.html").read_text()
    assert set(re.findall(r'data-judge="(\w+)"', html)) - {"drift"} == set(judges)
    assert '<span class="hidden">rank by listener </span>clip</th>' in html
    assert f'>{ {"own": "Own listener", "clip": "clip"}[judges[0]] } retrieves</span> <span><span class="thumb' in html
    for name in ("table.md", "tables.md"):
        text = (tmp_path / name).read_text()
        assert "R@10 clip" in text
        assert ("R@10 own" in text) == ("own" in judges)
        assert not re.search(r"R@10 (pretrained|adapted|judge)\b|Pretrained listener R|Independent judge", text)
    assert "Drift of the listener" not in (tmp_path / "tables.md").read_text()
    with (tmp_path / "curve.csv").open() as lines:
        row = next(csv.DictReader(lines))
    assert {name for name in row if name.startswith("R@10 ")} == {f"R@10 {judge}" for judge in judges}
    with (tmp_path / "rho.csv").open() as lines:
        assert {row["judge"] for row in csv.DictReader(lines)} == set(judges)
    assert (tmp_path / "rho.png").stat().st_size > 1000
    if "own" in judges:  # the system of a frozen speaker needs the adapted listener
        assert "Luo et al. (frozen): settings without the recall of the adapted or own listener are left out" in html
