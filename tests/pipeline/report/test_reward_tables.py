"""Reward hacking and the growth of the rewards, in the report of methods that a fixed retriever rewards."""

from __future__ import annotations

import csv
import json
import re

import pytest

from pipeline.analysis.caption_files import read_captions
from pipeline.analysis.results import read_results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.report.report_page import write_report
from pipeline.report.reward_hacking_examples import select_reward_hacking_examples
from pipeline.report.reward_tables import (
    build_discriminator_panels,
    build_rewarded_table,
    build_training_panels,
    select_rewarded_histories,
)
from pipeline.report.training_histories import average_histories, format_training_csv, read_training_histories

RECALLS = {"mle": (60.0, 50.0), "wtf_rl": (75.0, 58.0), "rl": (80.0, 49.0)}  # R@10 by the retriever, by the judge


@pytest.fixture
def rewarded_world(full_world, make_full_cell):
    """Return a world with the control and two methods, judged by a retriever and, last, by the independent judge.

    wtf_rl has two seeds in the sweep; the control and rl have one run each outside the sweep.
    """
    cells = [make_full_cell(name, 0.96, 0.5, seed=1, **({} if name == "mle" else {"alpha": 0.9})) for name in RECALLS]
    cells.append(make_full_cell("wtf_rl", 0.96, 0.5, seed=2, alpha=0.9))
    for entry in cells:
        for split in ("val", "test"):
            own, judge = (json.loads(json.dumps(entry[split]["judges"][name])) for name in ("own", "judge"))
            own["text_to_image"]["R@10"], judge["text_to_image"]["R@10"] = RECALLS[entry["method"]]
            entry[split]["judges"] = {"retriever": own, "judge": judge}
        entry["captions"] = [
            {name: value for name, value in row.items() if not name.startswith(("rank_", "retrieved_"))}
            | {f"{quantity}_{target}": row[f"{quantity}_{source}"] for quantity in ("rank", "retrieved")
               for target, source in (("retriever", "own"), ("judge", "judge"))}
            for row in entry["captions"]
        ]  # fmt: skip
    full_world.write([cells[1], cells[3]], [cells[0], cells[2]])
    for name in ("rl", "mle"):
        folder = full_world.sweep.parent / "models" / name
        folder.mkdir(parents=True)
        (folder / "history.jsonl").write_text(format_jsonl(make_history(50.0 if name == "rl" else None)))
    swept = [{"method": "wtf_rl", "cell": cell["cell"], **entry}
             for cell, first in ((cells[1], 60.0), (cells[3], 64.0)) for entry in make_history(first)]  # fmt: skip
    (full_world.sweep / "history.jsonl").write_text(format_jsonl(swept))
    return full_world


def make_history(first: float | None) -> list[dict[str, float]]:
    """Return two epochs; with `first`, also recalls by a judge and by the retriever, and the discriminator's accuracy.

    R@10 by the retriever is `first` + 1, then `first` + 2.
    """

    def make_retriever_metrics(n: int) -> dict[str, float]:
        recalls = {
            "val/rewarded_recall@10": first + n,
            "val/rewarded_recall@1": first / 2,
            "val/judged_recall@10": 55.0,
        }
        return recalls | {"discriminator/accuracy": 0.75}

    entries = [{"epoch": n, "step": 10 * n, "val/cider": 1.0, "val/recall@10": 50.0} for n in (1, 2)]
    return entries if first is None else [entry | make_retriever_metrics(entry["epoch"]) for entry in entries]


