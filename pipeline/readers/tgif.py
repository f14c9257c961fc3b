"""TGIF as published (Li et al., CVPR 2016): a table of URLs and sentences, and three lists of URLs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from pipeline.data.corpus import Caption, Corpus, Image
from pipeline.readers.annotation_file import Once, Place, lines_of, show
from pipeline.readers.checks import caption_of


def read_tgif(captions: Path, lists: Mapping[str, Path]) -> Corpus:
    """Read `tgif-v1.0.tsv` and {split: its list, `splits/train.txt`, …}.

    A line of the table is a URL, a tab and a sentence; a line of a list is a URL. A GIF's file has the last part of its
    URL as its name, `tumblr_mevmyaKtDf1rgvhr8o1_500.gif`. Sentences of GIFs that no list names are left out. Images are
    in the order of the lists. Raises UserError with file and line.
    """
    captions = Path(captions)
    lists = {split: Path(file) for split, file in lists.items()}
    said: dict[str, dict[Caption, None]] = {}
    for row, line in lines_of(captions):
        url, tab, sentence = line.partition("\t")
        if not tab:
            row.fail(f"a line is a URL, a tab and a sentence, not {show(line)}")
        said.setdefault(_file(url, row), {})[caption_of(sentence, None, row)] = None  # said twice, it counts once
    once, read = Once("GIF"), []
    for split, file in lists.items():
        for row, url in lines_of(file):
            name = _file(url, row)
            once.add(name, row)
            if name not in said:
                row.fail(f"the GIF {show(name)} has no sentence in {captions.name}")
            read.append(Image(name, name, split, tuple(said[name])))
    return Corpus("tgif", tuple(read), (captions, *lists.values()))


def _file(url: str, place: Place) -> str:
    """The name of a GIF's file."""
    url = url.strip()
    try:
        name = PurePosixPath(urlsplit(url).path).name
    except ValueError:  # brackets, which are for addresses of numbers
        name = ""
    if not url.startswith(("http://", "https://")) or not name:
        place.fail(f"a GIF's URL is to stand here, not {show(url)}")
    return name
