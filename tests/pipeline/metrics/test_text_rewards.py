from __future__ import annotations

import gc

import pytest
import torch

from pipeline.errors import UserError
from pipeline.metrics import java, shared_meteor, text_rewards
from pipeline.metrics.language import LanguageScorer
from pipeline.metrics.registry import BY_NAME
from pipeline.metrics.text_rewards import TextScorer, check_text_metric

METEOR = BY_NAME["METEOR"]
WORDS = ("a", "dog", "runs", "cat", "sleeps")
HUMAN = [["a dog runs", "the dog is running"], ["a cat sleeps"]]
TOKENS = torch.tensor([[1, 2, 3, 0], [1, 4, 0, 0], [1, 2, 3, 0], [0, 0, 0, 0]])
IMAGES = torch.tensor([0, 1, 0, 1])


def decode(tokens) -> str:
    return " ".join(WORDS[token - 1] for token in tokens if token)


@pytest.fixture
def meteor_requests(monkeypatch) -> list[list[str]]:
    """Replace METEOR's score by a tenth of the text's length; return the list of requests."""
    requests: list[list[str]] = []

    class LengthScore:
        def score(self, captions, human):
            assert [list(texts) for texts in human] == [HUMAN["cat" in text or not text] for text in captions]
            requests.append(list(captions))
            return 0.0, [len(text) / 10 for text in captions]

        def close(self):
            requests.append(["closed"])

    monkeypatch.setattr(shared_meteor, "Meteor", lambda timeout: LengthScore())
    return requests


def test_each_different_caption_is_scored_once(meteor_requests):
    scorer = TextScorer(decode, HUMAN.__getitem__)
    found = scorer.score(METEOR, TOKENS, IMAGES)
    torch.testing.assert_close(found, torch.tensor([1.0, 0.5, 1.0, 0.0]).double())
    assert meteor_requests == [["a dog runs", "a cat", ""]]
    torch.testing.assert_close(scorer.score(METEOR, TOKENS[:2], IMAGES[:2]), found[:2])
    assert len(meteor_requests) == 1


def test_the_cache_of_scores_is_bounded(meteor_requests, monkeypatch):
    monkeypatch.setattr(text_rewards, "CACHED_CAPTIONS", 2)
    scorer = TextScorer(decode, HUMAN.__getitem__)
    for _ in range(2):
        scorer.score(METEOR, TOKENS, IMAGES)
    assert len(meteor_requests) == 2


def test_equal_captions_of_two_images_have_their_own_scores(monkeypatch):
    class ExactMatchScore:
        def score(self, captions, human):
            return 0.0, [float(text in texts) for text, texts in zip(captions, human, strict=True)]

        def close(self):
            pass

    monkeypatch.setattr(shared_meteor, "Meteor", lambda timeout: ExactMatchScore())
    scorer = TextScorer(decode, HUMAN.__getitem__)
    assert scorer.score(METEOR, TOKENS[[0, 0]], torch.tensor([0, 1])).tolist() == [1.0, 0.0]
    assert scorer.score(METEOR, TOKENS[[0, 0]], torch.tensor([1, 0])).tolist() == [0.0, 1.0]


def test_the_process_ends_with_its_owner(meteor_requests):
    scorer = TextScorer(decode, HUMAN.__getitem__)
    scorer.score(METEOR, TOKENS, IMAGES)
    del scorer
    gc.collect()
    assert meteor_requests[-1] == ["closed"]


@pytest.mark.slow
def test_meteor_equals_the_evaluations_meteor():
    scorer = TextScorer(decode, HUMAN.__getitem__)
    found = scorer.score(METEOR, TOKENS, IMAGES)
    captions = ["a dog runs", "a cat", "a dog runs", ""]
    with LanguageScorer(["METEOR"]) as evaluation:
        expected = evaluation.score(captions, [HUMAN[i] for i in (0, 1, 0, 1)]).per_caption["METEOR"]
    torch.testing.assert_close(found, torch.from_numpy(expected))
    assert found[0] > found[1] > found[3]


def test_a_metric_that_cannot_run_is_reported(meteor_requests, monkeypatch):
    monkeypatch.setattr(java, "PARSER", ("absent.jar",))
    with pytest.raises(UserError, match=r"reward SPICE: SPICE needs absent\.jar in pycocoevalcap; fetch with: python"):
        check_text_metric(BY_NAME["SPICE"])
    check_text_metric(METEOR)

    def raise_error(timeout):
        raise java.NotComputedError("no Java runs")

    monkeypatch.setattr(shared_meteor, "Meteor", raise_error)
    with pytest.raises(UserError, match="reward METEOR: no Java runs"):
        TextScorer(decode, HUMAN.__getitem__).score(METEOR, TOKENS, IMAGES)
