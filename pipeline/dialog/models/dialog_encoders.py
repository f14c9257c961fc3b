"""Encoders of the questions of dialogs, each with its image and history.

An encoder returns three vectors for each question, (N, 3, H) for N = D·R questions. The first is the encoding of
question, history and image. The others are the hidden and cell states of the question's LSTM after the last word, from
which an LSTM decoder begins. Without `history` or `image`, zeros replace that input's encoding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.dialog.data.dialog_questions import DialogQuestions, get_questions
from pipeline.models.constructor_arguments import collect_constructor_arguments
from pipeline.models.decoder import RolloutDropout
from pipeline.models.recurrent import Lstm, compute_text_states
from pipeline.random import BatchRandom
from pipeline.types import Batch


class DialogEncoder(nn.Module, ABC):
    """Base class of encoders, with the question's LSTM, the projection of regions, and the fusion layer."""

    def __init__(
        self,
        words: int,
        region_size: int,
        hidden: int = 512,
        dropout: float = 0.5,
        history: bool = True,
        image: bool = True,
        num_positions: int = 0,
        layer_norm: bool = False,
    ) -> None:
        """Build the layers for word embeddings of size `words`.

        `num_positions` is the number of grid regions with learned position vectors; 0: no position vectors.
        `layer_norm` normalises the fusion layer's output before its tanh, which otherwise saturates in generators. The
        papers have neither.
        """
        super().__init__()
        self.arguments = collect_constructor_arguments(locals())
        self.hidden, self.dropout, self.history, self.image = hidden, dropout, history, image
        self.question = Lstm(words, hidden, batch_first=True)
        self.region = nn.Linear(region_size, hidden)
        self.position = nn.Parameter(torch.zeros(num_positions, hidden)) if num_positions else None
        self.fusion = nn.Linear(3 * hidden, hidden)
        self.norm = nn.LayerNorm(hidden) if layer_norm else nn.Identity()

    def forward(self, batch: Batch, word: nn.Embedding) -> Tensor:
        """Return the encodings and final states, (N, 3, H), of the batch's questions, with the embeddings `word`."""
        rounds = get_questions(batch)
        drop = RolloutDropout(self.dropout if self.training else 0.0, BatchRandom(batch, None))
        h, c = compute_last_lstm_states(self.question, drop(word(rounds.questions)), rounds.questions)
        parts = self.fuse(batch, rounds, h, word, drop)
        encoding = torch.tanh(self.norm(self.fusion(drop(torch.cat([h, *parts], -1)))))
        return torch.stack([encoding, h, c], 1)

    @abstractmethod
    def fuse(
        self, batch: Batch, rounds: DialogQuestions, question: Tensor, word: nn.Embedding, drop: RolloutDropout
    ) -> list[Tensor]:
        """Return the encodings of history and image, (N, H) each, for the questions (N, H)."""

    def compute_attention_shares(self, batch: Batch, word: nn.Embedding) -> tuple[Tensor, Tensor] | None:
        """Return attention weights of history items (N, R) and of regions (N, K); None unless both exist."""
        return None

    def project_regions(self, batch: Batch, rounds: DialogQuestions) -> tuple[Tensor, Tensor]:
        """Return the projected regions (D, K, H) of each dialog's image, and their mask (D, K)."""
        num_rounds = rounds.history.shape[1]
        regions = self.region(batch.regions[::num_rounds])
        return torch.tanh(regions if self.position is None else regions + self.position), batch.region_mask[
            ::num_rounds
        ]