def format_jsonl(entries: list[dict]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def list_model_folders(world) -> list:
    return [world.sweep.parent / "models" / name for name in RECALLS]


def test_the_excess_gain_is_the_difference_of_two_gains(rewarded_world):
    results = read_results(rewarded_world.sweep, rewarded_world.evaluations, first=("mle",))
    choices = choose_all(results, ReportSettings())
    table = build_rewarded_table(results, choices, "retriever", "mle")
    assert table.columns[-1].label == "excess gain"
    assert {row[0]: row[-1] for row in table.rows} == {"mle": "0.0", "wtf_rl": "+7.0", "rl": "+21.0"}
    assert "by retriever, minus the gain by judge" in table.notes[0]
    assert build_rewarded_table(results, choices, "clip", "mle") is None
    assert build_rewarded_table(results, choices, "judge", "mle") is None  # no judge follows the last one


def test_the_figure_has_the_validation_metrics_in_percent(rewarded_world):
    results = read_results(rewarded_world.sweep, rewarded_world.evaluations, first=("mle",))
    choices = choose_all(results, ReportSettings())
    runs = read_training_histories(
        choices, rewarded_world.sweep / "history.jsonl", list_model_folders(rewarded_world), None
    )
    assert {method: len(histories) for method, histories in runs.items()} == {"mle": 1, "wtf_rl": 2, "rl": 1}
    found = {method: average_histories(histories) for method, histories in runs.items()}
    assert list(found) == ["mle", "wtf_rl", "rl"]
    mle = [row for row in csv.DictReader(format_training_csv(found).splitlines()) if row["method"] == "mle"]
    assert [(row["step"], row["val/cider"], row["val/recall@10"]) for row in mle] == [
        ("10.0", "1.0", "50.0"), ("20.0", "1.0", "50.0"),
    ]  # fmt: skip
    found = select_rewarded_histories(found | {"rl_similarity": list(found["rl"])})
    assert list(found) == ["wtf_rl", "rl"], "the samples of rl's model have no training of their own"
    panels = build_training_panels(results, found)
    panels += build_discriminator_panels(results, found)
    assert [panel.title for panel in panels] == [
        "Recall by the rewarding retriever", "Recall by the judge", "Accuracy of the discriminator",
    ]  # fmt: skip
    assert [[(point.x, point.y) for point in panel.series[0].points] for panel in panels] == [
        [(1, 63.0), (2, 64.0)], [(1, 55.0), (2, 55.0)], [(1, 75.0), (2, 75.0)],
    ]  # the first is the mean over two seeds  # fmt: skip
    assert [point.y for point in panels[0].series[1].points] == [51.0, 52.0]
    rows = list(csv.DictReader(format_training_csv(found).splitlines()))
    assert [(row["method"], row["step"], row["val/rewarded_recall@10"]) for row in rows] == [
        ("wtf_rl", "10.0", "63.0"), ("wtf_rl", "20.0", "64.0"), ("rl", "10.0", "51.0"), ("rl", "20.0", "52.0"),
    ]  # fmt: skip
    unjudged = {"rl": [{key: value for key, value in entry.items() if "judged" not in key} for entry in found["rl"]]}
    assert build_training_panels(results, unjudged)[1].title == "Recall by the listener"


def test_the_page_has_table_and_figure_only_with_a_retriever(rewarded_world, tmp_path):
    def write_page(name: str, **options) -> str:
        out, world = tmp_path / name, rewarded_world
        write_report(world.sweep, world.evaluations, world.prepared, None, out, ReportSettings(), **options)
        assert (out / "training.png").exists() == bool(options)
        return (out / "report.html").read_text(encoding="utf-8")

    page = write_page("with", retriever="retriever", models=list_model_folders(rewarded_world))
    assert "Reward hacking" in page
    assert "Recall by the rewarding retriever" in page
    assert "Reward hacking" not in write_page("without")
    assert "excess gain" in (tmp_path / "with/tables.md").read_text(encoding="utf-8")


def test_hacked_captions_are_selected_by_the_smaller_of_both_ratios(rewarded_world):
    results = read_results(rewarded_world.sweep, rewarded_world.evaluations, first=("mle",))
    choices = choose_all(results, ReportSettings())
    found = select_reward_hacking_examples(results, choices, ["wtf_rl", "rl"], "retriever", "mle")
    runs = {choice.method: choice.point.runs[0] for choice in choices}
    names = list(runs)
    rows = dict(zip(names, read_captions(list(runs.values()), None, ["rank_retriever", "rank_judge"]), strict=True))

    def compute_disagreement(method: str, image: int) -> float:
        ranks, control = rows[method][image], rows["mle"][image]
        gain = control["rank_retriever"] / ranks["rank_retriever"]
        return min(gain, ranks["rank_judge"] / control["rank_judge"])

    values = [(compute_disagreement(method, image), image) for method in ("wtf_rl", "rl") for image in rows[method]]
    largest = {image: max(value for value, other in values if other == image) for _, image in values}
    expected = sorted((-value, image) for image, value in largest.items() if value > 1)[:6]
    assert [image for image, _ in found] == [image for _, image in expected]
    assert [compute_disagreement(method, image) for image, method in found] == pytest.approx(
        [-value for value, _ in expected]
    )
    assert found  # an empty selection would pass the comparisons above
    assert select_reward_hacking_examples(results, choices, ["wtf_rl"], "judge", "mle") == []


def test_hacked_pictures_have_the_controls_and_the_methods_caption(rewarded_world, tmp_path):
    world = rewarded_world
    write_report(
        world.sweep,
        world.evaluations,
        world.prepared,
        world.images,
        tmp_path,
        ReportSettings(images=2),
        retriever="retriever",
        models=list_model_folders(world),
    )
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    section = page.partition("Largest disagreement between reward and judge")[2].partition("</section>")[0]
    assert (tmp_path / "hacked.png").exists()
    tables = section.split('<table class="captions">')[1:]
    assert tables
    for table in tables:
        control, method = table.split("<tr data-views")[1:]
        assert re.search(r"\bmle\b", control)
        assert re.search(r"\b(wtf_)?rl\b", method)
