from __future__ import annotations

import pytest
import torch

from pipeline.channels.words import Beam, Greedy
from pipeline.evaluation.generate import captions
from pipeline.models.unroll import speak

CPU = torch.device("cpu")


@pytest.mark.parametrize("channel", [Greedy(), Beam(3)], ids=repr)
def test_a_speaker_left_in_training_mode_speaks_without_dropout(toy, channel):
    speaker = toy.agents(dropout=0.5).speaker
    with_dropout = speak(speaker.train(), toy.batch(), channel, torch.Generator().manual_seed(0)).tokens
    expected = captions(speaker.eval(), [toy.batch()], channel, CPU).tokens
    assert torch.equal(captions(speaker.train(), [toy.batch()], channel, CPU).tokens, expected)
    assert not torch.equal(with_dropout, expected[:, : with_dropout.shape[1]]), "dropout would go unnoticed here"
