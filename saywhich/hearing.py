"""What a listener makes of one sentence, in NumPy: a search must not wait for PyTorch, which takes a second to import.

Equal to pipeline/models/listener.py, which a test holds it to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.data.corpus import tokenise
from pipeline.data.tokens import load_vocabulary
from pipeline.errors import UserError
from pipeline.vocabulary import Vocabulary
from saywhich.places import Place


@dataclass(frozen=True)
class Ear:
    """The part of a listener that hears."""

    weights: Mapping[str, np.ndarray]
    vocabulary: Vocabulary
    longest: int  # words

    @classmethod
    def of(cls, place: Place) -> Ear:
        """That of a trained model; UserError where its file is damaged or holds no listener of captions."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(place.weights, "np") as file:
                built: dict[str, Any] = json.loads((file.metadata() or {}).get("agents", "{}"))
                names = [name for name in file.keys() if name.startswith("listener.")]  # noqa: SIM118
                weights = {name.removeprefix("listener."): file.get_tensor(name) for name in names}
        except (SafetensorError, OSError) as problem:
            raise UserError(f"{place.weights}: not a whole safetensors file ({problem})") from None
        if built.get("listener", {}).get("kind") != "Listener":
            raise UserError(f"{place.weights}: holds no listener that finds photos by captions")
        return cls(weights, load_vocabulary(place.words), _longest(built["speaker"]["arguments"]))

    @property
    def size(self) -> int:
        """H, of its vectors."""
        return len(self.weights["image.bias"])

    def unknown(self, text: str) -> list[str]:
        """The words of a text that it has never heard."""
        known = self.vocabulary
        return [] if known.reads_text else [word for word in tokenise(text) if word not in known.ids]

    def __call__(self, text: str) -> np.ndarray:
        """(H,) float32 of length 1."""
        words = text.split() if self.vocabulary.reads_text else tokenise(text)
        ids = self.vocabulary.encode(words)[: self.longest]
        heard = [*ids, 0] if len(ids) < self.longest else ids  # the EOS that ends it
        table = self.weights["word.weight"]
        if "bag.weight" in self.weights:
            found = self.weights["bag.weight"] @ table[heard].mean(0) + self.weights["bag.bias"]
        else:
            found = self._last_state(table[[len(table) - 1, *heard]])  # BOS comes first
        return (found / max(float(np.linalg.norm(found)), 1e-7)).astype(np.float32)

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


def _longest(arguments: Mapping[str, Any]) -> int:
    """The words of a speaker's longest caption; a guided one has another inside."""
    inner = arguments.get("inner")
    return _longest(inner["arguments"]) if isinstance(inner, dict) else int(arguments["max_words"])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
