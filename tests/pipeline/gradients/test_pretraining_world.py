"""Pretraining in an enumerable world."""

import pytest
import torch

from pipeline.gradients.pretraining_world import pretrain_world
from pipeline.scores.discriminability import compute_similarities
from pipeline.types import Message, make_caption_mask


@pytest.mark.slow
def test_pretrained_captions_name_and_retrieve_the_images():
    world = pretrain_world(images=2, epochs=60, seed=1)
    assert world.batch.captions.tolist() == [[2, 0], [3, 0]]
    captions, p = world.captions(), world.log_probs().exp().detach()
    names = [(captions == word).any(1) for word in (2, 3)]
    for image in (0, 1):
        assert p[image, names[image]].sum() > 0.5
        assert p[image, names[1 - image]].sum() < 0.2
        assert p[image].max() < 0.9  # no caption has almost all of the probability
    message = Message(world.batch.captions, make_caption_mask(world.batch.captions), torch.arange(2), 1)
    cosines = compute_similarities(world.listener, message, world.batch)[0]
    assert cosines[0, 0] > cosines[0, 1]
    assert cosines[1, 1] > cosines[1, 0]
    assert all(weight.requires_grad for weight in world.weights)


def test_a_world_depends_on_its_seed_not_on_torchs_stream():
    first = pretrain_world(images=2, epochs=2, seed=3)
    state = torch.random.get_rng_state()
    torch.rand(3)
    second = pretrain_world(images=2, epochs=2, seed=3)
    torch.testing.assert_close(first.log_probs(), second.log_probs(), rtol=0, atol=0)
    assert not torch.equal(first.log_probs(), pretrain_world(images=2, epochs=2, seed=4).log_probs())
    torch.random.set_rng_state(state)
