"""Checks of a corpus of any format: captions, counts, and decodable images."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.data.corpus import SPLITS, AnnotatedCaption, Corpus, check_images, tokenise
from pipeline.errors import UserError
from pipeline.readers.annotation_file import FilePosition, show_json
from pipeline.runtime.untrusted import leads_outside


def make_caption(text: str, words: Any, position: FilePosition) -> AnnotatedCaption:
    """Return a caption with single blanks between words; `words` None means that `tokenise` splits `text`.

    Raises a UserError that names `position` for an empty caption, and for `words` that are not a list of words.
    """
    if words is None:
        words = tokenise(text)
    elif not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        position.fail(f"`tokens` must be a list of words, not {show_json(words)}; correct it")
    if not words or not text.strip():
        position.fail(f"the caption is empty ({show_json(text)}); write one or more words, or remove the caption")
    return AnnotatedCaption(" ".join(text.split()), tuple(words))


def check_corpus(
    corpus: Corpus,
    images: Path | None,
    expected: Mapping[str, int] | None = None,
    corrupt: Collection[str] = (),
    missing: float = 0.0,
) -> Corpus:
    """Check the number of images per split, and decode every image of `corpus` in `images`; None decodes no image.

    `expected` has the number of annotated images of each checked split. Images that are absent or cannot be decoded are
    skipped if `corrupt` names their files, which are published broken. At most a share `missing` of all images may also
    be absent or undecodable, and is skipped. Raises UserError for other counts, and for a split that is empty before or
    after images are skipped. Raises UserError for a missing folder, and for an image without a file name. Raises
    UserError for a file whose name or link leads outside the folder. Raises UserError for any other image that is
    missing or cannot be decoded.
    """
    expected = expected or {}
    counts = corpus.counts()
    if empty := _find_empty_split(corpus):
        raise UserError(
            f"{corpus.sources[-1]}: no image is in the split {empty}; each of {', '.join(SPLITS)} needs one: add one"
        )
    if wrong_splits := [split for split in SPLITS if counts[split] != expected.get(split, counts[split])]:
        differences = ", ".join(
            f"{split} has {counts[split]} images and {expected[split]} are expected" for split in wrong_splits
        )
        hint = "take the right file, or correct prepare.expected_counts"
        if "train" in wrong_splits and counts["train"] < expected["train"] and corpus.restval == 0:
            hint = (
                f"no image is in the split restval, whose images join train: 30504 in Karpathy's split of COCO, and "
                f"{expected['train'] - counts['train']} are missing here; take a file that names them"
            )
        raise UserError(f"{corpus.sources[-1]}: {differences}; {hint}")
    if image_outside := next((image for image in corpus.images if leads_outside(image.file)), None):
        raise UserError(
            f"{corpus.sources[0]}: the file {show_json(image_outside.file)} of image {image_outside.id} lies outside "
            "the folder of images; write it relative to that folder, without .."
        )
    if images is None:
        return corpus
    if nameless := next((image.id for image in corpus.images if not image.file), None):
        raise UserError(
            f"{corpus.sources[0]}: image {nameless} has no file name; add it, or without image files set "
            "prepare.images: null"
        )
    if not images.is_dir():
        raise UserError(f"{images}: the folder of images does not exist; correct prepare.images")
    skipped = set(check_images(images, [image.file for image in corpus.images], corrupt, missing))
    remaining = replace(
        corpus,
        images=tuple(image for image in corpus.images if image.file not in skipped),
        skipped=tuple(image for image in corpus.images if image.file in skipped),
    )
    if empty := _find_empty_split(remaining):
        problem = f"all {counts[empty]} images of the split {empty} are skipped"
        raise UserError(f"{images}: {problem}; each of {', '.join(SPLITS)} needs one that can be decoded: add one")
    return remaining


def _find_empty_split(corpus: Corpus) -> str | None:
    """Return the first split without an image; None where every split has an image."""
    return next((split for split, count in corpus.counts().items() if not count), None)
