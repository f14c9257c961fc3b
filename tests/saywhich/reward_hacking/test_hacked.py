"""Gains by the reward and by another judge, computed by hand for three photos and for synthetic recalls."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from colour_judge import ColourJudge, paint_colours

import saywhich
from pipeline.analysis.bootstrap import draw_resamples
from pipeline.errors import UserError
from saywhich.cli import main
from saywhich.judging import judge_sources
from saywhich.judging.caption_scores import ScoreKey, compute_ratio, resample_scores
from saywhich.judging.judge_sources import JudgeSource
from saywhich.judging.judgement import JudgedRow, Judgement
from saywhich.judging.retrieval_scores import CaptionRanks
from saywhich.reward_hacking.gain_shares import summarise_hacking
from saywhich.reward_hacking.word_drift import find_grown_ngrams

BEFORE = {"a": "green", "b": "green", "c": "red"}
AFTER = {"a": "green zap red", "b": "green", "c": "blue zap red and green"}
# ranks of the photos a, b, c: 3 1 2 before by both judges; 1 1 1 after by SuffixJudge, and 3 1 3 after by PrefixJudge


class PrefixJudge(ColourJudge):
    """A judge that encodes only the part of a caption before its first word "zap"."""

    digest, part = "prefix", 0

    def encode_texts(self, texts):
        return super().encode_texts([text.split(" zap ")[self.part] for text in texts])


class SuffixJudge(PrefixJudge):
    """A judge that encodes only the part of a caption after its last word "zap"."""

    digest, part = "suffix", -1


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paint_colours(tmp_path / "photos")
    kinds = {"prefix": PrefixJudge, "suffix": SuffixJudge}
    source = JudgeSource(lambda name: name in kinds, lambda name: kinds[name](name))
    monkeypatch.setattr(judge_sources, "JUDGES", (source, *judge_sources.JUDGES))
    monkeypatch.chdir(tmp_path)
    for name, captions in {"before": BEFORE, "after": AFTER}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(captions))
    return tmp_path


def test_gains_and_captions_by_hand():
    found = saywhich.hacked(BEFORE, AFTER, "photos", reward="suffix", judges=["prefix"])
    assert found.gain("suffix", "R@1").gain == pytest.approx(200 / 3)
    assert found.gain("prefix", "R@1").gain == 0
    drawn = draw_resamples(3) @ np.array([100.0, 0, 100]) / 3
    assert found.gain("suffix", "R@1").interval == pytest.approx(tuple(np.percentile(drawn, (2.5, 97.5))))
    assert found.gain("prefix", "R@1").share is None  # the interval of the reward's gain reaches 0
    (part,) = found.disagreements
    assert (part.photo.name, part.before, part.after) == ("c.png", BEFORE["c"], AFTER["c"])
    assert (part.reward_ranks, part.judge_ranks) == ((2, 1), (2, 3))


def test_shares_of_the_rewards_gain():
    hits = {"reward": np.arange(40) < 30, "judge": np.arange(40) < 12}
    ranks = {judge: np.where(hit, 1, 2) for judge, hit in hits.items()}
    ranks["judge"][12:20] = 4
    scores = [
        {ScoreKey(judge, "R@1"): compute_ratio(100.0 * hit * after, np.ones(40)) for judge, hit in hits.items()}
        for after in (0, 1)
    ]
    none = np.zeros(40, int)
    rows = [
        JudgedRow(
            "",
            [["x"]] * 40,
            [],
            own,
            {judge: CaptionRanks(each, none, none) for judge, each in ranks_by_judge.items()},
            drawn,
        )
        for own, ranks_by_judge, drawn in zip(
            scores, ({judge: np.full(40, 2) for judge in hits}, ranks), resample_scores(scores, 40), strict=True
        )
    ]
    files = [Path(f"{n}.png") for n in range(40)]
    found = summarise_hacking(Judgement(files, rows, [], list(hits), torch.empty(40, 0), "", [], 1000))
    gain = found.gain("judge", "R@1")
    assert (gain.gain, gain.share) == (pytest.approx(30), pytest.approx(40))
    drawn = draw_resamples(40)
    expected = np.percentile(100 * (drawn @ hits["judge"]) / (drawn @ hits["reward"]), (2.5, 97.5))
    assert gain.share_interval == pytest.approx(tuple(expected))
    assert [int(part.photo.stem) for part in found.disagreements] == list(range(12, 20))


def test_ngrams_that_grew():
    found = find_grown_ngrams(
        ["a red cat", "a dog", "a dog", "a dog"], ["a red cat", "a red dog", "A red dog.", "red red"]
    )
    assert [(" ".join(each.words), each.before, each.after) for each in found] == [
        ("red", 25, 100),
        ("a red", 25, 75),
        ("red dog", 0, 50),
        ("red red", 0, 25),
        ("a red dog", 0, 50),
    ]


def test_a_reward_among_the_judges_is_refused():
    with pytest.raises(UserError, match="--judge: give judges other than the reward prefix"):
        saywhich.hacked(BEFORE, AFTER, "photos", reward="prefix", judges=["prefix"])
    Path("colours").mkdir()
    for judges in (["./colours/"], []):
        with pytest.raises(UserError, match="--judge: give judges other than the reward colours"):
            saywhich.hacked(BEFORE, AFTER, "photos", reward="colours", judges=judges)
    with pytest.raises(UserError, match="--reward nothing: no such judge; give "):
        saywhich.hacked(BEFORE, AFTER, "photos", reward="nothing", judges=["prefix"])


def test_the_command_prints_and_writes_the_same(folder, capsys):
    command = ["hacked", "before.json", "after.json", "--images", "photos", "--reward", "suffix", "--judge", "prefix"]
    assert main([*command, "--json", "out.json", "--html", "out.html"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "3 images; gains in points, 95 % intervals over images, in brackets"
    assert "R@1 by the reward suffix: +66.7 [+0.0, +100.0]" in printed
    assert "images whose rank improved by the reward and worsened by prefix, at most 12: 1" in printed
    record = json.loads((folder / "out.json").read_text())
    assert record["ngrams"][0] == {"words": "zap", "before": 0.0, "after": pytest.approx(200 / 3)}
    page = (folder / "out.html").read_text()
    assert page.count("<img") == page.count('src="data:image/jpeg;base64,') == len(record["disagreements"]) == 1
    assert "http:" not in page


def test_gains_are_paired_over_the_resamples():
    """By both judges, R@1 counts images 0 … 19 before and after, and images 20 … 29 only after.

    The interval of the gain depends only on the latter ten images.
    """
    before, after = np.arange(40) < 20, np.arange(40) < 30
    none, rows = np.zeros(40, int), []
    scores = [
        {ScoreKey(judge, "R@1"): compute_ratio(100.0 * hits, np.ones(40)) for judge in "ab"} for hits in (before, after)
    ]
    for own, drawn in zip(scores, resample_scores(scores, 40), strict=True):
        ranks = {judge: CaptionRanks(none + 1, none, none) for judge in "ab"}
        rows.append(JudgedRow("", [["x"]] * 40, [], own, ranks, drawn))
    found = summarise_hacking(
        Judgement([Path(f"{n}.png") for n in range(40)], rows, [], ["a", "b"], torch.empty(40, 0), "", [], 1000)
    )
    drawn = draw_resamples(40) @ (after & ~before) / 40 * 100
    assert found.gain("b", "R@1").interval == pytest.approx(tuple(np.percentile(drawn, (2.5, 97.5))))
