"""Scores of a discriminator against their formulas."""

from dataclasses import replace

import pytest
import torch
from expected_losses import assert_same_gradients
from small_dialogs import make_batch, make_discriminator
from torch.nn import functional as F

from pipeline.dialog.composition.answer_preference import NPairScore, PairwiseScore, is_human
from pipeline.estimators.rollouts import StepRollouts, make_human_message
from pipeline.types import Message, make_caption_mask


def make_message(tokens: torch.Tensor, samples: int = 1) -> Message:
    return Message(tokens, make_caption_mask(tokens), torch.arange(len(tokens)) // samples, samples)


def score_candidates(model, batch) -> torch.Tensor:
    """Return (N, O): the inner products of question encodings and encodings of candidate answers."""
    answers = model.encode_answers(batch.questions.answers)
    return (model.encode_question(batch) @ answers.T).gather(1, batch.questions.options)


def test_eq_4_is_a_softmax_cross_entropy():
    batch, model = make_batch(), make_discriminator().eval()
    scores, truth = score_candidates(model, batch), batch.questions.truth
    own = scores.gather(1, truth.unsqueeze(1))
    negatives = scores.scatter(1, truth.unsqueeze(1), -torch.inf)
    eq4 = torch.log1p((negatives - own).exp().sum(1))
    torch.testing.assert_close(-NPairScore(model)(make_human_message(batch), batch), eq4)
    torch.testing.assert_close(eq4, F.cross_entropy(scores, truth, reduction="none"))


@pytest.mark.parametrize(("options", "batch_negatives"), [(None, 0), (3, 0), (3, 5), (None, 4)])
def test_no_negative_is_the_human_answer(options, batch_negatives):
    batch, model = make_batch(), make_discriminator().eval()
    same = batch.questions.options[:1, :1].expand_as(batch.questions.options)  # the same human answer everywhere
    questions = replace(batch.questions, options=same, truth=torch.zeros_like(batch.questions.truth))
    batch = replace(batch, questions=questions)
    found = NPairScore(model, options, batch_negatives)(make_human_message(batch), batch)
    torch.testing.assert_close(found, torch.zeros(len(batch)))  # no candidate differs from the human answer


class AnswerTableDiscriminator(torch.nn.Module):
    """Discriminator that ignores the question and scores answer u of the table with `weight[u]`.

    With equal weights, the score of the human answer among n candidates is −log n.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = weight

    def encode_question(self, batch):
        return torch.ones(len(batch), 1, dtype=self.weight.dtype)

    def encode_answers(self, answers):
        return self.weight.unsqueeze(1)


def compute_human_probability(model, batch, seed: int, step: int = 0, **options) -> torch.Tensor:
    """Return (N,): the probability of the human answer among the candidates of this seed and step."""
    rollouts = StepRollouts(None, replace(batch, step=step), seed)
    score = NPairScore(model, **options).bind_batch(rollouts)
    return score(make_human_message(batch), replace(batch, step=step)).exp()


@pytest.mark.parametrize(("options", "batch_negatives"), [(1, 0), (3, 0), (5, 0), (0, 2), (3, 4), (None, 4), (None, 0)])
def test_a_question_has_exactly_the_requested_number_of_negatives(options, batch_negatives):
    """Five of the six options are negatives, and each question has at least four negatives from other questions."""
    batch = make_batch()
    truth = batch.questions.options.gather(1, batch.questions.truth.unsqueeze(1))
    assert ((truth != truth.T).sum(1) >= 4).all()
    expected = torch.full((len(batch),), 1.0 / (1 + (5 if options is None else options) + batch_negatives))
    for seed in range(5):
        found = compute_human_probability(
            AnswerTableDiscriminator(torch.zeros(len(batch.questions.answers))),
            batch,
            seed,
            sampled_options=options,
            batch_negatives=batch_negatives,
        )
        torch.testing.assert_close(found, expected)


def test_all_negatives_are_used_if_there_are_fewer_than_requested():
    batch = make_batch()
    weight = torch.zeros(len(batch.questions.answers))
    torch.testing.assert_close(
        compute_human_probability(AnswerTableDiscriminator(weight), batch, 1, sampled_options=50),
        torch.full((len(batch),), 1 / 6),
    )
    truth = batch.questions.options.gather(1, batch.questions.truth.unsqueeze(1))
    count = (truth != truth.T).sum(1)
    torch.testing.assert_close(
        compute_human_probability(AnswerTableDiscriminator(weight), batch, 1, sampled_options=0, batch_negatives=50),
        1.0 / (1 + count),
    )


def test_negatives_are_drawn_uniformly_and_none_twice():
    """Answer u scores log 10^u, so digit u of the sum of the exponentiated scores counts answer u's occurrences."""
    batch = make_batch()
    model = AnswerTableDiscriminator(
        torch.arange(len(batch.questions.answers)).double() * torch.tensor(10.0).double().log()
    )
    options, truth = batch.questions.options, batch.questions.options.gather(1, batch.questions.truth.unsqueeze(1))
    times = torch.zeros(len(batch), len(batch.questions.answers))
    rounds = 300
    for seed in range(rounds):
        total = (
            (10.0 ** truth[:, 0].double() / compute_human_probability(model, batch, seed, sampled_options=2))
            .round()
            .long()
        )
        digits = (total.unsqueeze(1) // 10 ** torch.arange(len(batch.questions.answers))) % 10
        assert digits.max() == 1
        assert (digits.sum(1) == 3).all()
        times += digits
    times = times.gather(1, options)
    assert (times.gather(1, batch.questions.truth.unsqueeze(1)) == rounds).all()
    negatives = times.scatter(1, batch.questions.truth.unsqueeze(1), rounds * 0.4)
    assert (negatives / rounds - 2 / 5).abs().max() < 0.12  # four standard errors


def test_which_negatives_are_drawn_depends_on_the_seed_and_the_step_alone():
    batch, model = make_batch(), make_discriminator().eval()

    def draw_probabilities(seed: int, step: int) -> torch.Tensor:
        torch.manual_seed(seed + 7 * step)
        return compute_human_probability(model, batch, seed, step, sampled_options=2, batch_negatives=3)

    assert torch.equal(draw_probabilities(1, 0), draw_probabilities(1, 0))
    first = draw_probabilities(1, 0)
    torch.manual_seed(99)
    assert torch.equal(first, compute_human_probability(model, batch, 1, 0, sampled_options=2, batch_negatives=3))
    for other in (draw_probabilities(2, 0), draw_probabilities(1, 1)):
        assert (other != first).float().mean() > 0.5


def test_every_score_has_the_gradient_of_its_formula_on_the_whole_discriminator():
    """The scores of Eq. 4, Eq. 5, GAN1 and GAN2 are written out; every encoding passes a gradient."""
    batch, model = make_batch(), make_discriminator()
    other = make_message(batch.captions.roll(1, 0))
    encoding, text_vectors, own = (
        model.encode_question(batch),
        model.encode_text(other),
        model.encode_answers(batch.captions),
    )
    gain = (encoding * text_vectors).sum(1) - (encoding * own).sum(1)
    differs = (other.tokens != batch.captions).any(1)
    scores, truth = score_candidates(model, batch), batch.questions.truth
    generated = (encoding * text_vectors).sum(1).masked_fill(~differs, -torch.inf)
    with_generated = torch.cat([scores, generated.unsqueeze(1)], 1)
    for score, expected in (
        (PairwiseScore(model), -torch.log1p((-gain).exp())),
        (PairwiseScore(model, norm_penalty=0.3), -torch.log1p((-gain).exp()) - 0.3 * text_vectors.square().sum(1)),
        (PairwiseScore(model, reverse=True), -torch.log1p(gain.exp()) * differs),
        (NPairScore(model), -F.cross_entropy(scores, truth, reduction="none")),
        (NPairScore(model, adversary=True), -F.cross_entropy(with_generated, truth, reduction="none")),
    ):
        assert_same_gradients(score(other, batch).sum(), expected.sum(), model)


@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_scores_of_a_thousand_give_finite_losses_and_gradients(scale):
    batch, model = make_batch(), make_discriminator().eval()
    model.encode_question = lambda batch: scale * torch.ones(len(batch), 8)
    other = make_message(batch.captions.roll(1, 0))
    for score, message in (
        (NPairScore(model), make_human_message(batch)),
        (PairwiseScore(model), other),
        (PairwiseScore(model, True), other),
    ):
        value = score(message, batch)
        assert value.isfinite().all()
        model.zero_grad()
        value.sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_one_pair_by_hand():
    batch, model = make_batch(), make_discriminator().eval()
    other = batch.captions.roll(1, 0)
    gain = ((model.encode_answers(other) - model.encode_answers(batch.captions)) * model.encode_question(batch)).sum(1)
    torch.testing.assert_close(PairwiseScore(model)(make_message(other), batch), -torch.log1p((-gain).exp()))
    torch.testing.assert_close(
        PairwiseScore(model)(make_human_message(batch), batch), torch.full((len(batch),), -torch.log(torch.tensor(2.0)))
    )
    reverse = PairwiseScore(model, reverse=True)(make_message(other), batch)
    differs = (other != batch.captions).any(1)
    torch.testing.assert_close(reverse, torch.where(differs, -torch.log1p(gain.exp()), 0.0))


def test_several_samples_belong_to_their_question():
    batch, model = make_batch(), make_discriminator().eval()
    one, two = batch.captions.roll(1, 0), batch.captions.roll(2, 0)
    both = make_message(torch.stack([one, two], 1).flatten(0, 1), samples=2)
    expected = torch.stack([PairwiseScore(model)(make_message(tokens), batch) for tokens in (one, two)], 1).flatten()
    torch.testing.assert_close(PairwiseScore(model)(both, batch), expected)


def test_an_adversary_is_one_more_candidate_unless_it_equals_the_human_answer():
    batch, model = make_batch(), make_discriminator().eval()
    plain = NPairScore(model)(make_human_message(batch), batch)
    with_adversary = NPairScore(model, adversary=True)
    torch.testing.assert_close(with_adversary(make_human_message(batch), batch), plain)
    other = make_message(batch.captions.roll(1, 0))
    found, same = with_adversary(other, batch), is_human(other, batch)
    torch.testing.assert_close(found[same], plain[same])
    assert (found < plain)[~same].all()
    assert same.any()
    assert not same.all()


def test_shorter_answers_are_compared_by_their_words():
    batch = make_batch()
    shorter = make_message(batch.captions[:, :3])
    assert torch.equal(is_human(shorter, batch), torch.ones(len(batch), dtype=torch.bool))
    empty = make_message(torch.zeros(len(batch), 1, dtype=torch.int64))
    assert torch.equal(is_human(empty, batch), (batch.captions == 0).all(1))


def test_norms_are_subtracted():
    batch, model = make_batch(), make_discriminator().eval()
    encoding, answers = model.encode_question(batch), model.encode_answers(batch.questions.answers)
    size = encoding.square().sum(1) + answers.square().sum(1).mean()
    torch.testing.assert_close(
        NPairScore(model, norm_penalty=0.1)(make_human_message(batch), batch),
        NPairScore(model)(make_human_message(batch), batch) - 0.1 * size,
    )
