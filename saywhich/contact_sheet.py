"""An HTML page of captioned photos: a contact sheet without scripts, with thumbnails inside the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import escape_line
from pipeline.features.animated_thumbnail import make_animated_thumbnail
from saywhich.offline_page import PAGES, PLAIN_STYLE, write_offline_page
from saywhich.search_page import THUMBNAIL_SIDE, encode_thumbnail_url

if TYPE_CHECKING:
    from saywhich.captioning_model import Caption


def make_sheet_entry(file: Path, caption: Caption) -> Mapping[str, Any]:
    """Return the page's entry of a photo; its `candidates` are the other candidate captions, without repeats."""
    return {
        "name": escape_line(str(file)),
        "url": file.resolve().as_uri(),
        "thumbnail": encode_thumbnail_url(file),
        "animation": make_animated_thumbnail(file, THUMBNAIL_SIDE),
        "caption": escape_line(caption.text),
        "rank": "" if caption.rank is None else f"{caption.rank}/{caption.of}",
        "first": caption.rank == 1,
        "unlike": caption.unlike,
        "candidates": [escape_line(text) for text in dict.fromkeys(caption.candidates) if text != caption.text],
    }


def write_sheet(out: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write the page of the photos `entries`, in that order, to `out`."""
    ranked = [entry for entry in entries if entry["rank"]]
    first = sum(entry["first"] for entry in ranked)
    styles = [PLAIN_STYLE, PAGES / "captions.css"]
    write_offline_page(out, "captions.html", styles=styles, photos=entries, ranked=len(ranked), first=first)
