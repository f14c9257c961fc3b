"""Karpathy-form JSON, COCO annotations and cocotalk files, read and checked into one form."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.data.annotation_file import Once, Place, get, load, rows_of, show
from pipeline.data.cocotalk import read_cocotalk, with_whole_captions
from pipeline.data.corpus import SPLITS, Caption, Corpus, Image, check_images, tokenise
from pipeline.errors import UserError


def read_corpus(
    name: str, form: str, root: Path, annotations: str | Mapping[str, str], images: Path | None
) -> Corpus:
    """Read a data set of the form `karpathy`, `coco` or `cocotalk` and call it `name`; `annotations` lie below `root`.

    Without `images` no image file is looked for.
    """
    if form == "karpathy" and isinstance(annotations, str):
        corpus = read_karpathy(Path(root) / annotations, images)
    elif form == "cocotalk" and not isinstance(annotations, str):
        corpus = read_cocotalk(Path(root) / annotations["json"], Path(root) / annotations["labels"])
        if "captions" in annotations:
            corpus = with_whole_captions(corpus, read_karpathy(Path(root) / annotations["captions"], None))
        corpus = _checked(corpus, images)
    elif form == "coco" and not isinstance(annotations, str):
        corpus = read_coco({split: Path(root) / file for split, file in annotations.items()}, images)
    else:
        raise UserError(
            f"{root}: the form karpathy takes one annotation file, coco one a split, cocotalk json and labels; "
            f"{form} was given other"
        )
    return replace(corpus, name=name)


def read_karpathy(annotations: Path, images: Path | None) -> Corpus:
    """Read the form of Karpathy & Fei-Fei (CVPR 2015), `dataset_*.json`, and open every image, where there are any.

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
            captions.append(_caption(get(sentence, "raw", str, part), sentence.get("tokens"), part))
        if not captions:
            place.fail(f"image {file} has no captions")
        read.append(Image(str(image_id), file, _split(get(row, "split", str, place), place), tuple(captions)))
    name = data.get("dataset")
    corpus = Corpus(name if isinstance(name, str) else annotations.stem, tuple(read), (annotations,))
    return _checked(corpus, images)


def read_coco(annotations: Path | Mapping[str, Path], images: Path | None, splits: Path | None = None) -> Corpus:
    """Read COCO caption annotations (pycocotools) and open every image, where there are any.

    `annotations` is one file a split, {split: file}, or one file with `splits` beside it: a JSON file of the form
    {split: [image ids or file names]}, or a Karpathy-form file, of which only `filename` and `split` are read. Images
    that `splits` does not name are left out. COCO keeps the images of `captions_train2017.json` in a folder
    `train2017`: such a folder below `images` is used where there is one. Raises UserError as `read_karpathy`.
    """
    if isinstance(annotations, Mapping):
        if splits is not None:
            raise UserError("splits: give either one annotation file a split or a file of splits, not both")
        chosen = {split: Path(file) for split, file in annotations.items()}
        sources = tuple(chosen.values())
        read = [image for split, file in chosen.items() for image in _coco_images(file, images, split)]
    else:
        if splits is None:
            raise UserError(
                f"{annotations}: one COCO file says nothing of splits; give {{split: file}} or a split file"
            )
        sources = (Path(annotations), Path(splits))
        read = list(_coco_images(sources[0], images, _read_splits(sources[1])))
    seen: dict[str, str] = {}
    for image in read:
        if seen.setdefault(image.id, image.split) != image.split:
            raise UserError(f"{sources[0]}: image {image.id} is in {seen[image.id]} and in {image.split}; drop it from one")
    return _checked(Corpus(sources[0].stem, tuple(read), sources), images)


def _coco_images(file: Path, images: Path | None, splits: str | Mapping[str, str]) -> Iterator[Image]:
    """The images of one COCO file, in its order; `splits` is their split, or maps their ids and file names to it."""
    from pycocotools.coco import COCO

    text, data = load(file)
    rows, annotations = rows_of(data, "images", file), rows_of(data, "annotations", file)
    ids, files, caption_ids = Once("image id"), Once("image file"), Once("caption id")
    for index, row in enumerate(rows):
        place = Place(file, text, "images", index)
        ids.add(get(row, "id", int | str, place), place)
        files.add(get(row, "file_name", str, place), place)
    for index, row in enumerate(annotations):
        place = Place(file, text, "annotations", index)
        caption_ids.add(get(row, "id", int | str, place), place)
        if get(row, "image_id", int | str, place) not in ids:
            place.fail(f"the caption is of image {row['image_id']}, which is not among the images")
    coco = COCO()
    coco.dataset = data
    with contextlib.redirect_stdout(io.StringIO()):  # it announces its progress
        coco.createIndex()
    numbers = {row["id"]: index for index, row in enumerate(annotations)}
    folder = file.stem.rpartition("_")[2]
    folder = folder if images is not None and (images / folder).is_dir() else ""
    for index, row in enumerate(rows):
        place = Place(file, text, "images", index)
        if isinstance(splits, str):
            split = _split(splits, place)
        elif (split := splits.get(str(row["id"]), splits.get(row["file_name"], ""))) == "":
            continue
        captions = [
            _caption(
                get(caption, "caption", str, Place(file, text, "annotations", numbers[caption["id"]])),
                None,
                Place(file, text, "annotations", numbers[caption["id"]]),
            )
            for caption in coco.imgToAnns.get(row["id"], [])
        ]
        if not captions:
            place.fail(f"image {row['file_name']} has no captions")
        yield Image(str(row["id"]), (Path(folder) / row["file_name"]).as_posix(), split, tuple(captions))


def _read_splits(file: Path) -> dict[str, str]:
    """Image id or file name → split."""
    text, data = load(file)
    if "images" in data:
        named = {}
        for index, row in enumerate(rows_of(data, "images", file)):
            place = Place(file, text, "images", index)
            named[get(row, "filename", str, place)] = _split(get(row, "split", str, place), place)
        return named
    named = {}
    for split, members in data.items():
        if not isinstance(members, list):
            raise UserError(f"{file}: `{split}` is to be a list of image ids or file names, not {show(members)}")
        for index, member in enumerate(members):
            place = Place(file, text, split, index)
            if str(member) in named:
                place.fail(f"image {member} stands here a second time")
            named[str(member)] = _split(split, place)
    return named


def _checked(corpus: Corpus, images: Path | None) -> Corpus:
    if empty := [split for split, count in corpus.counts().items() if count == 0]:
        raise UserError(
            f"{corpus.sources[-1]}: no image is in the split {empty[0]}; each of {', '.join(SPLITS)} needs one"
        )
    if images is None:
        return corpus
    if nameless := next((image.id for image in corpus.images if not image.file), None):
        raise UserError(f"{corpus.sources[0]}: image {nameless} has no file name; without image files set images: null")
    if not images.is_dir():
        raise UserError(f"{images}: the folder of images does not exist")
    check_images(images, (image.file for image in corpus.images))
    return corpus


def _split(name: str, place: Place) -> str:
    split = "train" if name == "restval" else name
    if split not in SPLITS:
        place.fail(f"the split {show(name)} is unknown; it is one of {', '.join(SPLITS)}, restval")
    return split


def _caption(text: str, words: Any, place: Place) -> Caption:
    if words is None:
        words = tokenise(text)
    elif not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        place.fail(f"`tokens` is to be a list of words, not {show(words)}")
    if not words or not text.strip():
        place.fail(f"the caption is empty ({show(text)})")
    return Caption(" ".join(text.split()), tuple(words))
