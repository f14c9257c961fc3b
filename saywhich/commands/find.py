"""saywhich find TEXT FOLDER…: the photos with the highest listener scores for a text."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import UserError, escape_line
from saywhich.commands import add_model_option, choose_model_folder
from saywhich.outputs import check_outputs, print_lines
from saywhich.pretrained.pretrained_options import add_listener, choose_listener

if TYPE_CHECKING:
    import numpy as np

    from saywhich.vector_cache import EmbeddedPhotos, PhotoGallery


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("text", metavar="TEXT", help="a sentence about the photo")
    parser.add_argument("photos", nargs="+", metavar="FOLDER", help="folders of photos, or photos")
    add_model_option(parser)
    add_listener(parser)
    parser.add_argument("--top", type=int, default=10, metavar="N", help="the number of photos; default: %(default)s")
    parser.add_argument("--html", metavar="OUT", help="write a page with the photos, too")


def run(options: Namespace) -> int:
    """Print the retrieved photos with their scores, best first; return 1 where a photo could not be read, else 0.

    Raises UserError for a `--top` below 1, and where a model or the photos cannot be used.
    """
    import numpy as np

    from saywhich.photos import format_unlike_note, list_photo_files

    if options.top < 1:
        raise UserError(f"--top {options.top}: give 1 or more")
    files = list_photo_files(options.photos)
    check_outputs(options.html, inputs=files)
    if name := choose_listener(options):
        gallery, scores = _search_pretrained(name, options.text, files)
    else:
        gallery, scores = _search_trained(choose_model_folder(options), options.text, files)
    hits = [(gallery.files[i], float(scores[i])) for i in np.argsort(-scores, kind="stable")[: options.top]]
    print_lines(f"{score:.3f}\t{escape_line(str(file))}" for file, score in hits)
    if note := format_unlike_note(gallery.contents, gallery.files):
        print(note, file=sys.stderr)
    if options.html:
        from saywhich.search_page import write_page

        write_page(Path(options.html), options.text, hits)
    return int(len(gallery.files) < len(files))


def _search_pretrained(name: str, text: str, files: list[Path]) -> tuple[PhotoGallery, np.ndarray]:
    """Return the readable photos and a pretrained listener's scores of them."""
    from saywhich.judging.photo_vectors import encode_gallery
    from saywhich.pretrained.pretrained_captioner import open_listener

    listener = open_listener(name)
    if listener.find_unknown([text]):
        print(escape_line(f"note: most words of this text are unknown to {listener.name}: {text}"), file=sys.stderr)
    gallery = encode_gallery(listener, files)
    return gallery, gallery.vectors @ listener.encode_texts([text])[0].numpy()


def _search_trained(folder: Path, text: str, files: list[Path]) -> tuple[PhotoGallery, np.ndarray]:
    """Return the readable photos and a trained listener's scores of them."""
    from saywhich.model_files import locate_model
    from saywhich.text_encoder import TextEncoder
    from saywhich.vector_cache import embed_with_cache

    model = locate_model(folder)
    text_encoder = TextEncoder.from_files(model)
    if unknown := text_encoder.find_unknown(text):
        note = f"note: words that are not in the vocabulary of {model.folder}: {', '.join(unknown)}"
        print(escape_line(note), file=sys.stderr)

    def embed(paths: Sequence[str]) -> Iterator[EmbeddedPhotos]:
        from saywhich.loading import load_model
        from saywhich.streaming import stream_embeddings

        return stream_embeddings(load_model(model.folder), paths)

    gallery = embed_with_cache(files, model.digest, text_encoder.size, embed)
    return gallery, gallery.vectors @ text_encoder(text)
