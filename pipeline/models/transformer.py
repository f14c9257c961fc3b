"""Transformer over regions: encoder and decoder of Vaswani et al. 2017, pre-norm, with learned positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.constructor_arguments import collect_constructor_arguments
from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.runtime import devices
from pipeline.types import Batch, make_caption_mask


@dataclass(frozen=True)
class TransformerState:
    """Decoder state of n captions, `group` consecutive captions of each of n / group images."""

    token_memory: tuple[Tensor, ...]  # per layer: keys and values of the tokens so far (n, t, 2H)
    region_memory: tuple[Tensor, ...]  # per layer: keys and values of the regions (n / group, R, 2H)
    mask: Tensor  # (n / group, R) bool: True for existing regions
    group: int
    rows: Tensor  # (n,): indices of these captions
    width: int  # captions per image at the beginning
    drop: RolloutDropout


class TransformerLayer(nn.Module):
    """Self-attention, optional attention to regions, and a feed-forward network with ReLU."""

    def __init__(self, hidden: int, heads: int, regions: bool) -> None:
        super().__init__()
        self.heads = heads
        self.self_attention_norm, self.feed_forward_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.self_attention, self.self_attention_out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        if regions:
            self.region_norm = nn.LayerNorm(hidden)
            self.query, self.memory = nn.Linear(hidden, hidden), nn.Linear(hidden, 2 * hidden)
            self.region_out = nn.Linear(hidden, hidden)
        self.inner, self.outer = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)

    def attend(self, query: Tensor, memory: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Attend with queries (n, q, H) to keys and values (n, k, 2H); `mask` broadcasts to (n, heads, q, k)."""
        key, value = memory.chunk(2, -1)
        query, key, value = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (query, key, value))
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        return attended.transpose(1, 2).flatten(2)

    def feed_forward(self, x: Tensor) -> Tensor:
        """Compute the residual of `x` (…, H) by the feed-forward network."""
        residual: Tensor = self.outer(F.relu(self.inner(self.feed_forward_norm(x))))
        return residual


