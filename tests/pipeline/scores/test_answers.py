"""Scores of a discriminator against their formulas, and what published code got wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_dialogs import batch, discriminator
from torch.nn import functional as F

from pipeline.estimators.rollouts import human
from pipeline.scores.answers import Chosen, Preferred, is_human
from pipeline.types import Message, caption_mask


def said(tokens: torch.Tensor, samples: int = 1) -> Message:
    return Message(tokens, caption_mask(tokens), torch.arange(len(tokens)) // samples, samples)


def products(model, given) -> torch.Tensor:
    """(N, O)"""
    answers = model.read(given.asked.answers)
    return (model.see(given) @ answers.T).gather(1, given.asked.options)


def test_eq_4_is_a_softmax_cross_entropy():
    given, model = batch(), discriminator().eval()
    scores, truth = products(model, given), given.asked.truth
    own = scores.gather(1, truth.unsqueeze(1))
    negatives = scores.scatter(1, truth.unsqueeze(1), -torch.inf)
    eq4 = torch.log1p((negatives - own).exp().sum(1))
    torch.testing.assert_close(-Chosen(model)(human(given), given), eq4)
    torch.testing.assert_close(eq4, F.cross_entropy(scores, truth, reduction="none"))


@pytest.mark.parametrize(("options", "others"), [(None, 0), (3, 0), (3, 5), (None, 4)])
def test_no_negative_is_the_human_answer(options, others):
    given, model = batch(), discriminator().eval()
    alone = replace(given.asked, options=given.asked.options.gather(1, given.asked.truth.unsqueeze(1)).expand(-1, 6))
    only_truths = replace(given, asked=replace(alone, truth=torch.zeros_like(given.asked.truth)))
    one = only_truths.asked.options[:1, :1]  # the same human answer everywhere
    asked = replace(only_truths.asked, options=one.expand_as(only_truths.asked.options))
    nothing_else = replace(only_truths, asked=asked)
    found = Chosen(model, options, others)(human(nothing_else), nothing_else)
    torch.testing.assert_close(found, torch.zeros(len(given)))  # nothing to be mistaken for


def test_other_humans_answers_are_negatives_too():
    given, model = batch(), discriminator().eval()
    torch.manual_seed(0)
    few, more = (Chosen(model, 1, others)(human(given), given).mean() for others in (0, 40))
    assert more < few


@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_scores_of_a_thousand_give_finite_losses_and_gradients(scale):
    given, model = batch(), discriminator().eval()
    model.see = lambda batch: scale * torch.ones(len(batch), 8)
    other = said(given.captions.roll(1, 0))
    for score, message in ((Chosen(model), human(given)), (Preferred(model), other), (Preferred(model, True), other)):
        value = score(message, given)
        assert value.isfinite().all()
        model.zero_grad()
        value.sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_one_pair_by_hand():
    given, model = batch(), discriminator().eval()
    other = given.captions.roll(1, 0)
    gain = ((model.read(other) - model.read(given.captions)) * model.see(given)).sum(1)
    torch.testing.assert_close(Preferred(model)(said(other), given), -torch.log1p((-gain).exp()))
    torch.testing.assert_close(
        Preferred(model)(human(given), given), torch.full((len(given),), -torch.log(torch.tensor(2.0)))
    )
    told = Preferred(model, reverse=True)(said(other), given)
    differs = (other != given.captions).any(1)
    torch.testing.assert_close(told, torch.where(differs, -torch.log1p(gain.exp()), 0.0))


def test_several_samples_are_of_their_own_question():
    given, model = batch(), discriminator().eval()
    one, two = given.captions.roll(1, 0), given.captions.roll(2, 0)
    both = said(torch.stack([one, two], 1).flatten(0, 1), samples=2)
    expected = torch.stack([Preferred(model)(said(tokens), given) for tokens in (one, two)], 1).flatten()
    torch.testing.assert_close(Preferred(model)(both, given), expected)


def test_an_adversary_is_one_more_candidate_unless_it_says_the_human_answer():
    given, model = batch(), discriminator().eval()
    plain = Chosen(model)(human(given), given)
    adverse = Chosen(model, adversary=True)
    torch.testing.assert_close(adverse(human(given), given), plain)
    other = said(given.captions.roll(1, 0))
    found, same = adverse(other, given), is_human(other, given)
    torch.testing.assert_close(found[same], plain[same])
    assert (found < plain)[~same].all()
    assert same.any()
    assert not same.all()


def test_shorter_answers_are_compared_by_their_words():
    given = batch()
    shorter = said(given.captions[:, :3])
    assert torch.equal(is_human(shorter, given), torch.ones(len(given), dtype=torch.bool))
    empty = said(torch.zeros(len(given), 1, dtype=torch.int64))
    assert torch.equal(is_human(empty, given), (given.captions == 0).all(1))


def test_norms_are_taken_off():
    given, model = batch(), discriminator().eval()
    encoding, answers = model.see(given), model.read(given.asked.answers)
    size = encoding.square().sum(1) + answers.square().sum(1).mean()
    torch.testing.assert_close(
        Chosen(model, norms=0.1)(human(given), given), Chosen(model)(human(given), given) - 0.1 * size
    )
