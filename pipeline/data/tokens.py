"""A tokenizer's tokens as a vocabulary, for pretrained captioners."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar

from pipeline.errors import UserError
from pipeline.vocabulary import EOS, Vocabulary

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Tokens(Vocabulary):
    """Tokens as words, in the tokenizer's order and without its special ones, but for UNK as the last if it has one."""

    numbers: tuple[int, ...]  # (V,): the tokenizer's own ids
    has_unknown: bool
    tokenizer: Any = field(compare=False, repr=False)  # of the library tokenizers
    reads_text: ClassVar[bool] = True

    @classmethod
    def fetch(cls, name: str, out: Path, captions: Iterable[str], most: int) -> Tokens:
        """The tokenizer `name` of the hub, or of a folder, whose files are written into the folder `out`.

        Where it has more than `most` tokens, those that occur in `captions`, texts; UserError if these are too many.
        """
        from pipeline.runtime.hub import opened  # here: it imports PyTorch, which takes a second

        found = opened("AutoTokenizer", name)
        if not hasattr(found, "backend_tokenizer"):
            raise UserError(f"{name}: has no {TOKENIZER}, only a tokenizer that is not of the library tokenizers")
        out.mkdir(parents=True, exist_ok=True)
        found.save_pretrained(out)
        tokenizer, special = _plain(out / TOKENIZER), set(found.all_special_ids)
        ends = {found.eos_token_id, found.bos_token_id, found.pad_token_id, found.sep_token_id, found.cls_token_id}
        unknown = found.unk_token_id if found.unk_token_id not in ends else None
        numbers = [number for number in sorted(tokenizer.get_vocab().values()) if number not in special]
        if len(numbers) + 1 > most:
            texts = tokenizer.encode_batch(list(captions), add_special_tokens=False)
            numbers = sorted({number for text in texts for number in text.ids} - special)
            if len(numbers) + 1 > most:
                raise UserError(f"{name}: the captions have {len(numbers)} different tokens, and {most} are possible")
        numbers += [] if unknown is None else [unknown]
        words = tuple(tokenizer.id_to_token(number) for number in numbers)
        return cls(words, tuple(numbers), unknown is not None, tokenizer)

    @classmethod
    def read(cls, folder: Path) -> Tokens:
        """What `fetch` and `dump` wrote into `folder`."""
        made = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
        words, numbers = tuple(made["words"]), tuple(made["numbers"])
        return cls(words, numbers, made["has_unknown"], _plain(folder / TOKENIZER))

    def dump(self) -> str:
        made = {"words": self.words, "numbers": self.numbers, "has_unknown": self.has_unknown}
        return json.dumps(made, ensure_ascii=False) + "\n"

    @property
    def unk(self) -> int:
        """−1 for a tokenizer without unknown words."""
        return len(self.words) if self.has_unknown else -1

    @cached_property
    def _ids(self) -> dict[int, int]:
        return {number: i + 1 for i, number in enumerate(self.numbers)}

    def encode(self, words: Sequence[str]) -> list[int]:
        """Ids of the tokens of a text, given as its `words`; a token that is not among these is UNK, or left out."""
        found = self.tokenizer.encode(" ".join(words), add_special_tokens=False).ids
        ids = (self._ids.get(number, self.unk) for number in found)
        return [number for number in ids if number > 0]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text up to the first EOS, tokens joined to words as the tokenizer does."""
        said = [self.numbers[token - 1] for token in takewhile(lambda token: token != EOS, tokens)]
        return " ".join(self.tokenizer.decode(said, skip_special_tokens=False).split())


def load_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary of a prepared `folder`: counted words, or a tokenizer's tokens."""
    path = folder / "vocabulary.json"
    made = json.loads(path.read_text(encoding="utf-8"))
    return Tokens.read(folder) if "numbers" in made else Vocabulary.load(path)


def _plain(path: Path) -> Any:
    """The tokenizer of a file, without truncation and padding."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UserError(f"{path}: is read by the library tokenizers: pip install 'saywhich[hub]'") from None
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