class Transformer(Decoder[TransformerState]):
    """Transformer with cached keys and values.

    The captions of an image share one cache entry of its regions, until `select` keeps only some captions of an image.

    An encoder layer has 8H² weights, used once per region. A decoder layer has 12H²: 10H² are used once per token, and
    2H² once per region. Raises ValueError unless `heads` divides `hidden`.
    """

    def __init__(
        self,
        vocabulary: int,
        region_size: int,
        hidden: int = 512,
        encoder_layers: int = 1,
        layers: int = 2,
        heads: int = 8,
        dropout: float = 0.1,
        max_words: int = 16,
        null_image: bool = False,
    ) -> None:
        if hidden % heads:
            raise ValueError(f"hidden {hidden} is not a multiple of heads {heads}; change one of them")
        super().__init__(vocabulary, hidden, max_words, dropout, collect_constructor_arguments(locals()))
        self.region = nn.Linear(region_size, hidden)
        self.encoder = nn.ModuleList(TransformerLayer(hidden, heads, regions=False) for _ in range(encoder_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.word = nn.Embedding(vocabulary + 2, hidden)
        self.position = nn.Embedding(max_words, hidden)
        self.decoder = nn.ModuleList(TransformerLayer(hidden, heads, regions=True) for _ in range(layers))
        self.logit = nn.Linear(hidden, vocabulary + 1)
        for table in (self.word, self.position):
            nn.init.normal_(table.weight, std=hidden**-0.5)
        if null_image:
            self.add_null_image()

    def encode_image(self, batch: Batch) -> Tensor:
        """Encode the regions, (B, R, H), without dropout; a training step does this once for all its captions."""
        x, mask = super().encode_image(batch), self.mask(batch)[:, None, None]
        for layer in _list_layers(self.encoder):
            query, memory = layer.self_attention(layer.self_attention_norm(x)).split([self.hidden, 2 * self.hidden], -1)
            x = x + layer.self_attention_out(layer.attend(query, memory, mask))
            x = x + layer.feed_forward(x)
        normalised: Tensor = self.encoder_norm(x)
        return normalised

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> TransformerState:
        regions, rows = drop(encoded), torch.arange(len(batch) * width, device=batch.device)
        memory = tuple(layer.memory(regions) for layer in _list_layers(self.decoder))
        tokens = tuple(encoded.new_zeros(len(rows), 0, 2 * self.hidden) for _ in self.decoder)
        return TransformerState(tokens, memory, self.mask(batch), width, rows, width, drop)

    def step(self, inputs: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        def drop(x: Tensor) -> Tensor:
            return state.drop(x, state.rows, state.width)

        x = drop(inputs + self.position.weight[state.token_memory[0].shape[1]])
        tokens = []
        for layer, earlier, regions in zip(
            _list_layers(self.decoder), state.token_memory, state.region_memory, strict=True
        ):
            query, memory = layer.self_attention(layer.self_attention_norm(x)).split([self.hidden, 2 * self.hidden], -1)
            tokens.append(torch.cat([earlier, memory.unsqueeze(1)], 1))
            x = x + drop(layer.self_attention_out(layer.attend(query.unsqueeze(1), tokens[-1]).squeeze(1)))
            query = layer.query(layer.region_norm(x)).unflatten(0, (-1, state.group))
            x = x + drop(layer.region_out(layer.attend(query, regions, state.mask[:, None, None]).flatten(0, 1)))
            x = x + drop(layer.feed_forward(x))
        return self.decoder_norm(x), replace(state, token_memory=tuple(tokens))

    def select(self, state: TransformerState, rows: Tensor, same_images: bool = False) -> TransformerState:
        subset = replace(state, token_memory=tuple(x[rows] for x in state.token_memory))
        if same_images:
            return subset
        images, group = rows // state.group, state.group
        if not _has_whole_groups(rows, group):
            group = 1
        images = images[::group]
        regions = tuple(x[images] for x in state.region_memory)
        return replace(subset, region_memory=regions, mask=state.mask[images], group=group, rows=state.rows[rows])

    def teacher_force(self, batch: Batch, encoded: Tensor, drop: RolloutDropout) -> tuple[Tensor, Tensor]:
        """Run the decoder on all tokens at once, since they are known."""
        tokens, mask = batch.captions, make_caption_mask(batch.captions)
        longest = int(mask.sum(1).max()) if devices.is_synchronous(tokens.device) else tokens.shape[1]
        inputs = torch.cat([tokens.new_full((len(tokens), 1), self.vocabulary + 1), tokens[:, : longest - 1]], 1)
        state = self.begin(batch, encoded, drop, 1)
        x = drop(self.word(inputs) + self.position.weight[:longest])
        for layer, memory in zip(_list_layers(self.decoder), state.region_memory, strict=True):
            query, token_memory = layer.self_attention(layer.self_attention_norm(x)).split(
                [self.hidden, 2 * self.hidden], -1
            )
            x = x + drop(layer.self_attention_out(layer.attend(query, token_memory, causal=True)))
            query = layer.query(layer.region_norm(x))
            x = x + drop(layer.region_out(layer.attend(query, memory, state.mask[:, None, None])))
            x = x + drop(layer.feed_forward(x))
        positions = torch.arange(tokens.numel(), device=tokens.device).view(tokens.shape)[:, :longest]
        if devices.is_synchronous(tokens.device):
            valid = mask[:, :longest]
            return self.decoder_norm(x[valid]), positions[valid]
        return self.decoder_norm(x).flatten(0, 1), positions.flatten()


def _has_whole_groups(rows: Tensor, group: int) -> bool:
    """Return whether `rows` (m,) consist of whole groups; this synchronises with the device."""
    if len(rows) % group:
        return False
    groups = rows.view(-1, group)
    return bool((groups == groups[:, :1] // group * group + torch.arange(group, device=rows.device)).all())


def _list_layers(modules: nn.ModuleList) -> list[TransformerLayer]:
    return cast(list[TransformerLayer], list(modules))
