import pytest
import torch

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.evaluation.generate import generate_captions
from pipeline.models.guided import GuidedDecoder
from pipeline.models.inference import optimise_for_decoding
from pipeline.models.unroll import generate

CPU, UNK = torch.device("cpu"), 12
CHANNELS = [Greedy(), Beam(3), Beam(3, 3), Multinomial(3, requires_grad=False)]


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_a_speaker_in_training_mode_generates_without_dropout(toy, decoder, channel):
    speaker = toy.agents(dropout=0.5, decoder=decoder).speaker
    with_dropout = generate(speaker.train(), toy.batch(), channel, torch.Generator().manual_seed(0)).tokens
    expected = generate_captions(speaker.eval(), [toy.batch()], channel, CPU, UNK).tokens
    assert torch.equal(generate_captions(speaker.train(), [toy.batch()], channel, CPU, UNK).tokens, expected)
    assert expected.shape == (8, channel.samples, 6)
    steps = with_dropout.shape[1]
    assert not torch.equal(with_dropout, expected[..., :steps].flatten(0, 1)), "expected other captions with dropout"


@pytest.mark.parametrize("guided", [False, True])
@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_unk_is_never_generated(toy, decoder, channel, guided):
    """Guidance weights logits with numbers of both signs, and −inf among the logits would give NaN."""
    speaker = toy.agents(decoder=decoder).speaker.eval()
    speaker.add_null_image()
    with torch.no_grad():
        speaker.logit.bias[UNK] += 5
    speaker = GuidedDecoder(speaker, 2.0) if guided else speaker
    with_unk = generate_captions(speaker, [toy.batch()], channel, CPU, -1).tokens
    assert (with_unk == UNK).float().mean() > 0.5
    tokens = generate_captions(speaker, [toy.batch()], channel, CPU, UNK).tokens
    assert tokens.shape == with_unk.shape
    assert not (tokens == UNK).any()
    assert tokens.any()


def test_masking_an_impossible_unk_changes_no_token(toy):
    """A speaker for which UNK has probability 0 generates the same tokens with and without masking."""
    speaker = toy.agents().speaker.eval()
    with torch.no_grad():
        speaker.logit.bias[UNK] = -torch.inf
    for channel in CHANNELS:
        unmasked, masked = (generate_captions(speaker, [toy.batch()], channel, CPU, unk).tokens for unk in (-1, UNK))
        assert torch.equal(unmasked, masked)


def test_samples_depend_on_the_batch_number_and_images_keep_their_order(toy):
    speaker, channel = toy.agents().speaker, Multinomial(3, requires_grad=False)
    found = generate_captions(speaker, [toy.batch(5), toy.batch(6)], channel, CPU, -1)
    separate = [generate_captions(speaker, [toy.batch(step)], channel, CPU, -1).tokens for step in (5, 6)]
    assert torch.equal(found.tokens, torch.cat(separate))
    assert not torch.equal(*separate)
    assert found.images.tolist() == 2 * list(range(8))
    assert torch.equal(found.pooled, torch.cat([toy.pooled, toy.pooled]))
    generated = generate(speaker.eval(), toy.batch(5), channel, torch.Generator().manual_seed(5)).tokens
    assert torch.equal(separate[0].flatten(0, 1)[:, : generated.shape[1]], generated)
    assert not separate[0].flatten(0, 1)[:, generated.shape[1] :].any()


def test_matrix_products_use_the_requested_precision(toy):
    speaker, channel = toy.agents().speaker.eval(), Multinomial(300, requires_grad=False)
    exact, rounded = (
        generate_captions(speaker, [toy.batch()], channel, CPU, -1, dtype) for dtype in (None, torch.bfloat16)
    )
    generated = generate(
        optimise_for_decoding(speaker, torch.bfloat16), toy.batch(), channel, torch.Generator().manual_seed(0)
    ).tokens
    assert torch.equal(rounded.tokens.flatten(0, 1)[:, : generated.shape[1]], generated)
    share = (exact.tokens != rounded.tokens).any(2).float().mean()
    assert 0 < share < 0.2
