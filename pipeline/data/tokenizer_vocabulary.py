"""A tokenizer's tokens as a vocabulary, for pretrained captioners."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Lt
from pydantic import Field

from pipeline.errors import UserError
from pipeline.runtime.records import Record, parse_json, read_bytes, read_record
from pipeline.vocabulary import EOS, Vocabulary

TOKENIZER, WORDS = "tokenizer.json", "vocabulary.json"
RERUN = "run the prepare stage again, or export the model again"
MAX_BYTES = 24 * 2**20  # bytes of either file
MAX_WORDS = 2**20
# limits of a tokenizer: parts in a list, characters of a replacement, characters of a pattern
MAX_PARTS, MAX_REPLACEMENT, MAX_PATTERN = 64, 4, 500


@dataclass(frozen=True)
class TokenizerVocabulary(Vocabulary):
    """Tokens as words, in the tokenizer's order, without its special tokens. UNK is last if the tokenizer has one."""

    numbers: tuple[int, ...]  # (V,): the tokenizer's own ids
    has_unknown: bool
    tokenizer: Any = field(compare=False, repr=False)  # a Tokenizer of the library tokenizers
    encodes_text: ClassVar[bool] = True

    @classmethod
    def fetch(cls, name: str, out: Path, captions: Iterable[str], max_tokens: int) -> TokenizerVocabulary:
        """Load the tokenizer `name` from the hub or a folder, and write its files into the folder `out`.

        At most `max_tokens` − 1 tokens and UNK are kept. If the tokenizer has more tokens, only those that occur in the
        texts `captions` are kept. Raises UserError if these are too many, if the library tokenizers does not
        implement the tokenizer, and as `load_pretrained` does.
        """
        from pipeline.runtime.hub_loading import load_pretrained  # here: it imports PyTorch, which takes a second

        hub_tokenizer = load_pretrained("AutoTokenizer", name)
        if not hasattr(hub_tokenizer, "backend_tokenizer"):
            raise UserError(
                f"{name}: expected a tokenizer of the library tokenizers ({TOKENIZER}), found another kind; choose "
                "another model"
            )
        out.mkdir(parents=True, exist_ok=True)
        hub_tokenizer.save_pretrained(out)
        tokenizer, special = _read_tokenizer(out / TOKENIZER), set(hub_tokenizer.all_special_ids)
        # special tokens that are in no other list, such as <image>
        special |= {number for number, token in hub_tokenizer.added_tokens_decoder.items() if token.special}
        boundary_ids = {
            hub_tokenizer.eos_token_id,
            hub_tokenizer.bos_token_id,
            hub_tokenizer.pad_token_id,
            hub_tokenizer.sep_token_id,
            hub_tokenizer.cls_token_id,
        }
        unknown = hub_tokenizer.unk_token_id if hub_tokenizer.unk_token_id not in boundary_ids else None
        numbers = [number for number in sorted(tokenizer.get_vocab().values()) if number not in special]
        if len(numbers) + 1 > max_tokens:
            texts = tokenizer.encode_batch(list(captions), add_special_tokens=False)
            numbers = sorted({number for text in texts for number in text.ids} - special)
            if len(numbers) + 1 > max_tokens:
                raise UserError(
                    f"{name}: expected at most {max_tokens - 1} different tokens in the captions, got {len(numbers)}; "
                    "choose a tokenizer with fewer tokens"
                )
        numbers += [] if unknown is None else [unknown]
        words = tuple(tokenizer.id_to_token(number) for number in numbers)
        return cls(words, tuple(numbers), unknown is not None, tokenizer)

    @classmethod
    def read(cls, folder: Path) -> TokenizerVocabulary:
        """Read the files of `fetch` and `dump` in `folder`. Raises UserError where they do not fit together."""
        content, tokenizer = _read_vocabulary(folder), _read_tokenizer(folder / TOKENIZER)
        if content.numbers is None or len(content.numbers) != len(content.words):
            raise UserError(f"{folder / WORDS}: must have as many numbers as words; {RERUN}")
        for word, number in zip(content.words, content.numbers, strict=True):
            if tokenizer.id_to_token(number) != word:
                raise UserError(f"{folder / WORDS}: {word[:80]} is not the token {number} of {TOKENIZER}; {RERUN}")
        return cls(tuple(content.words), tuple(content.numbers), content.has_unknown, tokenizer)

    def dump(self) -> str:
        content = {"words": self.words, "numbers": self.numbers, "has_unknown": self.has_unknown}
        return json.dumps(content, ensure_ascii=False) + "\n"

    @property
    def unk(self) -> int:
        """Return the id of UNK; −1 for a tokenizer without unknown words."""
        return len(self.words) if self.has_unknown else -1

    @cached_property
    def _ids(self) -> dict[int, int]:
        return {number: i + 1 for i, number in enumerate(self.numbers)}

    def encode(self, words: Sequence[str]) -> list[int]:
        """Return the token ids of the text that `words` form.

        Tokens outside the vocabulary become UNK; without UNK they are left out.
        """
        numbers = self.tokenizer.encode(" ".join(words), add_special_tokens=False).ids
        ids = (self._ids.get(number, self.unk) for number in numbers)
        return [number for number in ids if number > 0]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text up to the first EOS, with tokens joined to words by the tokenizer."""
        numbers = [self.numbers[token - 1] for token in takewhile(lambda token: token != EOS, tokens)]
        return " ".join(self.tokenizer.decode(numbers, skip_special_tokens=False).split())


Word = Annotated[str, Field(max_length=500)]


class VocabularyFile(Record):
    """The content of `vocabulary.json`: words in order of their ids, and for tokens the tokenizer's own ids."""

    words: Annotated[list[Word], Field(min_length=1, max_length=MAX_WORDS, fail_fast=True)]
    numbers: Annotated[list[Annotated[int, Ge(0), Lt(2**31)]], Field(min_length=1, fail_fast=True)] | None = None
    has_unknown: bool = False


