"""Baselines of the judged captions: human captions, and a trivial rule."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.data.corpus import tokenise
from pipeline.metrics.chair import find_mentioned_objects

HUMAN, RULE = "human", "a photo of a NOUN"
DEFAULT_NOUN = "something"  # the noun of an image without a named object
VOWELS = tuple("aeiou")

Captions = Sequence[Sequence[str]]


def make_human_row(references: Captions) -> tuple[list[list[str]], list[list[str]]] | None:
    """Return each image's first reference as its caption, and its other references.

    Returns None without images, or where an image has no reference, since each image of a row needs a caption.
    """
    if not references or not all(references):
        return None
    return [[texts[0]] for texts in references], [list(texts[1:]) for texts in references]


def make_rule_row(captions: Captions, references: Captions) -> list[list[str]]:
    """Return "a photo of a NOUN" for each image: the first object named in its references, or else in its captions."""
    captions_by_rule = []
    for texts, reference_texts in zip(captions, references, strict=True):
        names = (name for text in (*reference_texts, *texts) for name in find_mentioned_objects(tuple(tokenise(text))))
        noun = next(names, None)
        if noun is None:
            captions_by_rule.append([f"a photo of {DEFAULT_NOUN}"])
        else:
            captions_by_rule.append([f"a photo of {'an' if noun.startswith(VOWELS) else 'a'} {noun}"])
    return captions_by_rule
