"""Captions in letters that a judge's tokenizer does not know, as captions in another script than its training texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

SPACES = "▁Ġ"  # marks of spaces, which some tokenizers count as tokens


def foreign_captions(
    texts: Sequence[str], tokenise: Callable[[str], Sequence[Any]], unknown: str | None = None
) -> list[str]:
    """Return the captions of which more than half of the tokens are `unknown`, or that have more tokens than letters.

    A tokenizer splits letters that it does not know into bytes, so that a caption has more tokens than characters
    (without spaces). ASCII captions never count.
    """
    found = []
    for text in texts:
        if text.isascii():
            continue
        tokens = tokenise(text)
        characters = sum(not each.isspace() for each in unicodedata.normalize("NFKC", text))
        if len(tokens) > characters or 2 * tokens.count(unknown) > len(tokens):
            found.append(text)
    return found


def foreign_to_hub_tokenizer(texts: Sequence[str], tokenizer: Any) -> list[str]:
    """Return the captions that are foreign to a tokenizer of transformers."""

    def tokenise(text: str) -> list[str]:
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return [token for token in tokenizer.convert_ids_to_tokens(ids) if token.strip(SPACES)]

    return foreign_captions(texts, tokenise, tokenizer.unk_token)
