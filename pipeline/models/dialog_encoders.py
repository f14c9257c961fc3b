"""What is understood of a question: encoders of image, history and question, all told as one vector.

Each gives (N, 3, H) for N = D·R questions: the encoding, and hidden and cell state of the question's LSTM, from which a
decoder begins. `history` and `image` say whether it gets to know them: without, zeros stand there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from pipeline.models.decoder import Dropout
from pipeline.numbers import Numbers
from pipeline.types import Asked, Batch


class Encoder(nn.Module, ABC):
    """A question's LSTM, and what all encoders are told."""

    def __init__(
        self,
        words: int,
        region_size: int,
        hidden: int = 512,
        dropout: float = 0.5,
        history: bool = True,
        image: bool = True,
        places: int = 0,
    ) -> None:
        """`words`: size of the embeddings that it hears; `places`: of so many regions, a grid's, it knows the places,
        which the paper's does not.
        """
        super().__init__()
        self.arguments: dict[str, Any] = {
            "words": words,
            "region_size": region_size,
            "hidden": hidden,
            "dropout": dropout,
            "history": history,
            "image": image,
            "places": places,
        }
        self.hidden, self.dropout, self.history, self.image = hidden, dropout, history, image
        self.question = nn.LSTM(words, hidden, batch_first=True)
        self.region = nn.Linear(region_size, hidden)
        self.place = nn.Parameter(torch.zeros(places, hidden)) if places else None
        self.fusion = nn.Linear(3 * hidden, hidden)

    def forward(self, batch: Batch, word: nn.Embedding) -> Tensor:
        """(N, 3, H) of the batch's questions, heard with the embeddings `word`."""
        asked = batch.asked
        assert asked is not None
        drop = Dropout(self.dropout if self.training else 0.0, Numbers(batch, None))
        h, c = last_states(self.question, drop(word(asked.questions)), asked.questions)
        told = self.told(batch, asked, h, word, drop)
        encoding = torch.tanh(self.fusion(drop(torch.cat([h, *told], -1))))
        return torch.stack([encoding, h, c], 1)

    @abstractmethod
    def told(self, batch: Batch, asked: Asked, question: Tensor, word: nn.Embedding, drop: Dropout) -> list[Tensor]:
        """(N, H) each: what of the history and what of the image goes with the questions (N, H)."""

    def attended(self, batch: Batch, word: nn.Embedding) -> tuple[Tensor, Tensor] | None:
        """Shares of the history's items (N, R) and of regions (N, K) that count; None for those who weigh nothing."""
        return None

    def seen(self, batch: Batch, asked: Asked) -> tuple[Tensor, Tensor]:
        """(D, K, H) regions of each dialog's image, and which there are (D, K)."""
        many = asked.history.shape[1]
        regions = self.region(batch.regions[::many])
        return torch.tanh(regions if self.place is None else regions + self.place), batch.region_mask[::many]


