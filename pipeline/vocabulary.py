"""Words and their ids: 0 ends and pads a caption, 1 … V are words (V itself is UNK), V + 1 begins one."""

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
    """The words that a speaker can say, in order of their ids, UNK the last of them."""

    words: tuple[str, ...]
    reads_text: ClassVar[bool] = False  # whether captions are encoded from their text, or from their words

    @classmethod
    def count(cls, captions: Iterable[Sequence[str]], more_than: int) -> Vocabulary:
        """Words that occur more than `more_than` times, most frequent first (ties by spelling), then UNK."""
        counts = Counter(word for caption in captions for word in caption)
        kept = sorted((-n, word) for word, n in counts.items() if n > more_than and word != UNK_WORD)
        return cls((*(word for _, word in kept), UNK_WORD))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        return cls(tuple(json.loads(path.read_text(encoding="utf-8"))["words"]))

    def dump(self) -> str:
        """JSON text that `load` reads back."""
        return json.dumps({"words": list(self.words)}, ensure_ascii=False, indent=0) + "\n"

    def __len__(self) -> int:
        """V: the number of words, UNK included, EOS and BOS not."""
        return len(self.words)

    @property
    def unk(self) -> int:
        return len(self.words)

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: i + 1 for i, word in enumerate(self.words)}

    def encode(self, words: Sequence[str]) -> list[int]:
        """Ids of `words`, without BOS or EOS; what is not known becomes UNK."""
        ids, unk = self.ids, self.unk
        return [ids.get(word, unk) for word in words]

    def decode(self, tokens: Iterable[int]) -> str:
        """The words up to the first EOS, joined by blanks."""
        said = []
        for token in tokens:
            if token == EOS:
                break
            said.append(self.words[token - 1])
        return " ".join(said)
