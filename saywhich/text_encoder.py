"""The listener's text encoder in NumPy: a search need not import PyTorch, whose import takes a second.

A test compares its embeddings with the embeddings of pipeline/models/listener.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from pipeline.data.corpus import tokenise
from pipeline.data.tokenizer_vocabulary import load_vocabulary
from pipeline.errors import UserError
from pipeline.runtime.records import Line, Record, parse_json, parse_record
from pipeline.runtime.tensors import read_tensors
from pipeline.vocabulary import Vocabulary
from saywhich.model_files import ModelFiles

REMEDY = "train the model again, or export it again"
Size = Annotated[int, Ge(1), Le(2**24)]


class ListenerArguments(Record):
    """The constructor arguments of a listener (pipeline/models/listener.py)."""

    vocabulary: Size
    image_size: Size
    words: Size  # E, the size of a word's embedding
    hidden: Size  # H
    encoder: Literal["gru", "bag", "pair"] = "gru"
    features: Line = "main"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the listener's tensors, by name."""
        parts, hidden = 2 if self.encoder == "pair" else 1, self.hidden
        shapes: dict[str, tuple[int, ...]] = {"image.weight": (parts * hidden, self.image_size)}
        shapes |= {"image.bias": (parts * hidden,), "word.weight": (self.vocabulary + 2, parts * self.words)}
        if self.encoder != "bag":
            shapes |= {f"gru.bias_{kind}_l0": (3 * hidden,) for kind in ("ih", "hh")}
            shapes |= {"gru.weight_ih_l0": (3 * hidden, self.words), "gru.weight_hh_l0": (3 * hidden, hidden)}
        if self.encoder != "gru":
            shapes |= {"bag.weight": (hidden, self.words), "bag.bias": (hidden,)}
        return shapes


class CaptionLength(Record):
    """The largest number of words in a speaker's captions."""

    max_words: Annotated[int, Ge(1), Le(1000)]


@dataclass(frozen=True)
class TextEncoder:
    """The text encoder of a listener."""

    weights: Mapping[str, np.ndarray]
    vocabulary: Vocabulary
    longest: int  # T, in words

    @classmethod
    def from_files(cls, files: ModelFiles) -> TextEncoder:
        """Load the text encoder of a trained model.

        Raises UserError where the weights or the vocabulary are damaged or do not match, and for a listener of another
        kind.
        """
        metadata, weights = read_tensors(files.weights, REMEDY, "listener.", "np")
        descriptions = parse_json(metadata.get("agents", "{}"), str(files.weights), REMEDY)
        agents = [
            descriptions.get(name) if isinstance(descriptions, dict) else None for name in ("speaker", "listener")
        ]
        speaker, listener = (each if isinstance(each, dict) else {} for each in agents)
        if listener.get("kind") != "Listener":
            raise UserError(f"{files.weights}: holds no listener of photos and captions; give another model")
        arguments = parse_record(listener.get("arguments"), ListenerArguments, f"{files.weights}, listener", REMEDY)
        vocabulary = load_vocabulary(files.vocabulary)
        if {name: tensor.shape for name, tensor in weights.items()} != arguments.shapes():
            raise UserError(f"{files.weights}: its listener has other shapes than its header states; {REMEDY}")
        if len(vocabulary) != arguments.vocabulary:
            raise UserError(
                f"{files.weights}: its listener has {arguments.vocabulary} words, and the vocabulary beside it has "
                f"{len(vocabulary)}; {REMEDY}"
            )
        length = parse_record(_find_caption_length(speaker), CaptionLength, f"{files.weights}, speaker", REMEDY)
        weights = {name: tensor.astype(np.float32) for name, tensor in weights.items()}
        return cls(weights, vocabulary, length.max_words)

    @property
    def size(self) -> int:
        """Return D, the size of the embeddings: H, or 2·H with "pair"."""
        return len(self.weights["image.bias"])

    def find_unknown(self, text: str) -> list[str]:
        """Return the words of a text that are not in the vocabulary."""
        vocabulary = self.vocabulary
        return [] if vocabulary.encodes_text else [word for word in tokenise(text) if word not in vocabulary.ids]

    def __call__(self, text: str) -> np.ndarray:
        """Return the text embedding (D,) float32 of length 1."""
        words = text.split() if self.vocabulary.encodes_text else tokenise(text)
        ids = self.vocabulary.encode(words)[: self.longest]
        inputs = [*ids, 0] if len(ids) < self.longest else ids  # the EOS of a caption shorter than T
        table, parts = self.weights["word.weight"], []
        tables = np.split(table, 2, 1) if {"bag.weight", "gru.weight_ih_l0"} <= self.weights.keys() else [table]
        if "gru.weight_ih_l0" in self.weights:
            parts.append(self._compute_last_state(tables[0][[len(table) - 1, *inputs]]))  # BOS comes first
        if "bag.weight" in self.weights:
            parts.append(self.weights["bag.weight"] @ tables[-1][inputs].mean(0) + self.weights["bag.bias"])
        unit = [each / max(float(np.linalg.norm(each)), 1e-7) for each in parts]
        return (np.concatenate(unit) / len(unit) ** 0.5).astype(np.float32)

    def _compute_last_state(self, embeddings: np.ndarray) -> np.ndarray:
        """Return the last state (H,) of the GRU after `embeddings` (n, E): BOS, then at most T tokens (n ≤ T + 1)."""
        w = self.weights
        state = np.zeros(w["gru.weight_hh_l0"].shape[1], np.float32)
        for inputs in embeddings @ w["gru.weight_ih_l0"].T + w["gru.bias_ih_l0"]:
            recurrent = np.split(w["gru.weight_hh_l0"] @ state + w["gru.bias_hh_l0"], 3)
            reset, update, new = np.split(inputs, 3)
            reset, update = _sigmoid(reset + recurrent[0]), _sigmoid(update + recurrent[1])
            state = (1 - update) * np.tanh(new + reset * recurrent[2]) + update * state
        return state


def _find_caption_length(speaker: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry with a speaker's largest caption length; a guided speaker keeps it in its inner speaker."""
    arguments = speaker.get("arguments")
    inner = arguments.get("inner") if isinstance(arguments, dict) else None
    if isinstance(inner, dict):
        return _find_caption_length(inner)
    return {"max_words": arguments.get("max_words")} if isinstance(arguments, dict) else {}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp(−x) is infinite below −88, and the result is 0
        return 1 / (1 + np.exp(-x))