def load_vocabulary(folder: Path) -> Vocabulary:
    """Read the vocabulary of a prepared `folder`: counted words, or a tokenizer's tokens.

    Raises FileNotFoundError for a missing vocabulary.json, and UserError for damaged files.
    """
    if not (folder / WORDS).exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder / WORDS))
    content = _read_vocabulary(folder)
    return Vocabulary(tuple(content.words)) if content.numbers is None else TokenizerVocabulary.read(folder)


def _read_vocabulary(folder: Path) -> VocabularyFile:
    return read_record(folder / WORDS, VocabularyFile, RERUN, MAX_BYTES)


def _read_tokenizer(path: Path) -> Any:
    """Read the tokenizer of a file, without truncation and padding.

    Raises UserError for an unreadable file, and where the library tokenizers is not installed.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UserError(f"{path}: needs the library tokenizers; pip install 'saywhich[hub]'") from None
    content = read_bytes(path, RERUN, MAX_BYTES)
    _check_parts(parse_json(content, str(path), RERUN), path)
    try:
        tokenizer = Tokenizer.from_buffer(content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
    except BaseException as error:  # the library's error for unreadable files is not an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise UserError(f"{path}: not a tokenizer ({' '.join(str(error).split())[:160]}); {RERUN}") from None


def _check_parts(value: Any, path: Path) -> None:
    """Raise UserError for long lists of a tokenizer's parts, long patterns and long replacements, at any depth.

    These limits bound one part. Several replacements in a row multiply the length of a text.
    """
    if not isinstance(value, dict | list):
        return
    parts = [value] if isinstance(value, dict) else value
    if isinstance(value, list) and len(value) > MAX_PARTS and isinstance(value[0], dict) and "type" in value[0]:
        raise UserError(f"{path}: has {len(value)} parts in a row, expected at most {MAX_PARTS}; {RERUN}")
    for part in parts:
        if isinstance(part, list):
            _check_parts(part, path)
        if not isinstance(part, dict):
            continue
        pattern, content = part.get("pattern"), part.get("content")
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        too_long = part.get("type") == "Replace" and isinstance(content, str) and len(content) > MAX_REPLACEMENT
        if too_long or (part.get("type") == "Prepend" and len(str(part.get("prepend"))) > MAX_REPLACEMENT):
            raise UserError(f"{path}: inserts more than {MAX_REPLACEMENT} characters at once; {RERUN}")
        if regex is not None and (not isinstance(regex, str) or len(regex) > MAX_PATTERN):
            raise UserError(f"{path}: has a pattern of more than {MAX_PATTERN} characters; {RERUN}")
        for key, inner in part.items():
            if key not in ("vocab", "merges"):
                _check_parts(inner, path)
