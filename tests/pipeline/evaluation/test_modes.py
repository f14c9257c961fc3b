"""Evaluations run their networks without dropout and without a graph; most of these networks are in training mode."""

import numpy as np
import pytest
import small_dialogs
import torch
from module_modes import record_modes

from pipeline.channels.hard import Greedy, Multinomial
from pipeline.dialog.evaluation.answer_ranking import compute_candidate_likelihoods, compute_discriminator_scores
from pipeline.evaluation.generate import generate_captions
from pipeline.evaluation.human_likelihood import compute_human_log_likelihood
from pipeline.evaluation.judges import JudgedCaptions, ListenerJudge, TextJudge

CPU = torch.device("cpu")


class HumanCaptions:
    """Prepared data with two human captions of every image."""

    def references(self, images: np.ndarray) -> np.ndarray:
        return np.ones((len(images), 2, 6), np.int32)


class TextEncoder(torch.nn.Module):
    """A text encoder with one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def encode_text(self, texts):
        return self.layer(torch.ones(len(texts), 3))

    def encode_image(self, pooled):
        return self.layer(pooled)


def _make_speaker(toy, decoder):
    return toy.agents(dropout=0.5, decoder=decoder).speaker.train()


def _make_judge(toy):
    return ListenerJudge(toy.agents().listener.train(), lambda rows: toy.pooled[rows], CPU)


def _compute_attention(speaker):
    return speaker.encoder.compute_attention_shares(small_dialogs.make_batch(), speaker.word)


EVALUATIONS = {
    "captions": lambda toy: generate_captions(_make_speaker(toy, "transformer"), [toy.batch()], Greedy(), CPU, 12),
    "drawn captions": lambda toy: generate_captions(
        _make_speaker(toy, "transformer"), [toy.batch()], Multinomial(2), CPU, 12
    ),
    "likelihood": lambda toy: compute_human_log_likelihood(
        _make_speaker(toy, "att2in"), [toy.batch()], HumanCaptions(), CPU
    ),
    "listener, images": lambda toy: _make_judge(toy).encode_image(torch.arange(8)),
    "text encoder": lambda toy: TextJudge(TextEncoder().train(), lambda rows: rows, CPU).encode_text(
        JudgedCaptions(None, ["a"])
    ),
    "candidates": lambda toy: compute_candidate_likelihoods(
        small_dialogs.make_generator(dropout=0.5).train(), small_dialogs.make_batch()
    ),
    "attention": lambda toy: _compute_attention(small_dialogs.make_generator(dropout=0.5).eval()),
    "discriminator": lambda toy: compute_discriminator_scores(
        small_dialogs.make_discriminator(dropout=0.5).train(), small_dialogs.make_batch()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EVALUATIONS)
def test_networks_run_without_dropout_and_without_a_graph(toy, name):
    with record_modes() as modes:
        EVALUATIONS[name](toy)
    assert modes, "no module ran"
    assert set(modes) == {(False, False)}


def test_caption_embeddings_have_no_graph_and_no_dropout(toy):
    judge = _make_judge(toy)
    assert not judge.encode_text(JudgedCaptions(toy.batch().captions, ())).requires_grad
    assert not judge.listener.training
