from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pipeline.channels.hard import Multinomial
from pipeline.errors import UserError
from pipeline.metrics import java
from pipeline.metrics.overlap import compute_bleu_per_caption, compute_rouge_l
from pipeline.metrics.registry import BY_NAME
from pipeline.metrics.text_rewards import TextScorer
from pipeline.models.unroll import generate
from pipeline.scores.naturalness import CiderScore
from pipeline.scores.rewards import MIXES, TextScore, mix_metrics


class FixedTextScorer:
    """Scorer with fixed values of METEOR and SPICE."""

    def score(self, metric, tokens, images):
        return images / 8 if metric.name == "METEOR" else torch.full((len(images),), 0.25)


@pytest.fixture
def generated_captions(toy):
    batch = toy.batch()
    message = generate(toy.agents().speaker, batch, Multinomial(3), torch.Generator().manual_seed(2))
    return message, batch


def test_bcmr_is_the_published_sum(toy, generated_captions):
    message, batch = generated_captions
    images = batch.images[message.images]
    both = toy.cider.pair_with_references(message.tokens, images)
    one, two, three, four = compute_bleu_per_caption(*both).float()
    expected = 0.5 * one + 0.5 * two + three + four + toy.cider(message.tokens, images) + 5 * images / 8
    score = mix_metrics("bcmr", toy.cider, FixedTextScorer())
    torch.testing.assert_close(score(message, batch), expected + 2 * compute_rouge_l(*both).float())
    assert not score.differentiable


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_metrics_of_text_have_the_precision_of_the_features(toy, generated_captions, dtype):
    message, batch = generated_captions
    texts = TextScorer(lambda row: " ".join(map(str, row)), lambda image: [])
    rows = zip(message.images.tolist(), message.tokens.tolist(), strict=True)
    keys = [("METEOR", image, " ".join(map(str, row))) for image, row in rows]
    texts._scores |= {key: n / 7 for n, key in enumerate(keys)}
    found = TextScore(BY_NAME["METEOR"], texts)(message, replace(batch, pooled=batch.pooled.to(dtype)))
    expected = torch.tensor([texts._scores[key] for key in keys], dtype=dtype)
    assert found.dtype == dtype
    assert torch.equal(found, expected)


def test_cider_alone_is_cider(toy):
    assert (
        mix_metrics("cider", toy.cider, None)
        == mix_metrics({"CIDEr": 1, "SPICE": 0}, toy.cider, None)
        == CiderScore(toy.cider)
    )


def test_spider_is_spice_and_cider(toy, generated_captions, monkeypatch):
    monkeypatch.setattr(java, "find_spice_jar", lambda: None)
    message, batch = generated_captions
    cider = CiderScore(toy.cider)(message, batch)
    torch.testing.assert_close(mix_metrics("spider", toy.cider, FixedTextScorer())(message, batch), cider + 0.25)
    assert MIXES["spider"] == {"SPICE": 1, "CIDEr": 1}


def test_spice_without_its_parser_is_refused_in_one_line(toy, monkeypatch):
    monkeypatch.setattr(java, "PARSER", ("absent.jar",))
    with pytest.raises(UserError, match=r"reward SPICE: SPICE needs absent\.jar"):
        mix_metrics("spider", toy.cider, FixedTextScorer())


def test_a_reward_without_weights_is_refused(toy):
    with pytest.raises(UserError, match="reward: no metric has a weight other than 0; set one"):
        mix_metrics({"METEOR": 0}, toy.cider, FixedTextScorer())
