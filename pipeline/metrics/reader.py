"""Caption statistics that readers notice, computed against human captions of the same images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from pipeline.errors import UserError
from pipeline.metrics.word_lists import COLOURS, FUNCTION_WORDS

Words = Sequence[str]


def compute_reader_statistics(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> dict[str, float]:
    """Return statistics of N captions against their images' human captions, all as lower-case words.

    `repeated` is the share of captions with a repeated content word (not in `FUNCTION_WORDS`). `content_words` is the
    share of content words that also occur in a reference; `colour_words` is the same share of colour words. A share
    without such words is omitted. Raises UserError if there are no captions or if captions and references differ in
    number.
    """
    if len(captions) != len(references) or not len(captions):
        raise UserError(
            f"reader: need as many captions as references, one or more (got {len(captions)} and {len(references)})"
        )
    content = [[word for word in caption if word not in FUNCTION_WORDS] for caption in captions]
    colours = [[COLOURS[word] for word in caption if word in COLOURS] for caption in captions]
    reference_words = [set(chain.from_iterable(each)) for each in references]
    reference_colours = [{COLOURS[word] for word in each if word in COLOURS} for each in reference_words]
    return {
        "repeated": sum(len(set(words)) < len(words) for words in content) / len(captions),
        **_compute_share("content_words", content, reference_words),
        **_compute_share("colour_words", colours, reference_colours),
    }


def leave_one_out(references: Sequence[Sequence[Words]]) -> tuple[list[Words], list[list[Words]]]:
    """Return all human captions, and for each the other captions of its image; images with one caption are skipped."""
    pairs = [
        (caption, [*captions[:k], *captions[k + 1 :]])
        for captions in references
        if len(captions) > 1
        for k, caption in enumerate(captions)
    ]
    return [caption for caption, _ in pairs], [others for _, others in pairs]


def _compute_share(name: str, captions: Sequence[Words], references: Sequence[set[str]]) -> dict[str, float]:
    matches = [word in reference for words, reference in zip(captions, references, strict=True) for word in words]
    return {name: sum(matches) / len(matches)} if matches else {}
