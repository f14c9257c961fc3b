"""Att2in2, the speaker of Rennie et al. 2017 as DiscCaptioning and PSST use it, and the one unroll of this project."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from pipeline.protocols import Channel
from pipeline.types import Batch, Message, caption_mask

State = tuple[Tensor, Tensor]  # h, c: (N, H)


@dataclass(frozen=True)
class View:
    """What the speaker has taken in of N images."""

    regions: Tensor  # (N, R, H)
    keys: Tensor  # (N, R, A)
    mask: Tensor  # (N, R) bool

    def repeat(self, times: int) -> View:
        """Each image `times` times, image-major."""
        if times == 1:
            return self
        return View(*(t.repeat_interleave(times, 0) for t in (self.regions, self.keys, self.mask)))


class Speaker(nn.Module):
    """One LSTM that attends to regions; attention enters the candidate only, which is a maxout of two halves.

    `vocabulary` is V: it hears V + 2 ids (EOS, words, BOS) and says V + 1. A caption has at most `max_words` words;
    one that fills them has no EOS.
    """

    def __init__(
        self,
        vocabulary: int,
        region_size: int,
        words: int = 512,
        hidden: int = 512,
        attention: int = 512,
        dropout: float = 0.5,
        max_words: int = 16,
    ) -> None:
        super().__init__()
        self.vocabulary, self.hidden, self.max_words = vocabulary, hidden, max_words
        self.arguments = {
            "vocabulary": vocabulary,
            "region_size": region_size,
            "words": words,
            "hidden": hidden,
            "attention": attention,
            "dropout": dropout,
            "max_words": max_words,
        }
        self.word = nn.Embedding(vocabulary + 2, words)
        self.region = nn.Linear(region_size, hidden)
        self.key = nn.Linear(hidden, attention)
        self.query = nn.Linear(hidden, attention)
        self.weight = nn.Linear(attention, 1)
        self.from_word = nn.Linear(words, 5 * hidden)
        self.from_state = nn.Linear(hidden, 5 * hidden)
        self.from_regions = nn.Linear(hidden, 2 * hidden)
        self.logit = nn.Linear(hidden, vocabulary + 1)
        self.drop = nn.Dropout(dropout)

    def look(self, batch: Batch) -> View:
        """Encode the regions of `batch`, once for all captions of it."""
        regions = self.drop(F.relu(self.region(batch.regions)))
        return View(regions, self.key(regions), batch.region_mask)

    def hear(self, fed: Tensor) -> Tensor:
        """(N, 5H) gate inputs of the words `fed`: ids (N,), or distributions (N, V+1)."""
        words = fed @ self.word.weight[:-1] if fed.is_floating_point() else self.word(fed)
        return self.from_word(self.drop(F.relu(words)))

    def advance(self, heard: Tensor, state: State, view: View) -> State:
        """One step of the recurrence; `heard` (N, 5H) from `hear`."""
        h, c = state
        query = self.query(h).unsqueeze(1)  # (N, 1, A)
        attention = self.weight(torch.tanh(view.keys + query)).squeeze(-1).softmax(-1) * view.mask
        attention = attention / attention.sum(-1, keepdim=True)
        attended = torch.bmm(attention.unsqueeze(1), view.regions).squeeze(1)  # (N, H)
        gates, candidate = (heard + self.from_state(h)).split([3 * self.hidden, 2 * self.hidden], -1)
        enter, forget, leave = gates.sigmoid().chunk(3, -1)
        candidate = torch.maximum(*(candidate + self.from_regions(attended)).chunk(2, -1))
        c = forget * c + enter * candidate
        return leave * torch.tanh(c), c

    def log_probs(self, h: Tensor) -> Tensor:
        """(…, V+1) log-probabilities of the next word from states `h` (…, H)."""
        return self.logit(self.drop(h)).log_softmax(-1)

    def start(self, rows: int, like: Tensor) -> State:
        """The zero state of `rows` captions."""
        zero = like.new_zeros(rows, self.hidden)
        return zero, zero

    def speak(self, batch: Batch, channel: Channel, rng: Generator) -> Message:
        """Unroll `channel` over `batch`: B·samples captions of at most `max_words` words.

        After the word that ends a caption, what the listener hears is a constant EOS, without a gradient.
        """
        view = self.look(batch).repeat(channel.width)
        rows, device = len(view.mask), batch.device
        choose = channel.open(batch, self.vocabulary, rng)
        state = self.start(rows, view.regions)
        fed: Tensor = torch.full((rows,), self.vocabulary + 1, device=device)  # BOS
        ended = torch.zeros(rows, dtype=torch.bool, device=device)
        silence = F.one_hot(torch.tensor(0, device=device), self.vocabulary + 1).to(view.regions.dtype)
        tokens: list[Tensor] = []
        log_probs: list[Tensor] = []
        said: list[Tensor] = []
        for t in range(self.max_words):
            state = self.advance(self.hear(fed), state, view)
            distribution = self.log_probs(state[0])
            symbol = choose(t, distribution)
            if symbol.parent is not None:  # rows moved: everything that belongs to them moves along
                order = symbol.parent
                state = (state[0][order], state[1][order])
                distribution, ended = distribution[order], ended[order]
                tokens, log_probs = [x[order] for x in tokens], [x[order] for x in log_probs]
            index = symbol.index.masked_fill(ended, 0)
            chosen = distribution.gather(1, index.unsqueeze(1)).squeeze(1)
            tokens.append(index)
            log_probs.append(chosen.masked_fill(ended, 0.0))
            if symbol.said is not None:
                said.append(torch.where(ended.unsqueeze(1), silence, symbol.said))
            ended = index == 0
            fed = index if symbol.fed is None else symbol.fed
            # asking a GPU would make it wait; a CPU saves the steps
            if device.type == "cpu" and ended.all():
                break
        keep = _first_rows(len(batch), channel, device)
        said_all = torch.stack(said, 1)[keep] if said else None
        return _message(torch.stack(tokens, 1)[keep], torch.stack(log_probs, 1)[keep], said_all, channel.samples)

    def read(self, batch: Batch) -> Message:
        """Teacher forcing in one piece: what `speak` with the batch's captions forced on it gives, faster.

        The words are known, so all of them are heard at once, and only words within captions cost a softmax.
        """
        view, tokens = self.look(batch), batch.captions
        mask = caption_mask(tokens)
        before = torch.cat([tokens.new_full((len(batch), 1), self.vocabulary + 1), tokens[:, :-1]], 1)
        heard = self.hear(before.flatten()).view(*before.shape, -1)  # (B, T, 5H)
        state = self.start(len(batch), view.regions)
        states = []
        for t in range(tokens.shape[1]):
            state = self.advance(heard[:, t], state, view)
            states.append(state[0])
        said = self.logit(self.drop(torch.stack(states, 1)[mask]))
        log_probs = torch.zeros(tokens.shape, dtype=said.dtype, device=said.device)
        log_probs = log_probs.masked_scatter(mask, -F.cross_entropy(said, tokens[mask], reduction="none"))
        return _message(tokens, log_probs, None, 1)


def _first_rows(images: int, channel: Channel, device: torch.device) -> Tensor | slice:
    if channel.samples == channel.width:
        return slice(None)
    rows = torch.arange(images * channel.width, device=device).view(images, channel.width)
    return rows[:, : channel.samples].flatten()


def _message(tokens: Tensor, log_probs: Tensor, said: Tensor | None, samples: int) -> Message:
    images = torch.arange(len(tokens), device=tokens.device) // samples
    return Message(tokens, caption_mask(tokens), images, samples, log_probs, said)
