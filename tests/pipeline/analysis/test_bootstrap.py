from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.bootstrap import (
    _resample_metrics,
    compute_bleu_from_counts,
    compute_interval,
    draw_resamples,
    resample,
)
from pipeline.analysis.judge_titles import make_recall_keys
from pipeline.analysis.results import add_frozen_speakers, read_results
from pipeline.errors import UserError

COUNTS = np.array([[4, 5, 4, 3, 2, 1, 3, 1, 1, 0], [6, 5, 6, 5, 4, 3, 6, 4, 3, 2]])


def read_world(world):
    return read_results(world.sweep, world.evaluations, first=("mle",))


def find_run(results, method, **settings):
    (found,) = [
        run for run in results.runs
        if run.method == method and all(run.settings.get(key) == value for key, value in settings.items())
    ]  # fmt: skip
    return found


def test_every_resample_has_as_many_images_and_equal_seeds_draw_equal_resamples():
    counts = draw_resamples(40, 300, seed=3)
    assert counts.shape == (300, 40)
    assert (counts.sum(1) == 40).all()
    assert (counts == draw_resamples(40, 300, seed=3)).all()
    assert (counts != draw_resamples(40, 300, seed=4)).any()
    assert counts.mean() == pytest.approx(1)
    assert counts.var() == pytest.approx(1 - 1 / 40, rel=0.05)  # binomial: n · 1/n · (1 − 1/n)


def test_bleu_of_summed_counts_is_that_of_pycocoevalcap():
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer, cook_refs, cook_test

    captions = ["a dog runs in the snow", "two red cars", "a man on a horse rides"]
    human = [["a brown dog runs through the snow", "a dog"], ["two red cars on it"], ["a man on a horse"]]
    scorer, counts = BleuScorer(n=4), []
    for text, references in zip(captions, human, strict=True):
        scorer += (text, references)
        cooked = cook_test(text, cook_refs(references))
        closest = min((abs(length - cooked["testlen"]), length) for length in cooked["reflen"])[1]
        counts.append([cooked["testlen"], closest, *cooked["guess"], *cooked["correct"]])
    expected, _ = scorer.compute_score(option="closest", verbose=0)
    assert compute_bleu_from_counts(np.array(counts).sum(0)) == pytest.approx(expected)


def test_bleu_by_hand():
    # 10 words of 10: no penalty; 9/10 unigrams, 5/8 bigrams
    assert compute_bleu_from_counts(COUNTS.sum(0))[:2] == pytest.approx([0.9, (0.9 * 5 / 8) ** 0.5])
    # 4 words of 5: penalty e^(1 − 5/4)
    assert compute_bleu_from_counts(COUNTS[0])[0] == pytest.approx(0.75 * np.exp(-0.25))
    # 6 words of 5: a caption longer than the reference has no penalty
    assert compute_bleu_from_counts(COUNTS[1])[0] == pytest.approx(1.0)
    assert compute_bleu_from_counts(np.stack([COUNTS[0], COUNTS.sum(0)]))[1, 0] == pytest.approx(0.9)


def test_resampled_numbers_are_those_of_the_images_drawn(full_world):
    results = read_world(full_world)
    samples = resample(results, resamples=50, seed=1)
    run = find_run(results, "luo", **{"lambda": 0.8, "seed": 2})
    rows = [row for row in pq.read_table(run.captions).to_pylist()
            if (row["method"], row["cell"], row["split"]) == ("luo", run.cell, "test")]  # fmt: skip
    repetitions = draw_resamples(len(rows), 50, seed=1)[7].astype(int)
    resampled = [row for row, times in zip(rows, repetitions, strict=True) for _ in range(times)]
    assert len(resampled) == len(rows)
    expected = np.mean([row["CIDEr"] for row in resampled])
    assert samples.get_values(run, "language", "CIDEr")[7] == pytest.approx(expected)
    expected = 100 * np.mean([row["rank_judge"] <= 5 for row in resampled])
    assert samples.get_values(run, *make_recall_keys("judge", "R@5"))[7] == pytest.approx(expected)
    expected = compute_bleu_from_counts(np.sum([row["bleu"] for row in resampled], axis=0))[3]
    assert samples.get_values(run, "language", "BLEU-4")[7] == pytest.approx(expected)


def test_a_resample_of_all_images_once_has_the_measured_values(full_world, monkeypatch):
    from pipeline.analysis import bootstrap

    monkeypatch.setattr(bootstrap, "draw_resamples", lambda images, resamples, seed: np.ones((resamples, images)))
    results = add_frozen_speakers(read_world(full_world), ("luo",))
    samples = resample(results, 1)
    for run in results.runs:
        expected = [("language", name) for name in ("CIDEr", "METEOR", "ROUGE-L", "BLEU-1", "BLEU-4")]
        expected += [make_recall_keys(judge, f"R@{k}") for judge in results.judges for k in (1, 5, 10)]
        for keys in expected:
            assert samples.get_values(run, *keys) == pytest.approx([run.value("test", *keys)]), (run.method, keys)
            found = samples.numbers[run.captions_key]
            if keys[0] == "language":
                assert found[keys][1] == pytest.approx(run.value("test", *keys)), keys  # no shift is needed
            else:
                key = (run.column("rank", keys[1]), *keys[2:])
                assert found[key][1] == pytest.approx(run.value("test", *keys)), keys


