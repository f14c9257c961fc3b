"""What a reader of captions sees who has human captions of the same images beside them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from pipeline.errors import UserError
from pipeline.metrics.word_lists import COLOURS, FUNCTION_WORDS

Words = Sequence[str]


def reader(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> dict[str, float]:
    """Statistics of N captions and the human captions of the image of each, all as words in lower case.

    repeated: share of captions that say a content word (none of `FUNCTION_WORDS`) twice; content_words, colour_words:
    of these words, each time one is said, share that any of the references says, too. A share of nothing is left out.
    Raises UserError where there are no captions or the two differ in number.
    """
    if len(captions) != len(references) or not len(captions):
        raise UserError(f"reader: {len(captions)} captions and references of {len(references)}; give both, and some")
    content = [[word for word in caption if word not in FUNCTION_WORDS] for caption in captions]
    colours = [[COLOURS[word] for word in caption if word in COLOURS] for caption in captions]
    known = [set(chain.from_iterable(each)) for each in references]
    known_colours = [{COLOURS[word] for word in each if word in COLOURS} for each in known]
    return {
        "repeated": sum(len(set(words)) < len(words) for words in content) / len(captions),
        **_share("content_words", content, known),
        **_share("colour_words", colours, known_colours),
    }


def leave_one_out(references: Sequence[Sequence[Words]]) -> tuple[list[Words], list[list[Words]]]:
    """Each human caption, and the others of its image; of an image with one caption none."""
    pairs = [
        (caption, [*captions[:k], *captions[k + 1 :]])
        for captions in references
        if len(captions) > 1
        for k, caption in enumerate(captions)
    ]
    return [caption for caption, _ in pairs], [others for _, others in pairs]


def _share(name: str, said: Sequence[Words], known: Sequence[set[str]]) -> dict[str, float]:
    found = [word in there for words, there in zip(said, known, strict=True) for word in words]
    return {name: sum(found) / len(found)} if found else {}
