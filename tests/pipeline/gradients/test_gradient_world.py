"""The exact gradient against gradients by hand."""

import pytest
import torch
from linear_score import LinearScore

from pipeline.gradients.gradient_world import draw_world
from pipeline.scores.discriminability import Hinge, InfoNCE
from pipeline.types import Message, make_caption_mask


def test_every_caption_occurs_once_and_probabilities_sum_to_one():
    world = draw_world(images=2, vocabulary=3, max_words=3, seed=0)
    captions = [tuple(caption) for caption in world.captions().tolist()]
    assert len(set(captions)) == len(captions) == 1 + 3 + 9 + 27
    torch.testing.assert_close(world.log_probs().exp().sum(1), torch.ones(2, dtype=torch.float64))
    assert len(world.outcomes()) == 40**2


def test_the_gradient_of_one_word_by_hand():
    """With two words and EOS, ∂/∂bias of Σ p r is p · (r − r̄), where p is the softmax of three logits."""
    world, score = draw_world(images=1, vocabulary=2, max_words=1, seed=0), LinearScore(1, 2, 1)
    p = world.log_probs().exp()[0].detach()
    r = score.table[0]
    found = world.exact_gradient(score)
    end = 0
    for name, weight in world.speaker.named_parameters():
        begin, end = end, end + weight.numel()
        if name == "logit.bias":
            torch.testing.assert_close(found[begin:end], p * (r - (p * r).sum()))
            assert found[begin:end].abs().max() > 0.01
            break
    else:
        pytest.fail("no logit.bias")


@pytest.mark.parametrize("score", ["linear", "hinge", "infonce"])
def test_the_exact_gradient_is_the_slope_of_the_expected_score(score):
    world = draw_world(images=2, vocabulary=2, max_words=2, seed=1)
    with torch.no_grad():
        world.listener.word.weight *= 20  # with nearly equal embeddings of words, the scores would hardly differ
    score = {"linear": LinearScore(2, 2, 2), "hinge": Hinge(world.listener, 1.0), "infonce": InfoNCE(world.listener)}[
        score
    ]
    gradient, step = world.exact_gradient(score), 1e-5

    def compute_expected_score() -> float:
        p, captions, total = world.log_probs().exp().detach(), world.captions(), 0.0
        for first, second in world.outcomes().tolist():
            pair = captions[[first, second]]
            value = score(Message(pair, make_caption_mask(pair), torch.arange(2), 1), world.batch).mean()
            total += float(p[0, first] * p[1, second] * value.detach())
        return total

    direction = torch.randn(len(gradient), dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    direction /= direction.norm()

    def move(distance: float) -> None:
        with torch.no_grad():
            for weight, part in zip(world.weights, direction.split([w.numel() for w in world.weights]), strict=True):
                weight += distance * part.view_as(weight)

    move(step)
    above = compute_expected_score()
    move(-2 * step)
    below = compute_expected_score()
    move(step)
    slope = (above - below) / (2 * step)
    assert slope == pytest.approx(float(gradient @ direction), rel=1e-4, abs=1e-9)
    assert abs(slope) > 1e-6


def test_the_linear_score_of_tokens_is_the_tables_value():
    world, score = draw_world(images=2, vocabulary=3, max_words=2, seed=0), LinearScore(2, 3, 2, level=5)
    captions = torch.tensor([[2, 3], [1, 0]])
    message = Message(captions, make_caption_mask(captions), torch.arange(2), 1)
    assert score(message, world.batch).tolist() == [score.table[0, 2, 3], score.table[1, 1, 0]]
    short = Message(captions[1:, :1], torch.ones(1, 1, dtype=torch.bool), torch.tensor([1]), 1)
    assert score(short, world.batch).tolist() == [score.table[1, 1, 0]]
    assert 3 < score.table.mean() < 7
