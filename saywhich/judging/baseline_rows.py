"""Baselines of the judged captions: people's own captions, and a trivial rule."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.data.corpus import tokenise
from pipeline.metrics.chair import find_mentioned_objects

HUMAN, RULE = "human", "a photo of a NOUN"
NOTHING = "something"  # where no object is named
VOWELS = tuple("aeiou")

Captions = Sequence[Sequence[str]]


def human_row(references: Captions) -> tuple[list[list[str]], list[list[str]]] | None:
    """Return each image's first reference as its caption, and its other references.

    Returns None where an image has no reference, as every image of a row needs a caption.
    """
    if not references or not all(references):
        return None
    return [[human[0]] for human in references], [list(human[1:]) for human in references]


def rule_row(captions: Captions, references: Captions) -> list[list[str]]:
    """Return "a photo of a NOUN" for each image, the first object that its references name, or else its captions."""
    found = []
    for own, human in zip(captions, references, strict=True):
        names = (name for text in (*human, *own) for name in find_mentioned_objects(tokenise(text)))
        noun = next(names, None)
        if noun is None:
            found.append([f"a photo of {NOTHING}"])
        else:
            found.append([f"a photo of {'an' if noun.startswith(VOWELS) else 'a'} {noun}"])
    return found
