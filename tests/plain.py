"""The unroll as one would write it down: every caption carried to the end, every step differentiated by autograd."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.models.listener import EPSILON, Listener
from pipeline.models.speaker import Speaker
from pipeline.types import Batch, caption_mask


def look(speaker: Speaker, batch: Batch, width: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Regions, keys and mask of each caption."""
    regions = speaker.drop(F.relu(speaker.region(batch.regions)))
    return tuple(x.repeat_interleave(width, 0) for x in (regions, speaker.key(regions), batch.region_mask))


def advance(speaker: Speaker, words: Tensor, state: tuple[Tensor, Tensor], view) -> tuple[Tensor, Tensor]:
    """One step of Att2in2 on word embeddings (N, E)."""
    (h, c), (regions, keys, mask) = state, view
    heard = speaker.from_word(speaker.drop(F.relu(words)))
    attention = speaker.weight(torch.tanh(keys + speaker.query(h).unsqueeze(1))).squeeze(-1).softmax(-1) * mask
    attended = torch.einsum("nr,nrh->nh", attention / attention.sum(-1, keepdim=True), regions)
    gates, candidate = (heard + speaker.from_state(h)).split([3 * speaker.hidden, 2 * speaker.hidden], -1)
    enter, forget, leave = gates.sigmoid().chunk(3, -1)
    candidate = torch.maximum(*(candidate + speaker.from_regions(attended)).chunk(2, -1))
    c = forget * c + enter * candidate
    return leave * torch.tanh(c), c


def speak(speaker: Speaker, batch: Batch, channel, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (N, T), their log-probabilities (N, T), and what is heard (N, T, V+1) through a channel without beams."""
    total = len(batch) * channel.width
    view, rows = look(speaker, batch, channel.width), torch.arange(total)
    choose = channel.open(batch, speaker.vocabulary, rng)
    zero = view[0].new_zeros(total, speaker.hidden)
    state, ended = (zero, zero), torch.zeros(total, dtype=torch.bool)
    words = speaker.word(torch.full((total,), speaker.vocabulary + 1))
    silence = F.one_hot(torch.tensor(0), speaker.vocabulary + 1).to(zero)
    tokens, log_probs, said = [], [], []
    for t in range(speaker.max_words):
        state = advance(speaker, words, state, view)
        logits = speaker.logit(speaker.drop(state[0]))
        symbol = choose(t, logits.detach(), rows)
        index = symbol.index.masked_fill(ended, 0)
        chosen = logits.log_softmax(-1).gather(1, index.unsqueeze(1)).squeeze(1)
        tokens.append(index)
        log_probs.append(chosen.masked_fill(ended, 0))
        hard = F.one_hot(symbol.index, speaker.vocabulary + 1).to(zero)
        words = speaker.word(symbol.index if symbol.fed is None else symbol.fed)
        heard = hard
        if channel.relaxes:
            soft = channel.relax(logits, symbol.noise)
            whole = torch.zeros(total, 1, dtype=torch.bool)
            if symbol.whole is not None:
                whole[symbol.whole] = True
            heard = torch.where(whole, soft, soft + (hard - soft).detach())
            heard = torch.where(symbol.through.unsqueeze(1), heard, hard)
            if symbol.onward:
                words = torch.where(whole, soft @ speaker.word.weight[:-1], words)
        said.append(torch.where(ended.unsqueeze(1), silence, heard))
        ended = index == 0
        if ended.all():
            break
    return torch.stack(tokens, 1), torch.stack(log_probs, 1), torch.stack(said, 1)


def hear(listener: Listener, tokens: Tensor, said: Tensor) -> Tensor:
    """(N, H): captions (N, T) as `said` (N, T, V+1)."""
    words = said @ listener.word.weight[:-1]
    begin = listener.word.weight[-1].expand(len(words), 1, -1)
    states, _ = listener.gru(torch.cat([begin, words], 1))
    return F.normalize(states[torch.arange(len(words)), caption_mask(tokens).sum(1)], dim=-1, eps=EPSILON)
