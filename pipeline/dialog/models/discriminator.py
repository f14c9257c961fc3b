"""Discriminators of visual dialog (Lu et al. 2017): scores are inner products of answer and question encodings."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from pipeline.dialog.models.dialog_encoders import DialogEncoder
from pipeline.models.constructor_arguments import collect_constructor_arguments
from pipeline.models.kernels.shared_weight import SharedWeight
from pipeline.models.recurrent import Lstm, compute_text_states
from pipeline.types import Batch, Message, make_caption_mask


class Discriminator(nn.Module):
    """Discriminator with an LSTM encoder of answers: the last state (`answer: last`), or attention over the states.

    Answers are tokens, or distributions as mixtures of embeddings (`message.relaxed`). With `encode_eos` the answer's
    EOS is encoded too. Without it, an EOS has no effect and no gradient, and an empty answer has a zero state.
    """

    def __init__(
        self,
        encoder: DialogEncoder,
        vocabulary: int,
        answer: Literal["last", "attention"] = "attention",
        dropout: float = 0.5,
        encode_eos: bool = False,
    ) -> None:
        super().__init__()
        self.arguments = collect_constructor_arguments(locals())
        embedding_size, hidden = encoder.question.input_size, encoder.hidden
        self.encoder, self.vocabulary, self.encode_eos = encoder, vocabulary, encode_eos
        self.word = nn.Embedding(vocabulary + 2, embedding_size)
        self.lstm = Lstm(embedding_size, hidden, batch_first=True)
        self.inner = nn.Linear(hidden, hidden) if answer == "attention" else None
        self.weight = nn.Linear(hidden, 1, bias=False) if answer == "attention" else None
        self.outer = nn.Linear(hidden, hidden)
        self.drop = nn.Dropout(dropout)
        nn.init.normal_(self.word.weight, std=0.3)

    def encode_question(self, batch: Batch) -> Tensor:
        """Return the encodings (N, H) of the batch's questions with their images and histories."""
        encoded: Tensor = self.encoder(batch, self.word)[:, 0]
        return encoded

    def encode_answers(self, answers: Tensor) -> Tensor:
        """Return the encodings (U, H) of U answers, given as tokens (U, T)."""
        rows = torch.arange(len(answers), device=answers.device)
        return self.encode_text(Message(answers, make_caption_mask(answers), rows, samples=1))

    def encode_text(self, message: Message) -> Tensor:
        """Return the encodings (N, H) of the answers of a message."""
        tokens, table = message.tokens, SharedWeight(self.word.weight)
        words = table.rows(tokens.flatten())
        if message.relaxed is not None:
            words = message.relaxed.embed(words, table.mixture, table.straight_through)
        words = self.drop(words.view(*tokens.shape, -1))
        mask = message.mask if self.encode_eos else message.mask & (tokens > 0)
        lengths = mask.sum(1)
        encoded = compute_text_states(self.lstm, words, lengths.clamp(min=1))
        encodings = encoded.states[encoded.last]
        if self.inner is not None and self.weight is not None:
            scores = self.weight(self.drop(torch.tanh(self.inner(encoded.states)))).squeeze(-1)
            positions, size = encoded.positions, tokens.numel()
            weights = (
                scores.new_full((size,), -torch.inf).index_copy(0, positions, scores).view(tokens.shape).softmax(-1)
            )
            padded = encodings.new_zeros(size, encodings.shape[1]).index_copy(0, positions, encoded.states)
            encodings = (weights.unsqueeze(1) @ padded.view(*tokens.shape, -1)).squeeze(1)
        encodings = encodings * (lengths > 0).unsqueeze(1)
        return torch.tanh(self.outer(self.drop(encodings)))
