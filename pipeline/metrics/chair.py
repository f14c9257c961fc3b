"""CHAIR (Rohrbach et al. 2018): objects in captions that are not in the image.

An image's objects are mentioned in its human captions or annotated in the image. The paper counts only objects of
COCO's categories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain

from pipeline.errors import UserError
from pipeline.metrics.object_words import OBJECTS

MAX_PHRASE = 3  # words per phrase
# "es" is removed only after a sibilant or an o: "capes" is not a plural of "cap"
PLURALS = (
    *(("s", ""), ("ies", "y"), ("ves", "f"), ("ves", "fe")),
    *((f"{sibilant}es", sibilant) for sibilant in ("s", "x", "z", "ch", "sh", "o")),
)
Words = Sequence[str]


def compute_chair(
    captions: Sequence[Words], references: Sequence[Sequence[Words]], annotated: Sequence[Iterable[str]] = ()
) -> dict[str, float]:
    """Return CHAIR of N captions against their images' human captions, all as lower-case words.

    `annotated` are the names of the objects in each of the N images, such as COCO's categories, in upper or lower
    case; () for none.

    CHAIR_i is the share of mentions whose object is not in the image; it is omitted if there are no mentions. CHAIR_s
    is the share of captions with such a mention. `objects` is the number of mentions per caption. Raises UserError if
    there are no captions or if captions and references differ in number. Raises ValueError if `annotated` is neither
    empty nor of length N.
    """
    absent, mentioned = zip(*count_objects(captions, references, annotated), strict=True)
    mentions = sum(mentioned)
    shares = {"CHAIR_i": sum(absent) / mentions} if mentions else {}
    return shares | {"CHAIR_s": sum(map(bool, absent)) / len(captions), "objects": mentions / len(captions)}


def count_objects(
    captions: Sequence[Words], references: Sequence[Sequence[Words]], annotated: Sequence[Iterable[str]] = ()
) -> list[tuple[int, int]]:
    """Count the mentions of absent objects, and of all objects, in each caption.

    Raises UserError as `compute_chair` does.
    """
    if len(captions) != len(references) or not len(captions):
        raise UserError(
            f"CHAIR: need as many captions as references, one or more (got {len(captions)} and {len(references)})"
        )
    mentioned = [find_mentioned_objects(tuple(caption)) for caption in captions]
    present = [set(chain.from_iterable(find_mentioned_objects(tuple(text)) for text in human)) for human in references]
    for objects, names in zip(present, annotated, strict=bool(annotated)):
        objects.update(chain.from_iterable(find_mentioned_objects(tuple(name.lower().split())) for name in names))
    pairs = zip(mentioned, present, strict=True)
    return [(sum(name not in objects for name in names), len(names)) for names, objects in pairs]


@lru_cache(2**16)  # an evaluation counts the objects of the same references for several captions
def find_mentioned_objects(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the objects that a caption mentions, by name; the longest phrase counts, so a hot dog is not a dog."""
    objects, position = list[str](), 0
    while position < len(words):
        for length in range(min(MAX_PHRASE, len(words) - position), 0, -1):
            if name := _find_object(" ".join(words[position : position + length])):
                objects.append(name)
                break
        position += length
    return tuple(objects)


@cache
def _find_object(phrase: str) -> str | None:
    """Return the object named by a word or phrase in singular or plural, or None."""
    return next((OBJECTS[form] for form in (phrase, *_list_singulars(phrase)) if form in OBJECTS), None)


def _list_singulars(word: str) -> Iterator[str]:
    return (word.removesuffix(ending) + singular for ending, singular in PLURALS if word.endswith(ending))
