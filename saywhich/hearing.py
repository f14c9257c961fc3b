"""What a listener makes of one sentence, in NumPy: a search must not wait for PyTorch, which takes a second to import.

Equal to pipeline/models/listener.py, which a test holds it to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from pipeline.data.corpus import tokenise
from pipeline.data.tokens import load_vocabulary
from pipeline.errors import UserError
from pipeline.runtime.records import Line, Record, as_record, parse_json
from pipeline.runtime.tensors import read_tensors
from pipeline.vocabulary import Vocabulary
from saywhich.places import Place

AGAIN = "train the model again, or export it again"
Size = Annotated[int, Ge(1), Le(2**24)]


class Arguments(Record):
    """How a listener was built (pipeline/models/listener.py)."""

    vocabulary: Size
    image_size: Size
    words: Size
    hidden: Size
    encoder: Literal["gru", "bag", "pair"] = "gru"
    features: Line = "main"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the listener's tensors, by name."""
        parts, hidden = 2 if self.encoder == "pair" else 1, self.hidden
        found: dict[str, tuple[int, ...]] = {"image.weight": (parts * hidden, self.image_size)}
        found |= {"image.bias": (parts * hidden,), "word.weight": (self.vocabulary + 2, parts * self.words)}
        if self.encoder != "bag":
            found |= {f"gru.bias_{way}_l0": (3 * hidden,) for way in ("ih", "hh")}
            found |= {"gru.weight_ih_l0": (3 * hidden, self.words), "gru.weight_hh_l0": (3 * hidden, hidden)}
        if self.encoder != "gru":
            found |= {"bag.weight": (hidden, self.words), "bag.bias": (hidden,)}
        return found


class Longest(Record):
    """How many words a speaker's captions have at most."""

    max_words: Annotated[int, Ge(1), Le(1000)]


@dataclass(frozen=True)
class Ear:
    """The part of a listener that hears."""

    weights: Mapping[str, np.ndarray]
    vocabulary: Vocabulary
    longest: int  # words

    @classmethod
    def of(cls, place: Place) -> Ear:
        """That of a trained model; UserError where its file is damaged or holds no listener of captions."""
        metadata, weights = read_tensors(place.weights, AGAIN, "listener.", "np")
        built = parse_json(metadata.get("agents", "{}"), str(place.weights), AGAIN)
        agents = [built.get(name) if isinstance(built, dict) else None for name in ("speaker", "listener")]
        speaker, listener = (each if isinstance(each, dict) else {} for each in agents)
        if listener.get("kind") != "Listener":
            raise UserError(f"{place.weights}: holds no listener that finds photos by captions")
        made = as_record(listener.get("arguments"), Arguments, f"{place.weights}, listener", AGAIN)
        vocabulary = load_vocabulary(place.words)
        if {name: tensor.shape for name, tensor in weights.items()} != made.shapes():
            raise UserError(f"{place.weights}: its listener has other sizes than its header names; {AGAIN}")
        if len(vocabulary) != made.vocabulary:
            raise UserError(
                f"{place.weights}: its listener does not know the {len(vocabulary)} words beside it; {AGAIN}"
            )
        found = {name: tensor.astype(np.float32) for name, tensor in weights.items()}
        return cls(
            found, vocabulary, as_record(_captions(speaker), Longest, f"{place.weights}, speaker", AGAIN).max_words
        )

    @property
    def size(self) -> int:
        """H, of its vectors."""
        return len(self.weights["image.bias"])

    def unknown(self, text: str) -> list[str]:
        """The words of a text that it has never heard."""
        known = self.vocabulary
        return [] if known.reads_text else [word for word in tokenise(text) if word not in known.ids]

    def __call__(self, text: str) -> np.ndarray:
        """(H,) float32 of length 1; of a pair (2·H,)."""
        words = text.split() if self.vocabulary.reads_text else tokenise(text)
        ids = self.vocabulary.encode(words)[: self.longest]
        heard = [*ids, 0] if len(ids) < self.longest else ids  # the EOS that ends it
        table, found = self.weights["word.weight"], []
        own = np.split(table, 2, 1) if {"bag.weight", "gru.weight_ih_l0"} <= self.weights.keys() else [table]
        if "gru.weight_ih_l0" in self.weights:
            found.append(self._last_state(own[0][[len(table) - 1, *heard]]))  # BOS comes first
        if "bag.weight" in self.weights:
            found.append(self.weights["bag.weight"] @ own[-1][heard].mean(0) + self.weights["bag.bias"])
        unit = [each / max(float(np.linalg.norm(each)), 1e-7) for each in found]
        return (np.concatenate(unit) / len(unit) ** 0.5).astype(np.float32)

    def _last_state(self, words: np.ndarray) -> np.ndarray:
        """(H,): a GRU's after words (T, E)."""
        w = self.weights
        state = np.zeros(w["gru.weight_hh_l0"].shape[1], np.float32)
        for enter in words @ w["gru.weight_ih_l0"].T + w["gru.bias_ih_l0"]:
            before = np.split(w["gru.weight_hh_l0"] @ state + w["gru.bias_hh_l0"], 3)
            reset, update, new = np.split(enter, 3)
            reset, update = _sigmoid(reset + before[0]), _sigmoid(update + before[1])
            state = (1 - update) * np.tanh(new + reset * before[2]) + update * state
        return state


def _captions(speaker: Mapping[str, Any]) -> dict[str, Any]:
    """Return what says how long a speaker's captions are; a guided speaker has another inside."""
    arguments = speaker.get("arguments")
    inner = arguments.get("inner") if isinstance(arguments, dict) else None
    if isinstance(inner, dict):
        return _captions(inner)
    return {"max_words": arguments.get("max_words")} if isinstance(arguments, dict) else {}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
