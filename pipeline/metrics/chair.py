"""CHAIR (Rohrbach et al. 2018): objects in captions that nobody says of the image, without facts about images.

An image's objects are those that its human captions mention; the paper adds COCO's segmentations, and knows COCO's
categories alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain

from pipeline.errors import UserError
from pipeline.metrics.object_words import OBJECTS

LONGEST = 3  # words of a phrase
PLURALS = (("s", ""), ("es", ""), ("ies", "y"), ("ves", "f"), ("ves", "fe"))
Words = Sequence[str]


def chair(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> dict[str, float]:
    """CHAIR of N captions and the human captions of the image of each, all as words in lower case.

    CHAIR_i: of the objects that captions mention, each time one is mentioned, share that no reference mentions (left
    out where none is mentioned); CHAIR_s: share of captions that mention such an object; objects: mentions per caption.
    Raises UserError where there are no captions or the two differ in number.
    """
    if len(captions) != len(references) or not len(captions):
        raise UserError(f"CHAIR: {len(captions)} captions and references of {len(references)}; give both, and some")
    said = [objects(caption) for caption in captions]
    known = [set(chain.from_iterable(map(objects, each))) for each in references]
    wrong = [sum(name not in there for name in names) for names, there in zip(said, known, strict=True)]
    mentions = sum(map(len, said))
    return {
        **({"CHAIR_i": sum(wrong) / mentions} if mentions else {}),
        "CHAIR_s": sum(map(bool, wrong)) / len(captions),
        "objects": mentions / len(captions),
    }


def objects(words: Words) -> list[str]:
    """The objects that a caption mentions, by their names; the longest phrase counts: a hot dog is no dog."""
    found, place = [], 0
    while place < len(words):
        for length in range(min(LONGEST, len(words) - place), 0, -1):
            if name := _object(" ".join(words[place : place + length])):
                found.append(name)
                break
        place += length
    return found


@cache
def _object(phrase: str) -> str | None:
    """The name of the object that a word or phrase in singular or plural means."""
    return next((OBJECTS[form] for form in (phrase, *_singulars(phrase)) if form in OBJECTS), None)


def _singulars(word: str) -> Iterator[str]:
    return (word.removesuffix(ending) + instead for ending, instead in PLURALS if word.endswith(ending))
