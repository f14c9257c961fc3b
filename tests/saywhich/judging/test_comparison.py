"""Differences of caption files on three photos and of synthetic recalls, verdicts, and the agreement of judges."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import torch
from colour_judge import ColourJudge

import saywhich
from pipeline.analysis.bootstrap import draw_resamples
from pipeline.analysis.comparison import adjust_p_values, compute_two_sided_p_value
from pipeline.errors import UserError
from saywhich.cli import main
from saywhich.judging import judge_sources
from saywhich.judging.caption_comparison import ScoreDifference, compare_rows, count_decisive_images
from saywhich.judging.caption_scores import ScoreKey, average_over, compute_ratio, resample_scores
from saywhich.judging.comparison_tables import format_comparison_lines, format_gap_lines, state_verdict
from saywhich.judging.judge_sources import JudgeSource
from saywhich.judging.judgement import JudgedRow, Judgement
from saywhich.judging.retrieval_scores import CaptionRanks

BEFORE = {"a.png": "a red square", "b.png": "a red cat", "c.png": "red and green with a"}
AFTER = {"a.png": "a red square", "b.png": "green", "c.png": "red and green with a"}


def make_judgement(images, score="R@1", **rows):
    """Return a judgement whose rows have these hits of `score` per image and judge; a hit has rank 1, a miss rank 2."""
    judges = list(next(iter(rows.values())))
    scores = [
        {ScoreKey(judge, score): compute_ratio(100.0 * hits, np.ones(images)) for judge, hits in each.items()}
        for each in rows.values()
    ]
    drawn = resample_scores(scores, images)
    judged_rows = [
        JudgedRow(
            name, [["x"]] * images, [[]] * images, own,
            {judge: CaptionRanks(2 - hits, hits, hits) for judge, hits in each.items()}, resampled,
        )
        for (name, each), own, resampled in zip(rows.items(), scores, drawn, strict=True)
    ]  # fmt: skip
    return Judgement([Path("x.png")] * images, judged_rows, [], judges, torch.zeros(images, 0), "", [], 1000)


def test_differences_are_paired_over_the_same_images(colours):
    found = saywhich.compare([BEFORE, AFTER], "photos", judges=["colours"])
    (pair,) = found.pairs
    recall = pair.difference("colours", "R@1")
    assert (recall.first, recall.second) == pytest.approx((200 / 3, 100))  # "green" retrieves b.png
    drawn = draw_resamples(3) @ [0, 100, 0] / 3
    assert recall.interval == pytest.approx(tuple(np.percentile(drawn, (2.5, 97.5))))
    tested = [each for each in pair.differences if each.p is not None]
    assert recall in tested
    raw = []
    for one in tested:
        resampled = pair.second.resampled[one.key] - pair.first.resampled[one.key]
        raw.append(compute_two_sided_p_value(one.value, resampled))
    assert [one.p for one in tested] == pytest.approx(adjust_p_values(raw))
    assert pair.difference("", "distinct words").p is None
    assert pair.difference("", "words per caption").value == pytest.approx(-2 / 3)


def test_a_clear_difference_is_better_or_worse_and_others_are_open():
    rng = np.random.default_rng(0)
    base = (rng.random(400) < 0.3).astype(int)
    more = np.maximum(base, (rng.random(400) < 0.3).astype(int))
    found = compare_rows(make_judgement(400, A={"one": base}, B={"one": more}, C={"one": np.roll(base, 1)}))
    better, rolled = (pair.difference("one", "R@1") for pair in found.pairs)
    assert better.verdict == "better"
    assert better.p < 0.001
    assert better.needed is None
    assert (rolled.verdict, rolled.needed) == ("open", None)  # equally many hits leave no difference to decide
    decrease = compare_rows(make_judgement(400, A={"one": more}, B={"one": base})).pairs[0].difference("one", "R@1")
    assert decrease.verdict == "worse"
    for score, verdict in (("with a repetition, %", "worse"), ("words per caption", "higher")):
        increase = compare_rows(make_judgement(400, score, A={"": base}, B={"": more})).pairs[0].difference("", score)
        assert increase.verdict == verdict


def test_an_open_difference_has_the_number_of_deciding_images():
    # the deviation falls with the root of the number of images; 1.96 deviations must not exceed the difference of 1.5
    assert count_decisive_images(100, 1.5, 2.0, 1) == math.ceil(100 * (1.959964 * 2 / 1.5) ** 2)
    assert count_decisive_images(100, -1.5, 2.0, 1) == count_decisive_images(100, 1.5, 2.0, 1)
    strict = NormalDist().inv_cdf(1 - 0.05 / 20)
    assert count_decisive_images(100, 1.5, 2.0, 10) == math.ceil(100 * (strict * 2 / 1.5) ** 2)
    assert count_decisive_images(100, 0.0, 2.0, 1) is None
    assert count_decisive_images(100, 1e-9, 2.0, 1) is None
    assert count_decisive_images(100, 3.99, 2.0, 1) == 101  # the difference is open at 100 images


def test_a_difference_that_is_decided_alone_is_open_beside_another_one():
    """Holm doubles the p-value of each of two equal differences, and the number of images is for half of the level."""
    hits = (np.arange(40) < 4).astype(int)
    alone, beside = (
        compare_rows(make_judgement(40, A=dict.fromkeys(judges, np.zeros(40, int)), B=dict.fromkeys(judges, hits)))
        .pairs[0]
        .difference("one", "R@1")
        for judges in (["one"], ["one", "two"])
    )
    assert alone.verdict == "better"
    assert beside.p == pytest.approx(2 * alone.p)
    deviation = (100 * draw_resamples(40) @ hits / 40).std(ddof=1)
    needed = math.ceil(40 * (NormalDist().inv_cdf(1 - 0.05 / 4) * deviation / 10) ** 2)
    assert (beside.verdict, beside.needed) == ("open", needed)


def test_a_difference_of_rounding_is_decided_by_no_number_of_images():
    """Averages of the same scores in another order within each image differ in their last digits."""
    values, owners = np.random.default_rng(8).random((50, 3)), np.repeat(np.arange(50), 3)
    key = ScoreKey("one", "CLIPScore")
    scores = [{key: average_over(owners, each.ravel(), 50)} for each in (values, values[:, ::-1])]
    assert 0 < abs(scores[0][key].value - scores[1][key].value) < 1e-12
    ranks = {"one": CaptionRanks(np.ones(150, int), np.ones(150, int), np.ones(150, int))}
    rows = [
        JudgedRow(name, [["x"] * 3] * 50, [[]] * 50, own, ranks, resampled)
        for name, own, resampled in zip("AB", scores, resample_scores(scores, 50), strict=True)
    ]
    judgement = Judgement([Path("x.png")] * 50, rows, [], ["one"], torch.zeros(50, 0), "", [], 1000)
    (each,) = compare_rows(judgement).pairs[0].differences
    assert (each.verdict, each.needed) == ("open", None)


@pytest.mark.parametrize(
    ("verdict", "needed", "sentence"),
    [
        ("better", None, "better"),
        ("open", None, "open: the difference is too small to decide"),
        ("open", 1357, "open: about 1,400 images would decide it"),
        ("open", 3 * 10**6, "open: millions of images would decide it"),
    ],
)
def test_a_verdict_in_a_sentence(verdict, needed, sentence):
    assert state_verdict(ScoreDifference(ScoreKey("one", "R@1"), 1, 2, verdict=verdict, needed=needed)) == sentence


def test_agreement_counts_images_with_a_difference_by_both_judges():
    first = {"one": np.array([0, 0, 0, 1, 1, 0]), "two": np.array([0, 0, 0, 1, 1, 1])}
    second = {"one": np.array([1, 1, 0, 0, 0, 1]), "two": np.array([1, 0, 1, 0, 1, 0])}
    (pair,) = compare_rows(make_judgement(6, A=first, B=second)).pairs
    (agreement,) = pair.agreements
    # changes by judge one: + + 0 − − +, by judge two: + 0 + − 0 −
    # both are nonzero in images 1, 4 and 6, and agree in images 1 and 4
    assert (agreement.judges, agreement.agree, agreement.images) == (("one", "two"), pytest.approx(200 / 3), 3)


@pytest.mark.parametrize(
    ("judges", "names"),
    [
        (
            ("openai/clip-vit-base-patch32", "openai/clip-vit-large-patch14"),
            "openai/clip-vit-base… and openai/clip-vit-larg…",
        ),
        (("own", "openai/clip-vit-large-patch14-336px-and-more"), "own and openai/clip-vit-large-patch14-336px-an…"),
        (("two", "openai/clip-vit-large-patch14"), "two and openai/clip-vit-large-patch14"),
    ],
    ids=["two long names", "one long name", "names that fit"],
)
def test_long_names_of_judges_leave_room_for_their_agreement(judges, names):
    rows = {name: dict.fromkeys(judges, np.full(1234, hit)) for name, hit in (("A", 0), ("B", 1))}
    lines = [
        line for line in format_comparison_lines(compare_rows(make_judgement(1234, **rows))) if " agree on " in line
    ]
    assert lines == [f"{names} agree on the better caption of 100 % of 1,234 images"]
    assert len(lines[0]) <= 100


def test_the_gain_by_the_rewarding_judge_alone():
    first = {"reward": np.zeros(100, int), "other": np.zeros(100, int)}
    second = {"reward": np.r_[np.ones(60, int), np.zeros(40, int)], "other": np.r_[np.ones(10, int), np.zeros(90, int)]}
    gap = compare_rows(make_judgement(100, A=first, B=second), ["reward"]).pairs[0].reward_gap
    assert (gap.rewarded, gap.others) == (60.0, 10.0)
    differences = 100.0 * (np.arange(100) < 60) - 100.0 * (np.arange(100) < 10)
    assert gap.interval == pytest.approx(tuple(np.percentile(draw_resamples(100) @ differences / 100, (2.5, 97.5))))
    assert list(format_gap_lines(gap)) == [
        "R@1 by the judges that rewarded the training: +60.0; by the others: +10.0",
        f"  a difference of +50.0 [{gap.interval[0]:+.1f}, {gap.interval[1]:+.1f}]: the judges differ",
    ]
    reverse = compare_rows(make_judgement(100, A=first, B=second), ["other"]).pairs[0].reward_gap
    assert (reverse.value, reverse.differs) == (-50.0, True)
    equal_gains = make_judgement(100, A=first, B={"reward": second["other"], "other": second["other"]})
    equal_pair = compare_rows(equal_gains, ["reward"]).pairs[0]
    assert (
        list(format_gap_lines(equal_pair.reward_gap))[1]
        == "  a difference of +0.0 [+0.0, +0.0]: whether the judges differ is open"
    )
    with pytest.raises(UserError, match="--rewarded-by nobody: is no judge here; give one of reward, other"):
        compare_rows(make_judgement(100, A=first, B=second), ["nobody"])


def test_rewarding_judges_are_named_as_given_or_as_shown_and_checked_before_the_work(colours, monkeypatch):
    class ModelJudge(ColourJudge):
        digest = "model"

        def __init__(self, name):
            super().__init__(name.rpartition("/")[2])

    source = JudgeSource(lambda name: name.startswith("models/"), ModelJudge)
    monkeypatch.setattr(judge_sources, "JUDGES", (source, *judge_sources.JUDGES))
    Path("models/reward").mkdir(parents=True)
    judges = ["models/reward", "colours"]
    gaps = [
        saywhich.compare([BEFORE, AFTER], "photos", judges=judges, rewarded_by=[name]).pairs[0].reward_gap
        for name in ("models/reward", "reward")
    ]
    assert gaps[0] == gaps[1] is not None
    monkeypatch.setattr(judge_sources, "JUDGES", ())  # no judge can be opened
    with pytest.raises(UserError, match="--rewarded-by x: is no judge here; give one of models/reward, colours"):
        saywhich.compare([BEFORE, AFTER], "photos", judges=judges, rewarded_by=["x"])
    # the last part of a hub judge's name is not the judge's name in the table
    with pytest.raises(UserError, match="--rewarded-by b: is no judge here; give one of hub/a/b, colours"):
        saywhich.compare([BEFORE, AFTER], "photos", judges=["hub/a/b", "colours"], rewarded_by=["b"])


def test_the_command_prints_and_writes_the_same_numbers(colours, capsys):
    for name, captions in {"before": BEFORE, "after": AFTER}.items():
        (colours / f"{name}.json").write_text(json.dumps(captions))
    command = [
        "compare",
        "before.json",
        "after.json",
        "--images",
        "photos",
        "--judge",
        "colours",
        "--judge",
        "colours2",
    ]
    assert main([*command, "--rewarded-by", "colours", "--json", "out.json", "--csv", "out.csv"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 100
    assert "A = before.json, B = after.json" in printed
    line = next(line.split() for line in printed if line.startswith("  R@1 "))
    assert line[:4] == ["R@1", "66.7", "100.0", "+33.3"]
    assert "R@1 (hard) by 2 judges: 2 open" in printed
    assert "R@1 (hard) by the judges that rewarded the training: +33.3; by the others: +33.3" in printed
    assert "colours and colours2 agree on the better caption of 100 % of 1 images" in printed
    pair = json.loads((colours / "out.json").read_text())["pairs"][0]
    assert pair["agreement"] == [{"judges": ["colours", "colours2"], "agree": 100.0, "images": 1}]
    recall = next(each for each in pair["differences"] if each["score"] == "R@1")
    with open(colours / "out.csv", newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["score"] == "R@1")
    assert float(row["difference"]) == recall["difference"] == pytest.approx(100 / 3)
    assert (float(row["low"]), float(row["p"])) == (recall["low"], recall["p"])


def test_one_file_cannot_be_compared(colours):
    with pytest.raises(UserError, match="compare: expected two caption files or more, found 1; give two or more"):
        saywhich.compare([BEFORE], "photos", judges=["colours"])


def test_files_of_different_photos_cannot_be_compared(colours):
    with pytest.raises(UserError, match=r"^captions 2: 1 of its 1 images \(the first is 'a.png'\) are photos"):
        saywhich.compare([BEFORE, {"a.png": "red"}], "photos", judges=["colours"])