class Hciae(DialogEncoder):
    """History-conditioned image attention (Lu et al. 2017, Eq. 1–3).

    The question attends to the history items, and question and history attend to the regions. With `order`, each key of
    a history item also has an embedding of the item's distance from the current round, at most DISTANCES − 1. The paper
    has no such embedding.
    """

    def __init__(self, *arguments: Any, order: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.arguments["order"] = order
        hidden = self.hidden
        self.rounds = Lstm(self.question.input_size, hidden, batch_first=True)
        self.history_key, self.history_query = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
        self.history_weight = nn.Linear(hidden, 1, bias=False)
        self.region_key, self.region_query = nn.Linear(hidden, hidden), nn.Linear(2 * hidden, hidden, bias=False)
        self.region_weight = nn.Linear(hidden, 1, bias=False)
        self.distance = nn.Embedding(DISTANCES, hidden) if order else None

    def fuse(
        self, batch: Batch, rounds: DialogQuestions, question: Tensor, word: nn.Embedding, drop: RolloutDropout
    ) -> list[Tensor]:
        history = torch.zeros_like(question)
        if self.history:
            history, _ = self.attend_history(rounds, question, word, drop)
        image = torch.zeros_like(question)
        if self.image:
            image, _ = self.attend_image(batch, rounds, torch.cat([question, history], -1))
        return [history, image]

    @torch.no_grad()
    def compute_attention_shares(self, batch: Batch, word: nn.Embedding) -> tuple[Tensor, Tensor] | None:
        if not (self.history and self.image):
            return None
        rounds = get_questions(batch)
        no_dropout = RolloutDropout(0.0, BatchRandom(batch, None))
        question, _ = compute_last_lstm_states(self.question, word(rounds.questions), rounds.questions)
        history, items = self.attend_history(rounds, question, word, no_dropout)
        _, regions = self.attend_image(batch, rounds, torch.cat([question, history], -1))
        return items, regions

    def attend_history(
        self, rounds: DialogQuestions, question: Tensor, word: nn.Embedding, drop: RolloutDropout
    ) -> tuple[Tensor, Tensor]:
        """Return the attended history (N, H) for questions (N, H), and weights of items (N, R), 0 for later items."""
        dialogs, num_rounds, _ = rounds.history.shape
        tokens = rounds.history.flatten(0, 1)
        items = compute_last_lstm_states(self.rounds, drop(word(tokens)), tokens)[0].view(dialogs, num_rounds, -1)
        round_index = torch.arange(num_rounds, device=tokens.device)
        keys = self.history_key(items).unsqueeze(1)  # (D, 1, R, H)
        if self.distance is not None:
            keys = keys + self.distance((round_index.unsqueeze(1) - round_index).clamp(0, DISTANCES - 1))
        query = self.history_query(question).view(dialogs, num_rounds, 1, -1)
        scores = self.history_weight(torch.tanh(keys + query)).squeeze(-1)  # (D, R, R)
        shares = scores.masked_fill(round_index > round_index.unsqueeze(1), -torch.inf).softmax(-1)
        return (shares @ items).flatten(0, 1), shares.flatten(0, 1)

    def attend_image(self, batch: Batch, rounds: DialogQuestions, query: Tensor) -> tuple[Tensor, Tensor]:
        """Return the attended image (N, H) for question and history (N, 2H), and the weights of regions (N, K)."""
        regions, mask = self.project_regions(batch, rounds)
        query = self.region_query(query).view(len(regions), -1, 1, self.hidden)
        scores = self.region_weight(torch.tanh(self.region_key(regions).unsqueeze(1) + query)).squeeze(-1)
        shares = scores.masked_fill(~mask.unsqueeze(1), -torch.inf).softmax(-1)  # (D, R, K)
        return (shares @ regions).flatten(0, 1), shares.flatten(0, 1)


class LateFusion(DialogEncoder):
    """Late fusion, LF (Das et al. 2017): the whole history is one text; the image is the mean of its regions."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.text = Lstm(self.question.input_size, self.hidden, batch_first=True)

    def fuse(
        self, batch: Batch, rounds: DialogQuestions, question: Tensor, word: nn.Embedding, drop: RolloutDropout
    ) -> list[Tensor]:
        history, image = torch.zeros_like(question), torch.zeros_like(question)
        if self.history:
            dialogs, num_rounds, length = rounds.history.shape
            history_tokens = rounds.history.unsqueeze(1).expand(-1, num_rounds, -1, -1)
            causal_mask = torch.ones(num_rounds, num_rounds, dtype=torch.bool, device=history_tokens.device).tril()
            tokens = history_tokens * causal_mask.view(1, num_rounds, num_rounds, 1)
            tokens = tokens.reshape(dialogs * num_rounds, num_rounds * length)
            order = (tokens == 0).to(torch.uint8).sort(dim=1, stable=True).indices  # words first
            tokens = tokens.gather(1, order)
            tokens = tokens[:, : max(1, int((tokens > 0).sum(1).max()))]
            history = compute_last_lstm_states(self.text, drop(word(tokens)), tokens)[0]
        if self.image:
            image = average_regions(*self.project_regions(batch, rounds)).repeat_interleave(rounds.history.shape[1], 0)
        return [history, image]


class Hierarchical(DialogEncoder):
    """Hierarchical encoder, HRE (Das et al. 2017): an LSTM over rounds of question, image and latest history item."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.item = Lstm(self.question.input_size, self.hidden, batch_first=True)
        self.dialog = Lstm(3 * self.hidden, self.hidden, batch_first=True)

    def fuse(
        self, batch: Batch, rounds: DialogQuestions, question: Tensor, word: nn.Embedding, drop: RolloutDropout
    ) -> list[Tensor]:
        dialogs, num_rounds, _ = rounds.history.shape
        history, image = torch.zeros_like(question), torch.zeros_like(question)
        if self.image:
            image = average_regions(*self.project_regions(batch, rounds)).repeat_interleave(num_rounds, 0)
        if self.history:
            tokens = rounds.history.flatten(0, 1)
            items = compute_last_lstm_states(self.item, drop(word(tokens)), tokens)[0]
            history, _ = self.dialog(torch.cat([question, image, items], -1).view(dialogs, num_rounds, -1))
            history = history.flatten(0, 1)
        return [history, image]


DISTANCES = 16  # distances in rounds that have an embedding: 0 … 15; greater distances use the embedding of 15
ENCODERS: dict[str, type[DialogEncoder]] = {"hciae": Hciae, "lf": LateFusion, "hre": Hierarchical}


def average_regions(regions: Tensor, mask: Tensor) -> Tensor:
    """Compute the mean (D, H) of regions (D, K, H) over those in `mask` (D, K)."""
    weights = mask.unsqueeze(-1).to(regions.dtype)
    return (regions * weights).sum(1) / weights.sum(1)


def compute_last_lstm_states(lstm: nn.LSTM, embedded: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return hidden and cell states (n, H) after the last word of `tokens` (n, T), embedded as `embedded` (n, T, E).

    Words precede EOS and padding (0). A text without words has the states after its first token.
    """
    encoded = compute_text_states(lstm, embedded, (tokens > 0).sum(1).clamp(min=1))
    return encoded.states[encoded.last], encoded.cells
