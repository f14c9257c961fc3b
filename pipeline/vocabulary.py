"""Words and their ids: 0 is EOS and padding, 1 … V are words (V is UNK), V + 1 is BOS."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

EOS = 0
UNK_WORD = "UNK"


@dataclass(frozen=True)
class Vocabulary:
    """The words that a speaker can generate, in the order of their ids; UNK is the last."""

    words: tuple[str, ...]
    encodes_text: ClassVar[bool] = False  # whether `encode` needs a caption's text, not its words

    @classmethod
    def count(cls, captions: Iterable[Sequence[str]], more_than: int) -> Vocabulary:
        """Collect words that occur more than `more_than` times, most frequent first (ties by spelling), then UNK."""
        counts = Counter(word for caption in captions for word in caption)
        entries = sorted((-n, word) for word, n in counts.items() if n > more_than and word != UNK_WORD)
        return cls((*(word for _, word in entries), UNK_WORD))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Load the vocabulary from the JSON file `path`."""
        return cls(tuple(json.loads(path.read_text(encoding="utf-8"))["words"]))

    def dump(self) -> str:
        """Return JSON text that `load` reads back."""
        return json.dumps({"words": list(self.words)}, ensure_ascii=False, indent=0) + "\n"

    def __len__(self) -> int:
        """Return V, the number of words with UNK, without EOS and BOS."""
        return len(self.words)

    @property
    def unk(self) -> int:
        """Return the id of UNK."""
        return len(self.words)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Return the id of each word, from 1."""
        return {word: i + 1 for i, word in enumerate(self.words)}

    def encode(self, words: Sequence[str]) -> list[int]:
        """Return the ids of `words`, without BOS or EOS; unknown words become UNK."""
        ids, unk = self.ids, self.unk
        return [ids.get(word, unk) for word in words]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the words up to the first EOS, joined by blanks. Raises IndexError for BOS."""
        words = []
        for token in tokens:
            if token == EOS:
                break
            words.append(self.words[token - 1])
        return " ".join(words)
