"""Detection of captions in a script that is foreign to a judge's tokenizer."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

SPACES = "▁Ġ"  # marks of spaces, which some tokenizers count as tokens


def find_foreign_captions(
    texts: Sequence[str], tokenise: Callable[[str], Sequence[Any]], unknown: str | None = None
) -> list[str]:
    """Return the captions with mostly `unknown` tokens, or with more tokens than characters (without spaces).

    A tokenizer splits unknown letters into bytes, which gives more tokens than characters. ASCII captions are never
    foreign. `unknown` is the tokenizer's unknown token, if it has one.
    """
    foreign_captions = []
    for text in texts:
        if text.isascii():
            continue
        tokens = tokenise(text)
        characters = sum(not each.isspace() for each in unicodedata.normalize("NFKC", text))
        if len(tokens) > characters or 2 * tokens.count(unknown) > len(tokens):
            foreign_captions.append(text)
    return foreign_captions


def find_foreign_to_hub_tokenizer(texts: Sequence[str], tokenizer: Any) -> list[str]:
    """Return the captions that are foreign to a tokenizer of transformers."""

    def tokenise(text: str) -> list[str]:
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return [token for token in tokenizer.convert_ids_to_tokens(ids) if token.strip(SPACES)]

    return find_foreign_captions(texts, tokenise, tokenizer.unk_token)
