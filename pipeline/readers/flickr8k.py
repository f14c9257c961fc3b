"""Reader of Flickr8k as first published (Hodosh et al., JAIR 47, 2013): captions and three lists of images."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pipeline.data.corpus import SPLITS, AnnotatedCaption, Corpus, CorpusImage
from pipeline.readers.annotation_file import UniqueNames, iterate_lines, show_json
from pipeline.readers.checks import make_caption
from pipeline.readers.corpus_format import CorpusFormat, CorpusSource, has_image_lists


def read_flickr8k(captions: Path, lists: Mapping[str, Path]) -> Corpus:
    """Read the captions `Flickr8k.token.txt` and the `lists` of images by split, such as `Flickr_8k.trainImages.txt`.

    A line of captions is `image.jpg#0`, a tab and the caption; a line of a list is an image's file name. Captions of
    images in no list are omitted. The published file has captions of 8,092 file names, and the lists have 8,000 names.
    The name `2258277193_586949ec62.jpg.1` has no photo. Images are in the order of the lists. Raises UserError for an
    unreadable file, and with file and line for a mistake in a line.
    """
    lists = {split: Path(file) for split, file in lists.items()}
    captions_by_image = _read_captions(Path(captions))
    image_names = UniqueNames("image")
    images = []
    for split, file in lists.items():
        for row, name in iterate_lines(file):
            name = name.strip()
            image_names.add(name, row)
            if name not in captions_by_image:
                row.fail(f"image {name} has no captions in {Path(captions).name}; add one or remove this line")
            images.append(
                CorpusImage(name, name, split, tuple(caption for _, caption in sorted(captions_by_image[name].items())))
            )
    return Corpus("flickr8k", tuple(images), (Path(captions), *lists.values()))


def _read_captions(file: Path) -> dict[str, dict[int, AnnotatedCaption]]:
    """Read the captions by image and by their number; raises UserError with file and line for a mistake in a line."""
    captions: dict[str, dict[int, AnnotatedCaption]] = {}
    for row, line in iterate_lines(file):
        match = re.fullmatch(r"([^\t]+)#(\d{1,9})\t(.*)", line)
        if match is None:
            row.fail(f"a line is `image.jpg#0`, a tab and the caption, not {show_json(line)}; correct it")
        name, number = match[1], int(match[2])
        if number in captions.setdefault(name, {}):
            row.fail(f"caption {name}#{number} occurs a second time; remove one")
        captions[name][number] = make_caption(match[3], None, row)
    return captions


def _read(source: CorpusSource) -> Corpus:
    return read_flickr8k(source.files["captions"], {split: source.files[split] for split in SPLITS})


FLICKR8K = CorpusFormat(
    "flickr8k",
    "format flickr8k takes annotations {captions: file, train: list, val: …, test: …} and no other setting",
    has_image_lists,
    _read,
)
