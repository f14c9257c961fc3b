"""Visual dialog in the stages from draw to report, without a grid, on a toy world."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from stage_runs import run_stage, run_stages
from whole_profiles import load_profile

from pipeline.dialog.data.prepared_dialogs import PreparedDialogs
from pipeline.dialog.settings import PRIORS
from pipeline.workflow.grid_cells import gather_results

ROOT = Path(__file__).parents[1]
METHODS = {
    "g_mle": {"from": "visual_dialog", "method": "g_more", "train": {"optimisation": {"epochs": 0}}},
    "g_dis": {"from": "visual_dialog", "alpha": 1.0},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Yield a folder in which the stages from draw to report have run, without a grid."""
    folder = tmp_path_factory.mktemp("dialogs")
    params = load_profile("dialog")
    params["draw"]["scenes"] |= {"images": 40, "size": 48, "val": 8, "test": 8}
    params["prepare"]["min_count"] = 1
    params["features"]["main"]["detector"] |= {"epochs": 1, "width": 4}
    for block in params["pretrain"].values():
        block |= {"word_dim": 8, "hidden_dim": 8}
        block["optimisation"] |= {"epochs": 1, "batch": 4, "validate_every": 1}
    for section in ("train", "adapt"):
        params[section]["optimisation"] |= {"epochs": 1, "batch": 4}
    params |= {"methods": METHODS, "sweep": {"seeds": [1], "grid": {}}}
    params["evaluate"]["candidate_rankers"] = {"g_mle": [*PRIORS, "d_np"]}
    params["report"]["control"] = "g_mle"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.dialog.drawn.write_dialogs.POOL_DIALOGS", 150)
        run_stages(
            folder,
            params,
            ("draw", "--dataset", "scenes"),
            ("prepare",),
            ("features",),
            *(("pretrain", "--role", role) for role in params["pretrain"]),
            *((stage, "--method", method) for method in METHODS for stage in ("train", "adapt", "evaluate")),
        )
        patch.chdir(folder)
        patch.setenv("SAYWHICH_TRACKING", "off")
        gather_results([], Path("data/sweep"))
        assert run_stage("cross") == run_stage("report") == 0
        yield folder


def test_dialogs_are_prepared_with_the_captions_that_their_images_have(world):
    dialogs = PreparedDialogs.load(world / "data/prepared")
    assert dialogs.options.shape == (40, 10, 100)
    assert (dialogs.answers[:, -1] == 0).all()
    captions = pq.read_table(world / "data/prepared/captions.parquet")
    assert len(captions) == 5 * 40
    tokens = captions["tokens"].to_pylist()
    for image, padded in enumerate(dialogs.captions.tolist()):
        assert [token for token in padded if token] in tokens[5 * image : 5 * image + 5]
    assert dialogs.relevance is not None
    known = np.isfinite(dialogs.relevance)
    assert known.any()
    assert (known.all(2) == known.any(2)).all()  # a round has the relevance of all its candidates, or of none


def test_an_evaluation_ranks_by_likelihood_and_by_every_discriminator(world):
    found = json.loads((world / "data/evaluation/g_dis/metrics.json").read_text())
    test = found["test"]
    assert set(test["ranking"]) == {"MRR", "R@1", "R@5", "R@10", "mean_rank", "NDCG"}
    assert set(test["judges"]) == {"own", "adapted", "d_np_att", "d_np", "d_mle"}
    assert 0 < test["ranking"]["MRR"] < 1
    assert test["human_answers"]["relevance"] > 0.65  # hedges and guesses have less relevance than true answers
    assert 0 <= test["answers"]["true"] <= 1
    assert test["judges"]["own"]["ranking"] == test["judges"]["d_np_att"]["ranking"]  # the discriminator was frozen
    assert test["rankers"] == {}
    assert "ties=against" in found["signature"]
    columns = pq.read_table(world / "data/evaluation/g_dis/captions.parquet").to_pydict()
    assert len(columns["rank"]) == 2 * 8 * 10
    own = [1 / rank for rank, split in zip(columns["rank"], columns["split"], strict=True) if split == "test"]
    assert np.mean(own) == pytest.approx(test["ranking"]["MRR"])
    assert "UNK" not in " ".join(columns["answer"])


def test_priors_and_other_rankers_are_evaluated_with_one_method(world):
    test = json.loads((world / "data/evaluation/g_mle/metrics.json").read_text())["test"]
    assert set(test["rankers"]) == {*PRIORS, "d_np"}
    assert test["rankers"]["d_np"]["ranking"] == test["judges"]["d_np"]["ranking"]
    assert test["rankers"]["question_prior"]["ranking"]["MRR"] > test["rankers"]["chance"]["ranking"]["MRR"]
    assert set(test["rankers"]["prior"]["refers"]) == set(test["refers"])
    tables = (world / "data/report/tables.md").read_text()
    assert tables.count("| answer frequency given the question |") == 2