def test_single_runs_and_cells_share_their_resamples(full_world, make_full_cell):
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    twin = entry | {"method": "twin", "captions": entry["captions"][::-1]}  # rows in another order
    full_world.write([twin], [entry])
    results = read_world(full_world)
    samples = resample(results, resamples=20)
    one, other = (samples.get_values(find_run(results, name), "language", "CIDEr") for name in ("mle", "twin"))
    assert one == pytest.approx(other)
    assert one.std() > 0


def test_a_corpus_value_that_is_not_the_mean_shifts_all_resamples(full_world, make_full_cell):
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    full_world.write([], [entry])
    unshifted = resample(read_world(full_world), 20).get_values(read_world(full_world).runs[0], "language", "METEOR")
    entry["test"]["language"]["METEOR"] += 0.1
    full_world.write([], [entry])
    shifted = resample(read_world(full_world), 20).get_values(read_world(full_world).runs[0], "language", "METEOR")
    assert shifted - unshifted == pytest.approx(np.full(20, 0.1))


def test_a_frozen_speaker_has_the_adapted_listener_in_every_resample(full_world):
    results = add_frozen_speakers(read_world(full_world), ("mle",))
    samples = resample(results, 20)
    frozen, mle = find_run(results, "frozen_mle"), find_run(results, "mle")
    own = samples.get_values(frozen, *make_recall_keys("own"))
    assert own == pytest.approx(samples.get_values(mle, *make_recall_keys("adapted")))
    assert (own != samples.get_values(mle, *make_recall_keys("own"))).any()
    assert samples.get_values(frozen, "language", "CIDEr") == pytest.approx(
        samples.get_values(mle, "language", "CIDEr")
    )


def test_captions_without_scores_have_no_intervals_and_a_note(world):
    results = read_world(world)
    samples = resample(results, 10)
    assert all(samples.get_values(run, "language", "CIDEr") is None for run in results.runs)
    (note,) = samples.notes
    methods = "mle, psst_multinomial, st_multinomial, luo"
    assert note.startswith(f"No intervals for {methods}: captions.parquet has no scores")


def test_a_run_on_other_test_images_has_no_intervals(full_world, make_full_cell):
    small = make_full_cell("luo", 0.9, 0.5, images=(8, 16), seed=1)
    full_world.write([small, make_full_cell("st", 0.9, 0.5, seed=1)], [make_full_cell("mle", 0.96, 0.5, seed=1)])
    results = read_world(full_world)
    samples = resample(results, 10)
    assert samples.get_values(find_run(results, "luo"), "language", "CIDEr") is None
    assert samples.get_values(find_run(results, "st"), "language", "CIDEr") is not None
    assert samples.notes == (
        "No intervals for luo: no test captions, or captions of other images than the first run's.",
    )


def test_ranks_that_are_missing_have_no_resamples(full_world, make_full_cell):
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    entry["captions"][20]["rank_judge"] = None
    full_world.write([], [entry])
    results = read_world(full_world)
    samples = resample(results, 10)
    assert samples.get_values(results.runs[0], *make_recall_keys("judge")) is None
    assert samples.get_values(results.runs[0], *make_recall_keys("own")) is not None
    assert samples.get_values(results.runs[0], "language", "SPICE") is None


def test_the_interval_is_the_middle_95_percent():
    assert compute_interval(np.arange(1001.0)) == (25.0, 975.0)


def test_missing_and_broken_files_are_named(full_world, make_full_cell):
    results = read_world(full_world)
    (full_world.sweep / "captions.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match=r"captions\.parquet: cannot be read"):
        resample(results, 10)
    (full_world.sweep / "captions.parquet").unlink()
    with pytest.raises(UserError, match=r"captions\.parquet: no such file"):
        resample(results, 10)
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    for row in entry["captions"]:
        row["bleu"] = row["bleu"][:3]
    full_world.write([], [entry])
    with pytest.raises(UserError, match="ten counts"):
        resample(read_world(full_world), 10)


def test_an_empty_bleu_row_is_refused(full_world, make_full_cell):
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    entry["captions"][20]["bleu"] = None
    full_world.write([], [entry])
    with pytest.raises(UserError, match="ten counts"):
        resample(read_world(full_world), 10)


def test_an_image_that_is_alone_in_its_hard_gallery_does_not_count():
    frame = pd.DataFrame({"neighbourhood_own": pd.array([1, 2, 0, 1], dtype="int64[pyarrow]")})
    counts = np.array([[0.0, 1, 3, 0], [1, 1, 1, 1]])
    ((resampled, measured),) = _resample_metrics(Path(), frame, counts).values()
    assert measured == pytest.approx(200 / 3)
    assert resampled == pytest.approx([0, 200 / 3])


def test_an_evaluation_without_test_captions_has_no_intervals_and_leaves_those_of_others(full_world):
    """The first run was evaluated on the validation split only."""
    results = read_world(full_world)
    first = results.runs[0]
    assert first.cell is None
    rows = [row for row in pq.read_table(first.captions).to_pylist() if row["split"] == "val"]
    pd.DataFrame(rows).to_parquet(first.captions)
    samples = resample(results, 10)
    assert samples.get_values(first, "language", "CIDEr") is None
    assert samples.get_values(find_run(results, "luo", **{"lambda": 0.8, "seed": 2}), "language", "CIDEr") is not None
    assert samples.notes == (
        f"No intervals for {first.method}: no test captions, or captions of other images than the first run's.",
    )