class Hciae(Encoder):
    """History-conditioned image attention (Lu et al. 2017, Eq. 1–3): the question attends to the rounds of the history,
    both attend to the image. `order`: each round also knows how long ago it is, which the paper's do not.
    """

    def __init__(self, *arguments: Any, order: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.arguments["order"] = order
        hidden = self.hidden
        self.rounds = nn.LSTM(self.question.input_size, hidden, batch_first=True)
        self.history_key, self.history_query = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
        self.history_weight = nn.Linear(hidden, 1, bias=False)
        self.region_key, self.region_query = nn.Linear(hidden, hidden), nn.Linear(2 * hidden, hidden, bias=False)
        self.region_weight = nn.Linear(hidden, 1, bias=False)
        self.ago = nn.Embedding(AGO, hidden) if order else None

    def told(self, batch: Batch, asked: Asked, question: Tensor, word: nn.Embedding, drop: Dropout) -> list[Tensor]:
        history = torch.zeros_like(question)
        if self.history:
            history, _ = self.remember(asked, question, word, drop)
        image = torch.zeros_like(question)
        if self.image:
            image, _ = self.look(batch, asked, torch.cat([question, history], -1))
        return [history, image]

    @torch.no_grad()
    def attended(self, batch: Batch, word: nn.Embedding) -> tuple[Tensor, Tensor] | None:
        if batch.asked is None or not (self.history and self.image):
            return None
        nothing = Dropout(0.0, Numbers(batch, None))
        question, _ = last_states(self.question, word(batch.asked.questions), batch.asked.questions)
        history, items = self.remember(batch.asked, question, word, nothing)
        _, regions = self.look(batch, batch.asked, torch.cat([question, history], -1))
        return items, regions

    def remember(self, asked: Asked, question: Tensor, word: nn.Embedding, drop: Dropout) -> tuple[Tensor, Tensor]:
        """What N questions (N, H) attend to in the history, and the shares of items (N, R), 0 for later ones."""
        dialogs, many, _ = asked.history.shape
        tokens = asked.history.flatten(0, 1)
        items = last_states(self.rounds, drop(word(tokens)), tokens)[0].view(dialogs, many, -1)
        now = torch.arange(many, device=tokens.device)
        keys = self.history_key(items).unsqueeze(1)  # (D, 1, R, H)
        if self.ago is not None:
            keys = keys + self.ago((now.unsqueeze(1) - now).clamp(0, AGO - 1))
        query = self.history_query(question).view(dialogs, many, 1, -1)
        scores = self.history_weight(torch.tanh(keys + query)).squeeze(-1)  # (D, R, R)
        shares = scores.masked_fill(now > now.unsqueeze(1), -torch.inf).softmax(-1)
        return (shares @ items).flatten(0, 1), shares.flatten(0, 1)

    def look(self, batch: Batch, asked: Asked, query: Tensor) -> tuple[Tensor, Tensor]:
        """What question and history (N, 2H) attend to in the image, and the shares of regions (N, K)."""
        regions, mask = self.seen(batch, asked)
        query = self.region_query(query).view(len(regions), -1, 1, self.hidden)
        scores = self.region_weight(torch.tanh(self.region_key(regions).unsqueeze(1) + query)).squeeze(-1)
        shares = scores.masked_fill(~mask.unsqueeze(1), -torch.inf).softmax(-1)  # (D, R, K)
        return (shares @ regions).flatten(0, 1), shares.flatten(0, 1)


class LateFusion(Encoder):
    """LF (Das et al. 2017): the whole history is one text; the image is the mean of its regions."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.text = nn.LSTM(self.question.input_size, self.hidden, batch_first=True)

    def told(self, batch: Batch, asked: Asked, question: Tensor, word: nn.Embedding, drop: Dropout) -> list[Tensor]:
        history, image = torch.zeros_like(question), torch.zeros_like(question)
        if self.history:
            dialogs, many, length = asked.history.shape
            said = asked.history.unsqueeze(1).expand(-1, many, -1, -1)
            before = torch.ones(many, many, dtype=torch.bool, device=said.device).tril().view(1, many, many, 1)
            tokens = (said * before).reshape(dialogs * many, many * length)
            order = (tokens == 0).to(torch.uint8).sort(dim=1, stable=True).indices  # words first
            tokens = tokens.gather(1, order)
            tokens = tokens[:, : max(1, int((tokens > 0).sum(1).max()))]
            history = last_states(self.text, drop(word(tokens)), tokens)[0]
        if self.image:
            image = mean_region(*self.seen(batch, asked)).repeat_interleave(asked.history.shape[1], 0)
        return [history, image]


class Hierarchical(Encoder):
    """HRE (Das et al. 2017): an LSTM over rounds, each of which is question, image and what was said last."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.item = nn.LSTM(self.question.input_size, self.hidden, batch_first=True)
        self.dialog = nn.LSTM(3 * self.hidden, self.hidden, batch_first=True)

    def told(self, batch: Batch, asked: Asked, question: Tensor, word: nn.Embedding, drop: Dropout) -> list[Tensor]:
        dialogs, many, _ = asked.history.shape
        history, image = torch.zeros_like(question), torch.zeros_like(question)
        if self.image:
            image = mean_region(*self.seen(batch, asked)).repeat_interleave(many, 0)
        if self.history:
            tokens = asked.history.flatten(0, 1)
            items = last_states(self.item, drop(word(tokens)), tokens)[0]
            history, _ = self.dialog(torch.cat([question, image, items], -1).view(dialogs, many, -1))
            history = history.flatten(0, 1)
        return [history, image]


AGO = 16  # rounds
ENCODERS: dict[str, type[Encoder]] = {"hciae": Hciae, "lf": LateFusion, "hre": Hierarchical}


def mean_region(regions: Tensor, mask: Tensor) -> Tensor:
    """(D, H) of regions (D, K, H), of those that there are (D, K)."""
    there = mask.unsqueeze(-1).to(regions.dtype)
    return (regions * there).sum(1) / there.sum(1)


def last_states(lstm: nn.LSTM, heard: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """(n, H) hidden and cell states after the words (n, T, E) of texts (n, T), before the padding."""
    lengths = (tokens > 0).sum(1).clamp(min=1).cpu()
    packed = pack_padded_sequence(heard, lengths, batch_first=True, enforce_sorted=False)
    _, (h, c) = lstm(packed)
    return h[0], c[0]
