"""Reader of the format of Karpathy & Fei-Fei (CVPR 2015): dataset_coco.json, dataset_flickr8k.json and others."""

from __future__ import annotations

from pathlib import Path

from pipeline.data.corpus import Corpus, CorpusImage
from pipeline.readers.annotation_file import JsonFile, UniqueNames, show_json
from pipeline.readers.checks import make_caption
from pipeline.readers.corpus_format import CorpusFormat, is_one_file
from pipeline.readers.splits import count_restval, parse_split


def read_karpathy(annotations: Path) -> Corpus:
    """Read a file in Karpathy's format, `dataset_*.json`.

    An image's optional `filepath` is a subfolder of the images' folder. The split `restval` joins train. Sentences
    without `tokens` are tokenised. Raises UserError with file and position.
    """
    annotations = Path(annotations)
    source = JsonFile(annotations)
    rows, corpus_images = source.entries("images"), []
    ids, files, sentence_ids = UniqueNames("image id"), UniqueNames("image file"), UniqueNames("sentence id")
    for row in rows:
        file = (Path(row.get("filepath", str, "")) / row.get("filename", str)).as_posix()
        image_id = row.value.get("cocoid", row.value.get("imgid", file))
        ids.add(image_id, row)
        files.add(file, row)
        captions = []
        for sentence in row.parts("sentences"):
            entry = sentence.value
            if not isinstance(entry, dict):
                sentence.fail(f"a sentence is an object with `raw`, not {show_json(entry)}; correct it")
            if "sentid" in entry:
                sentence_ids.add(entry["sentid"], sentence)
            if "imgid" in entry and entry["imgid"] != row.value.get("imgid", entry["imgid"]):
                image = show_json(entry["imgid"])
                sentence.fail(f"the caption is of image {image}, not of this entry's image; move it there")
            captions.append(make_caption(sentence.get("raw", str), entry.get("tokens"), sentence))
        if not captions:
            row.fail(f"image {file} has no captions; remove the image or add a caption")
        corpus_images.append(CorpusImage(str(image_id), file, parse_split(row.get("split", str), row), tuple(captions)))
    name = source.data.get("dataset")
    name = name if isinstance(name, str) else annotations.stem
    return Corpus(name, tuple(corpus_images), (annotations,), count_restval(rows))


KARPATHY = CorpusFormat(
    "karpathy",
    "format karpathy takes annotations: file, and neither splits nor shares",
    is_one_file,
    lambda source: read_karpathy(source.file),
)
