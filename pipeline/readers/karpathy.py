"""The form of Karpathy & Fei-Fei (CVPR 2015): dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json."""

from __future__ import annotations

from pathlib import Path

from pipeline.data.corpus import Corpus, Image
from pipeline.readers.annotation_file import Once, Place, get, load, rows_of, show
from pipeline.readers.checks import Known, caption_of, checked
from pipeline.readers.splits import split_of


def read_karpathy(annotations: Path, images: Path | None, known: Known = Known()) -> Corpus:
    """Read a Karpathy-form file, `dataset_*.json`, and open every image, where there are any.

    `filepath` of an image, where there is one, is a folder below `images`; the split `restval` joins train; sentences
    without `tokens` are tokenised. Raises UserError, one line with file and place, for whatever is wrong.
    """
    annotations = Path(annotations)
    text, data = load(annotations)
    rows = rows_of(data, "images", annotations)
    ids, files, sentence_ids = Once("image id"), Once("image file"), Once("sentence id")
    read = []
    for index, row in enumerate(rows):
        place = Place(annotations, text, "images", index)
        file = (Path(get(row, "filepath", str, place, "")) / get(row, "filename", str, place)).as_posix()
        image_id = row.get("cocoid", row.get("imgid", file))
        ids.add(image_id, place)
        files.add(file, place)
        captions = []
        for number, sentence in enumerate(get(row, "sentences", list, place)):
            part = place.at(f"sentences[{number}]")
            if not isinstance(sentence, dict):
                part.fail(f"a sentence is an object with `raw`, not {show(sentence)}")
            if "sentid" in sentence:
                sentence_ids.add(sentence["sentid"], part)
            if "imgid" in sentence and sentence["imgid"] != row.get("imgid", sentence["imgid"]):
                part.fail(f"the caption is of image {sentence['imgid']}, which is not the image it stands under")
            captions.append(caption_of(get(sentence, "raw", str, part), sentence.get("tokens"), part))
        if not captions:
            place.fail(f"image {file} has no captions")
        read.append(Image(str(image_id), file, split_of(get(row, "split", str, place), place), tuple(captions)))
    name = data.get("dataset")
    restval = sum(row["split"] == "restval" for row in rows)
    corpus = Corpus(name if isinstance(name, str) else annotations.stem, tuple(read), (annotations,), restval)
    return checked(corpus, images, known)
