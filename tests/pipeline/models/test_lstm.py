"""The LSTM speaker without attention: its equations, and its mean over regions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import STEPS, WORDS

from pipeline.models.decoder import RolloutDropout
from pipeline.models.lstm import PooledLstm
from pipeline.models.unroll import teacher_force
from pipeline.random import BatchRandom


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def compute_log_probs(speaker, batch, word_dropout, state_dropout):
    """Return log-probabilities (B, T) in float64 by the LSTM's equations, one image and token at a time."""
    w = {name: value.detach().double().numpy() for name, value in speaker.state_dict().items()}
    found = np.zeros(batch.captions.shape)
    for image, caption in enumerate(batch.captions.tolist()):
        regions = batch.regions[image][batch.region_mask[image]].double().numpy()
        h = regions.mean(0) @ w["region.weight"].T + w["region.bias"]  # without an activation
        c, previous = h, WORDS + 1
        for t, word in enumerate(caption):
            x = w["word.weight"][previous] * word_dropout[image, t].numpy()
            gates = x @ w["lstm.weight_ih_l0"].T + w["lstm.bias_ih_l0"]
            gates = gates + h @ w["lstm.weight_hh_l0"].T + w["lstm.bias_hh_l0"]
            input_gate, forget_gate, candidate, output_gate = np.split(gates, 4)
            c = sigmoid(forget_gate) * c + sigmoid(input_gate) * np.tanh(candidate)
            h = sigmoid(output_gate) * np.tanh(c)
            logits = (h * state_dropout[image, t].numpy()) @ w["logit.weight"].T + w["logit.bias"]
            found[image, t] = logits[word] - np.log(np.exp(logits).sum())
            previous = word
            if not word:
                break
    return torch.from_numpy(found)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_teacher_forcing_follows_the_lstms_equations(toy, dropout):
    speaker, batch = toy.agents(dropout=dropout, decoder="lstm").speaker.double().train(), toy.batch()
    batch = replace(batch, regions=batch.regions.double())
    drop = RolloutDropout(dropout, BatchRandom(batch, torch.Generator().manual_seed(5)))
    size = batch.captions.numel()
    word_dropout = drop(torch.ones(len(batch), STEPS, 6, dtype=torch.float64))
    state_dropout = drop(torch.ones(size, 8, dtype=torch.float64), torch.arange(size), STEPS).view(len(batch), STEPS, 8)
    message = teacher_force(speaker, batch, torch.Generator().manual_seed(5))
    torch.testing.assert_close(message.log_probs, compute_log_probs(speaker, batch, word_dropout, state_dropout))
    assert bool((word_dropout == 0).any()) == (dropout > 0)


def test_an_image_is_the_mean_of_the_regions_that_it_has(toy):
    speaker, batch = toy.agents(decoder="lstm").speaker.eval(), toy.batch()
    mean = torch.stack([regions[mask].mean(0) for regions, mask in zip(batch.regions, batch.region_mask, strict=True)])
    pooled = replace(batch, regions=mean.unsqueeze(1), region_mask=torch.ones(len(batch), 1, dtype=torch.bool))
    torch.testing.assert_close(speaker.encode_image(pooled), speaker.encode_image(batch))
    assert not torch.allclose(
        speaker.encode_image(batch)[0, 0], speaker.region(batch.regions[0].mean(0))
    )  # a region of image 0 is masked
    state = speaker.begin(batch, speaker.encode_image(batch), RolloutDropout(0.0, BatchRandom(batch, None)), 2)
    assert torch.equal(state.h, state.c)
    assert torch.equal(state.h[0::2], state.h[1::2])


def test_an_image_without_regions_is_the_null_image(toy):
    speaker, batch = toy.agents(decoder="lstm").speaker.eval(), toy.batch()
    speaker.add_null_image()
    assert not speaker.null.any()  # its initial value is 0
    with torch.no_grad():
        speaker.null.copy_(torch.arange(8.0))
    batch.region_mask[2] = False
    image_vectors = speaker.encode_image(batch)
    assert image_vectors[2, 0].tolist() == list(range(8))
    torch.testing.assert_close(image_vectors[3, 0], speaker.region(batch.regions[3].mean(0)))
    rebuilt = PooledLstm(**speaker.arguments)
    rebuilt.load_state_dict(speaker.state_dict())
    assert torch.equal(rebuilt.encode_image(batch), image_vectors)


def test_an_image_with_some_of_its_regions_is_no_null_image(toy):
    speaker, batch = toy.agents(decoder="lstm").speaker.eval(), toy.batch()
    expected = speaker.encode_image(batch)
    assert not batch.region_mask.all()
    speaker.add_null_image()
    torch.testing.assert_close(speaker.encode_image(batch), expected)