def test_the_report_has_the_papers_tables_and_sample_dialogs(world):
    tables = (world / "data/report/tables.md").read_text()
    for words in ("Generators", "Discriminators", "Claims of the paper", "Referred to by", "0.5467", "0.6222"):
        assert words in tables
    assert "| D-NP-ATT ranks better than D-NP" in tables
    assert "−0.0000" not in tables
    page = (world / "data/report/report.html").read_text()
    captions = pq.read_table(world / "data/evaluation/g_dis/captions.parquet").to_pylist()
    assert page.count("data:image") == 8
    test_rows = [row for row in captions if row["split"] == "test"]
    assert all(row["question"] in page for row in test_rows)
    assert all(text in page for row in test_rows for text in row["best"])
    assert "<script" not in page
    curve = (world / "data/report/curve.csv").read_text()
    assert "seed" in curve.splitlines()[0]
    assert len(curve.splitlines()) == 1 + 2 * len(METHODS)


def test_the_page_shows_what_a_generator_attends_to(world):
    rows = pq.read_table(world / "data/evaluation/g_dis/captions.parquet").to_pylist()
    for row in rows:
        assert sum(row["history_shares"]) == pytest.approx(1, abs=0.01)
        assert sum(row["regions_shares"]) == pytest.approx(1, abs=0.05)
        assert not any(row["history_shares"][row["round"] :])  # later rounds have no share
        assert len(row["best"]) == 5
    page = (world / "data/report/report.html").read_text()
    assert page.count('class="dialog"') == 8
    assert page.count('class="round"') == 80
    side = round(len(rows[0]["regions_shares"]) ** 0.5)
    assert page.count(f'<svg viewBox="0 0 {side} {side}"') == 80
    assert page.count("--shade:") >= 8 * sum(range(1, 11))


def test_differences_have_intervals_over_dialogs(world):
    from pipeline.analysis.results import read_results
    from pipeline.dialog.report.dialog_ranking import compute_ranker_difference, compute_reciprocal_ranks

    results = read_results(world / "data/sweep", [world / "data/evaluation/g_dis"])
    (run,) = results.runs
    own = compute_reciprocal_ranks(run)
    assert own.shape == (8,)
    assert own.mean() == pytest.approx(run.value("test", "ranking", "MRR"))
    found = compute_ranker_difference([own + 0.1, own + 0.3], [own])
    assert (found.value, found.low, found.high, *found.by_seed) == pytest.approx((0.2, 0.2, 0.2, 0.1, 0.3))
    assert found.verdict == "holds"
    assert compute_ranker_difference([own], [own + 0.1, own + 0.3]).verdict == "fails"
    assert compute_ranker_difference([own + 0.1], [own]).verdict == "open"  # one seed is not enough
    assert compute_ranker_difference([own - 0.1, own + 0.5], [own]).verdict == "open"  # the seeds disagree
    assert compute_ranker_difference([own, own], [own, own]).verdict == "open"
    assert compute_ranker_difference([own] * 2, [own] * 3) is None
    assert compute_ranker_difference([own], [own[:3]]) is None
    assert compute_reciprocal_ranks(run, "rank_nobody") is None


def test_zero_epochs_give_the_pretrained_generator(world):
    first, second = (world / "data" / place / "weights.safetensors" for place in ("pretrained/speaker", "models/g_mle"))
    from pipeline.slices.slice_agents import load_any_agent

    pretrained, trained = (load_any_agent(path, "speaker").state_dict() for path in (first, second))
    assert all((trained[name] == value).all() for name, value in pretrained.items())


def test_training_does_not_read_the_test_split(world, monkeypatch):
    from pipeline.data.feature_store import FeatureStore
    from pipeline.data.prepared import PreparedData

    monkeypatch.chdir(world)
    test, rows_read = set(PreparedData.load(Path("data/prepared")).rows("test").tolist()), set()
    read_into = FeatureStore.read_into
    monkeypatch.setattr(
        FeatureStore,
        "read_into",
        lambda self, rows, *out: (rows_read.update(np.asarray(rows).tolist()), read_into(self, rows, *out)),
    )
    assert run_stage("pretrain", "--role", "listener", "--out", str(world / "again")) == 0
    assert run_stage("train", "--method", "g_dis", "--out", str(world / "again")) == 0
    assert rows_read
    assert not rows_read & test


def test_a_method_of_captions_is_refused_in_one_line(world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    override = "methods.g_dis={from: likelihood, method: mle}"
    assert run_stage("train", "--method", "g_dis", "--set", override, "--out", str(world / "refused")) == 2
    assert "mle: expected Agents, found DialogAgents" in capsys.readouterr().err


def test_other_numbers_of_options_are_reported_with_file_dialog_and_round(world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    assert run_stage("prepare", "--set", "prepare.dialogs.options=99", "--out", str(world / "refused")) == 2
    printed = capsys.readouterr().err
    assert "dialogs_train.json, dialog 0 (image 16), round 1: 100 options, and 99 are expected" in printed
