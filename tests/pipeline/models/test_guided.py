from dataclasses import replace

import pytest
import torch

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.channels.straight_through import StraightThrough
from pipeline.models.guided import GuidedDecoder
from pipeline.models.unroll import generate, teacher_force

CHANNELS = [Greedy(), Multinomial(3), Beam(3), Beam(4, samples=2)]


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.fixture
def speaker(toy):
    """Return a speaker with a random null image and large logits, so that guidance changes captions."""
    agent = toy.agents(dropout=0.3).speaker.eval()
    agent.add_null_image()
    with torch.no_grad():
        agent.null.copy_(torch.randn(8, generator=rng()) * 3)
        agent.from_regions.weight *= 4
        agent.logit.weight *= 4
    return agent


@pytest.fixture
def batch(toy):
    return toy.batch()


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_gamma_1_is_the_speaker_itself_to_the_bit(speaker, batch, channel):
    expected, found = (
        generate(speaker, batch, channel, rng()),
        generate(GuidedDecoder(speaker, 1.0), batch, channel, rng()),
    )
    assert torch.equal(found.tokens, expected.tokens)
    if channel.requires_grad:
        assert torch.equal(found.log_probs, expected.log_probs)
    # the speaker's fast form multiplies fewer rows at once, which rounds differently
    torch.testing.assert_close(
        teacher_force(GuidedDecoder(speaker, 1.0), batch).log_probs, teacher_force(speaker, batch).log_probs
    )


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_gamma_0_is_the_speaker_of_the_null_image(speaker, batch, channel):
    without_regions = replace(batch, region_mask=torch.zeros_like(batch.region_mask))
    expected, found = (
        generate(speaker, without_regions, channel, rng()),
        generate(GuidedDecoder(speaker, 0.0), batch, channel, rng()),
    )
    assert torch.equal(found.tokens, expected.tokens)
    if isinstance(channel, Greedy):
        assert len(found.tokens.unique(dim=0)) == 1
        assert len(generate(speaker, batch, channel, rng()).tokens.unique(dim=0)) > 1


def test_an_image_without_regions_has_the_null_image_as_its_region(speaker, batch):
    """The values of its masked regions do not count, and an image with a region keeps its own regions."""
    batch.region_mask[2] = False
    expected = teacher_force(speaker, batch).log_probs
    other = replace(batch, regions=batch.regions.clone())
    other.regions[2] = 7.0
    assert torch.equal(teacher_force(speaker, other).log_probs, expected)
    assert not torch.equal(teacher_force(speaker, unmask_regions(batch)).log_probs[2], expected[2])
    with torch.no_grad():
        speaker.null += 1
    changed = (teacher_force(speaker, batch).log_probs != expected).any(1)
    assert changed.tolist() == [image == 2 for image in range(len(batch))]


def unmask_regions(batch):
    return replace(batch, region_mask=torch.ones_like(batch.region_mask))


def test_guided_log_probs_extrapolate_from_the_null_image_to_the_image(speaker, batch):
    """Up to a constant per image, log p of the first word is γ log p(image) − (γ − 1) log p(null image)."""
    without_regions = replace(batch, region_mask=torch.zeros_like(batch.region_mask))
    log_probs = {}
    for name, inputs in (("image", batch), ("null image", without_regions)):
        words = torch.arange(1, speaker.vocabulary + 1)
        log_probs[name] = torch.stack(
            [teacher_force(speaker, _set_first_word(inputs, int(word))).log_probs[:, 0] for word in words], 1
        )
    guided = GuidedDecoder(speaker, 2.5)
    found = torch.stack([teacher_force(guided, _set_first_word(batch, int(w))).log_probs[:, 0] for w in words], 1)
    expected = 2.5 * log_probs["image"] - 1.5 * log_probs["null image"]
    log_normaliser = found - expected  # one value per image
    torch.testing.assert_close(log_normaliser, log_normaliser[:, :1].expand_as(log_normaliser), atol=1e-4, rtol=1e-4)


def _set_first_word(batch, word):
    captions = torch.zeros_like(batch.captions)
    captions[:, 0] = word
    return replace(batch, captions=captions)


@pytest.mark.parametrize("channel", [Multinomial(), StraightThrough()], ids=repr)
def test_guided_captions_have_no_gradient(speaker, batch, channel):
    message = generate(GuidedDecoder(speaker, 2.0), batch, channel, rng())
    probabilities = message.log_probs if message.relaxed is None else message.relaxed.straight_through.probabilities
    assert not probabilities.requires_grad
