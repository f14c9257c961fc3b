"""Scores by a visual-dialog discriminator: inner products of answer and question encodings, and contrasts of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.dialog.data.dialog_questions import get_questions
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.protocols import Rollouts, Score
from pipeline.random import BatchRandom
from pipeline.types import Batch, Message


@dataclass(frozen=True)
class NPairScore:
    """Log-probability of the human answer among candidates, by a softmax over the discriminator's scores.

    The score equals minus Eq. 4 of Lu et al. 2017, log(1 + Σ exp(negative − human)). The negatives are all other
    options, or `sampled_options` of them (D-NP), and `batch_negatives` human answers to other questions of this rank's
    part of the batch. With `adversary`, the message's answers are further negatives (GAN2). No negative equals the
    human answer. Negatives are drawn uniformly without replacement; if there are too few candidates, all are used. The
    draw depends on the seed and the step (`bind_batch`), and for `batch_negatives` also on the number of ranks.
    `norm_penalty` is the weight of a penalty: the squared length of the question's encoding plus the mean squared
    length of the rank's distinct answer encodings.
    """

    discriminator: Discriminator
    sampled_options: int | None = None
    batch_negatives: int = 0
    adversary: bool = False
    norm_penalty: float = 0.0
    batch_random: BatchRandom | None = None  # random numbers of the draws; None: torch's default generator
    differentiable = True

    def bind_batch(self, rollouts: Rollouts) -> Score:
        """Return the score with the random numbers of the step of `rollouts`."""
        return replace(self, batch_random=rollouts.random("negatives"))

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        rounds, encoding = get_questions(batch), self.discriminator.encode_question(batch)  # (N, H)
        answers = self.discriminator.encode_answers(rounds.answers)  # (U, H)
        human_index = rounds.options.gather(1, rounds.truth.unsqueeze(1))  # (N, 1)
        batch_random = BatchRandom(batch, None) if self.batch_random is None else self.batch_random
        options = rounds.options
        if self.sampled_options is not None:
            options = _draw_negatives(options, human_index, self.sampled_options, batch_random)
        batch_answers = human_index.T.expand(len(human_index), -1)  # (N, N): human answers of the batch
        batch_negatives = _draw_negatives(batch_answers, human_index, self.batch_negatives, batch_random)
        negatives = torch.cat([options, batch_negatives], 1)
        products = encoding @ answers.T  # (N, U)
        scores = products.gather(1, negatives).masked_fill(negatives == human_index, -torch.inf)
        human_scores = products.gather(1, human_index)
        if self.adversary:
            generated = (encoding[message.images] * self.discriminator.encode_text(message)).sum(1)
            generated = generated.masked_fill(is_human(message, batch), -torch.inf)
            scores = torch.cat([scores, generated.view(len(batch), -1)], 1)
        penalty = (
            self.norm_penalty * (encoding.square().sum(1) + answers.square().sum(1).mean())
            if self.norm_penalty
            else 0.0
        )
        log_probs = torch.cat([human_scores, scores], 1).log_softmax(1)[:, 0] - penalty
        return log_probs[message.images]


def _draw_negatives(answers: Tensor, human: Tensor, count: int, batch_random: BatchRandom) -> Tensor:
    """Draw min(`count`, M) answers from each row of `answers` (N, M), uniformly without replacement.

    The human answer `human` (N, 1) is drawn only where a row has too few other answers.
    """
    if not count:
        return answers[:, :0]
    other = answers != human
    order = batch_random.rand_like(other.float()).masked_fill(~other, -1.0)
    return answers.gather(1, order.topk(min(count, answers.shape[1]), 1).indices)


@dataclass(frozen=True)
class PairwiseScore:
    """Pairwise preference log σ(s(answer) − s(human answer)): minus the loss of one pair, Eq. 5 of Lu et al. 2017.

    `reverse` swaps the two answers, for the training of the discriminator (GAN1). Equal answers score 0 with `reverse`,
    and −log 2 without it. The paper's −L_G, which this score replaces, has no upper bound. `norm_penalty` is the weight
    of a penalty on the squared length of the answer's encoding; it has no effect with `reverse`.
    """

    discriminator: Discriminator
    reverse: bool = False
    norm_penalty: float = 0.0
    differentiable = True

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        encoding = self.discriminator.encode_question(batch)[message.images]
        answers = self.discriminator.encode_text(message)
        human = self.discriminator.encode_answers(batch.captions)[message.images]
        gain = (encoding * answers).sum(1) - (encoding * human).sum(1)
        if self.reverse:
            return F.logsigmoid(-gain) * ~is_human(message, batch)
        return F.logsigmoid(gain) - (self.norm_penalty * answers.square().sum(1) if self.norm_penalty else 0.0)


def is_human(message: Message, batch: Batch) -> Tensor:
    """Return a mask (N,) bool of the answers that equal the human answer."""
    generated, human = message.tokens, batch.captions[message.images]
    steps = max(generated.shape[1], human.shape[1])
    generated, human = (F.pad(tokens, (0, steps - tokens.shape[1])) for tokens in (generated, human))
    return (generated == human).all(1)
