"""The transformer equals torch's own layers, and its cache holds the regions' keys and values once per image."""

from dataclasses import replace

import torch
from torch import nn

from pipeline.models.decoder import RolloutDropout
from pipeline.models.transformer import Transformer, TransformerLayer
from pipeline.random import BatchRandom

HIDDEN, HEADS = 8, 2


def copy_attention(linears: list[nn.Linear], out: nn.Linear, attention: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.cat([linear.weight for linear in linears]))
        attention.in_proj_bias.copy_(torch.cat([linear.bias for linear in linears]))
        attention.out_proj.load_state_dict(out.state_dict())


def make_torch_layer(layer: TransformerLayer, regions: bool) -> nn.Module:
    """Return torch's layer with the weights of `layer`."""
    kind = nn.TransformerDecoderLayer if regions else nn.TransformerEncoderLayer
    torch_layer = kind(HIDDEN, HEADS, 2 * HIDDEN, dropout=0.0, batch_first=True, norm_first=True).eval()
    copy_attention([layer.self_attention], layer.self_attention_out, torch_layer.self_attn)
    norms = [layer.self_attention_norm, layer.feed_forward_norm]
    if regions:
        copy_attention([layer.query, layer.memory], layer.region_out, torch_layer.multihead_attn)
        norms.insert(1, layer.region_norm)
    for number, norm in enumerate(norms, 1):
        nn.init.normal_(norm.weight)
        getattr(torch_layer, f"norm{number}").load_state_dict(norm.state_dict())
    torch_layer.linear1.load_state_dict(layer.inner.state_dict())
    torch_layer.linear2.load_state_dict(layer.outer.state_dict())
    return torch_layer


def test_encoder_and_decoder_equal_torchs_layers(toy):
    speaker, batch = toy.agents(decoder="transformer").speaker.eval(), toy.batch()
    assert isinstance(speaker, Transformer)
    encoder = [make_torch_layer(layer, regions=False) for layer in speaker.encoder]
    decoder = [make_torch_layer(layer, regions=True) for layer in speaker.decoder]
    x, masked = torch.relu(speaker.region(batch.regions)), ~batch.region_mask
    for layer in encoder:
        x = layer(x, src_key_padding_mask=masked)
    memory = speaker.encoder_norm(x)
    torch.testing.assert_close(speaker.encode_image(batch)[batch.region_mask], memory[batch.region_mask])
    steps = batch.captions.shape[1]
    words = torch.cat([torch.full_like(batch.captions[:, :1], speaker.vocabulary + 1), batch.captions[:, :-1]], 1)
    y = speaker.word(words) + speaker.position.weight[:steps]
    for layer in decoder:
        causal = nn.Transformer.generate_square_subsequent_mask(steps)
        y = layer(y, memory, tgt_mask=causal, memory_key_padding_mask=masked, tgt_is_causal=True)
    expected = speaker.decoder_norm(y).flatten(0, 1)
    hidden, positions = speaker.teacher_force(
        batch, speaker.encode_image(batch), RolloutDropout(0.0, BatchRandom(batch, None))
    )
    torch.testing.assert_close(hidden, expected[positions])
    assert 0 < len(positions) < len(expected)


def test_regions_are_kept_once_per_image_while_all_captions_of_an_image_are_kept(toy):
    speaker, batch = toy.agents(decoder="transformer").speaker.eval(), toy.batch()
    state = speaker.begin(batch, speaker.encode_image(batch), RolloutDropout(0.0, BatchRandom(batch, None)), 3)
    text_vectors = torch.randn(24, HIDDEN)
    expected, _ = speaker.step(text_vectors, state)
    assert len(state.region_memory[0]) == 8
    together = torch.tensor([3, 4, 5, 21, 22, 23])
    apart = torch.tensor([1, 3, 4, 23])
    for rows, copies in ((together, 2), (apart, 4)):
        some = speaker.select(state, rows)
        assert len(some.region_memory[0]) == copies
        torch.testing.assert_close(speaker.step(text_vectors[rows], some)[0], expected[rows])
    moved = torch.tensor([1, 1, 0, *range(3, 24)])
    assert speaker.select(state, moved, same_images=True).region_memory is state.region_memory


def test_images_without_regions_have_one_vector(toy):
    speaker, batch = toy.agents(decoder="transformer").speaker.eval(), toy.batch()
    speaker.add_null_image()
    without_regions = replace(batch, region_mask=torch.zeros_like(batch.region_mask))
    changed = replace(without_regions, regions=batch.regions + 1)
    image_vectors = speaker.encode_image(without_regions)[:, 0]
    torch.testing.assert_close(image_vectors, image_vectors[:1].expand_as(image_vectors))
    assert torch.equal(speaker.encode_image(changed)[:, 0], image_vectors)
