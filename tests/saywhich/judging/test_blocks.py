"""Judgements in small blocks and in one block have the same galleries, ranks, scores and intervals."""

from __future__ import annotations

import json

import pytest
import torch
from colour_judge import COLOURS, ColourJudge, write_example

import saywhich
from pipeline.analysis import bootstrap
from pipeline.metrics import retrieval
from saywhich.judging import photo_vectors, retrieval_scores, thumbnails

BLOCKS = {
    "scores of a ranking": (retrieval, "BLOCK_SCORES", 90),
    "counts of resamples": (bootstrap, "BLOCK_COUNTS", 130),
    "colours of near-duplicates": (thumbnails, "BLOCK", 1),
    "captions and references": (retrieval_scores, "PAIRS_AT_ONCE", 7),
    "captions encoded": (photo_vectors, "TEXT_BATCH", 3),
    "captions looked up": (photo_vectors, "LOOKUP_BATCH", 5),
}


def judge_example(folder, references):
    options = {"references": references, "judges": [ColourJudge()], "metrics": ()}
    return saywhich.judge(folder / "after.json", folder / "photos", **options)


def test_small_blocks_give_equal_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_example(tmp_path)
    content = json.loads((tmp_path / "after.json").read_text())
    references = {name: [text, f"a {COLOURS[number % 3]} thing"] for number, (name, text) in enumerate(content.items())}
    whole = judge_example(tmp_path, references)
    for module, name, size in BLOCKS.values():
        assert getattr(module, name) > 40
        monkeypatch.setattr(module, name, size)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    parts = judge_example(tmp_path, references)
    assert torch.equal(parts.galleries, whole.galleries)
    for one, other in zip((*whole.rows, *whole.baselines), (*parts.rows, *parts.baselines), strict=True):
        for kind, ranks in vars(one.ranks["colours"]).items():
            assert (ranks == getattr(other.ranks["colours"], kind)).all(), kind
        assert {key: each.value for key, each in one.scores.items()} == {
            key: each.value for key, each in other.scores.items()
        }
        for key in one.scores:  # blocks add the terms of a sum in another order
            expected = other.compute_interval(key)
            assert one.compute_interval(key) == (expected and pytest.approx(expected, rel=1e-12))
