"""How varied captions are, and how often they stammer or break off."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pipeline.errors import UserError
from pipeline.vocabulary import EOS

_FUNCTION_WORDS = """
    a an and are as at by for from her his in into is it its of off on onto or out over that the their there to under up
    was while with
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())


def diversity(captions: Sequence[str], tokens: Sequence[Sequence[int]]) -> dict[str, float]:
    """Figures of N captions, as text of words joined by blanks and as ids (N rows, 0 where a caption ended).

    words_per_caption; distinct_captions: different captions per caption; words_used: different words; Div-1 and Div-2:
    different words and pairs of neighbouring words per word said (Shetty et al., 2017, over several captions of one
    image; here each image has one, so over all N: more captions make them smaller, only equal N compare);
    repetition and unfinished: shares of captions that `repeats`, and that have no EOS.
    Raises UserError where there are none or the two differ in number.
    """
    if len(captions) != len(tokens) or not len(captions):
        raise UserError(
            f"diversity: {len(captions)} captions as text and {len(tokens)} as ids; give the same, and some"
        )
    words = [caption.split() for caption in captions]
    count, length = len(words), sum(map(len, words))
    used = {word for caption in words for word in caption}
    pairs = {pair for caption in words for pair in pairwise(caption)}
    return {
        "words_per_caption": length / count,
        "distinct_captions": len({tuple(caption) for caption in words}) / count,
        "words_used": len(used),
        "Div-1": len(used) / max(length, 1),
        "Div-2": len(pairs) / max(length, 1),
        "repetition": sum(map(repeats, words)) / count,
        "unfinished": sum(EOS not in caption for caption in tokens) / count,
    }


def repeats(words: Sequence[str]) -> bool:
    """Does a caption say a word twice in a row, or the same two words twice?

    Two function words do not count ("in front of a … of a"): human captions say them again as well.
    """
    bigrams = list(pairwise(words))
    if any(first == second for first, second in bigrams):
        return True
    content = [bigram for bigram in bigrams if not FUNCTION_WORDS.issuperset(bigram)]
    return len(set(content)) < len(content)
