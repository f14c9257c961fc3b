"""Reader of TGIF as published (Li et al., CVPR 2016): a table of URLs and sentences, and three lists of URLs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from pipeline.data.corpus import SPLITS, AnnotatedCaption, Corpus, CorpusImage
from pipeline.readers.annotation_file import FilePosition, UniqueNames, iterate_lines, show_json
from pipeline.readers.checks import make_caption
from pipeline.readers.corpus_format import CorpusFormat, CorpusSource, has_image_lists


def read_tgif(captions: Path, lists: Mapping[str, Path]) -> Corpus:
    """Read the table `tgif-v1.0.tsv` and the list of each split, such as `splits/train.txt`.

    A line of the table is a URL, a tab and a sentence; a line of a list is a URL. A GIF's file name is the last part of
    its URL, such as `tumblr_mevmyaKtDf1rgvhr8o1_500.gif`. Sentences of GIFs in no list are omitted. Images are in the
    order of the lists. Raises UserError with file and line.
    """
    captions = Path(captions)
    lists = {split: Path(file) for split, file in lists.items()}
    sentences: dict[str, dict[AnnotatedCaption, None]] = {}
    for row, line in iterate_lines(captions):
        url, tab, sentence = line.partition("\t")
        if not tab:
            row.fail(f"a line is a URL, a tab and a sentence, not {show_json(line)}; correct it")
        # a repeated sentence counts once
        sentences.setdefault(_parse_file_name(url, row), {})[make_caption(sentence, None, row)] = None
    names, images = UniqueNames("GIF"), []
    for split, file in lists.items():
        for row, url in iterate_lines(file):
            name = _parse_file_name(url, row)
            names.add(name, row)
            if name not in sentences:
                row.fail(f"the GIF {show_json(name)} has no sentence in {captions.name}; add one or remove this line")
            images.append(CorpusImage(name, name, split, tuple(sentences[name])))
    return Corpus("tgif", tuple(images), (captions, *lists.values()))


def _parse_file_name(url: str, position: FilePosition) -> str:
    """Return the last part of the path of a GIF's URL.

    Raises a UserError that names `position` for a text that is not an http or https URL with a path.
    """
    url = url.strip()
    try:
        name = PurePosixPath(urlsplit(url).path).name
    except ValueError:  # brackets around something other than an IP address
        name = ""
    if not url.startswith(("http://", "https://")) or not name:
        position.fail(f"a GIF's URL is expected here, not {show_json(url)}; correct it")
    return name


def _read(source: CorpusSource) -> Corpus:
    return read_tgif(source.files["captions"], {split: source.files[split] for split in SPLITS})


TGIF = CorpusFormat(
    "tgif",
    "format tgif takes annotations: {captions: table, train: list, val: list, test: list} and no other setting",
    has_image_lists,
    _read,
)
