"""saywhich find TEXT FOLDER…: the photos with the highest listener scores for a text."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import UserError, one_line
from saywhich.commands import chosen_model, model_option

if TYPE_CHECKING:
    from saywhich.vector_cache import Looked


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("text", metavar="TEXT", help="what the photo shows, in a sentence")
    parser.add_argument("photos", nargs="+", metavar="FOLDER", help="folders of photos, or photos")
    model_option(parser)
    parser.add_argument("--top", type=int, default=10, metavar="N", help="how many; default: %(default)s")
    parser.add_argument("--html", metavar="OUT", help="write a page with the photos, too")


def run(options: Namespace) -> int:
    """Print the retrieved photos with their scores, best first; return 1 where a photo could not be read, else 0.

    Raises UserError for a `--top` below 1.
    """
    import numpy as np

    from saywhich.model_files import locate_model
    from saywhich.photos import photo_files, unlike_note
    from saywhich.text_encoder import TextEncoder
    from saywhich.vector_cache import gallery_vectors

    if options.top < 1:
        raise UserError(f"--top {options.top}: give 1 or more")
    places, place = photo_files(options.photos), locate_model(chosen_model(options))
    ear, broken = TextEncoder.of(place), 0
    if unknown := ear.unknown(options.text):
        note = f"note: words that are not in the vocabulary of {place.folder}: {', '.join(unknown)}"
        print(one_line(note), file=sys.stderr)

    def look(paths: Sequence[str]) -> Iterator[Looked]:
        nonlocal broken
        from saywhich.loading import load_model
        from saywhich.streaming import PhotoStream

        photos = PhotoStream(load_model(place.folder))
        yield from photos.embed(paths)
        broken = photos.broken

    seen = gallery_vectors(places, place.digest, ear.size, look)
    scores = seen.vectors @ ear(options.text)
    found = [(seen.files[i], float(scores[i])) for i in np.argsort(-scores, kind="stable")[: options.top]]
    for file, score in found:
        print(f"{score:.3f}\t{one_line(str(file))}")
    if unlike := unlike_note(seen.contents, seen.files):
        print(unlike, file=sys.stderr)
    if options.html:
        from saywhich.search_page import write_page

        write_page(Path(options.html), options.text, found)
    return int(broken > 0)
