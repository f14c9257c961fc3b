"""The prepared form of a data set: Parquet tables of images and captions, and the vocabulary."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.data.corpus import SPLITS, Corpus
from pipeline.data.tokenizer_vocabulary import TOKENIZER, load_vocabulary
from pipeline.errors import UserError
from pipeline.runtime.checksums import check_checksums, read_checksummed_json, serialise_with_checksum
from pipeline.runtime.files import atomic_path, compute_sha256, write_atomically
from pipeline.vocabulary import Vocabulary

IMAGES = pa.schema({"image": pa.int64(), "id": pa.string(), "file": pa.string(), "split": pa.string()})
OBJECTS = "objects.json"  # names of the annotated objects, by image id
CAPTIONS = pa.schema(
    {"image": pa.int64(), "text": pa.string(), "words": pa.list_(pa.string()), "tokens": pa.list_(pa.int32())}
)


def write_prepared(
    corpus: Corpus,
    out: Path,
    min_count: int | None,
    max_words: int,
    count_words: Literal["train", "all"] = "train",
    words: int | None = None,
    tokenizer: str | None = None,
) -> dict[str, Any]:
    """Write images.parquet, captions.parquet, vocabulary.json and manifest.json into `out`; return the manifest.

    The vocabulary is the corpus's own, or the words that occur more than `min_count` times in the training split. Words
    are counted as annotated, in captions, also of skipped images, and in `corpus.attached`. With `count_words` "all"
    all splits count, as in ImageCaptioning.pytorch. The column `tokens` is clipped at `max_words`, the column `words`
    is not. `tokenizer` is the name of the tokenizer whose tokens are the corpus's vocabulary; its files are already in
    `out`. The manifest is written last: where it exists, the other files are complete. Raises UserError where the
    vocabulary is empty or its size, UNK included, is not `words`, or where the corpus's captions were cut before
    `max_words`.
    """
    out = Path(out)
    if corpus.max_caption_words is not None and max_words > corpus.max_caption_words:
        raise UserError(
            f"{corpus.sources[-1]}: its captions were cut after {corpus.max_caption_words} words, fewer than max_words "
            f"{max_words}; set max_words to {corpus.max_caption_words} or less"
        )
    vocabulary = corpus.vocabulary or _count_vocabulary(corpus, min_count or 0, count_words)
    if words not in (None, len(vocabulary)):
        remedy = "correct this number, or use the tokenizer or the annotations that it belongs to"
        if corpus.vocabulary is None:
            remedy = f"check min_count ({min_count}), count_words ({count_words}), and that the captions are complete "
            remedy += "and tokenised as published"
        raise UserError(
            f"{corpus.sources[0]}: the vocabulary has {len(vocabulary)} words, UNK included, and {words} are "
            f"expected (prepare.expected_counts.words); {remedy}"
        )
    images, captions = corpus.images, [caption for image in corpus.images for caption in image.captions]
    texts = (caption.text.split() if vocabulary.encodes_text else caption.words for caption in captions)
    token_lists = [vocabulary.encode(words) for words in texts]
    if lengths := [len(words) for words in token_lists if len(words) > max_words]:
        unit = "tokens" if vocabulary.encodes_text else "words"
        print(
            f"note: {len(lengths)} of {len(captions)} captions are longer than {max_words} {unit} (max_words), the "
            f"longest has {max(lengths)}; training uses their first {max_words}",
            file=sys.stderr,
        )
    image_columns = {name: [getattr(image, name) for image in images] for name in ("id", "file", "split")}
    image_table = pa.table({"image": np.arange(len(images)), **image_columns}, schema=IMAGES)
    caption_columns = {
        "image": np.repeat(np.arange(len(images)), [len(image.captions) for image in images]),
        "text": [caption.text for caption in captions],
        "words": [caption.words for caption in captions],
        "tokens": [words[:max_words] for words in token_lists],
    }
    caption_table = pa.table(caption_columns, schema=CAPTIONS)
    tokens = view_column(caption_table["tokens"].combine_chunks().values)  # tokens of all captions, concatenated
    # files of equal names are recorded by their paths
    name_counts = Counter(source.name for source in set(corpus.sources))
    source_names = {path: path.name if name_counts[path.name] == 1 else path.as_posix() for path in corpus.sources}
    manifest: dict[str, Any] = {
        "dataset": corpus.name,
        "images": corpus.counts(),
        "captions": {split: sum(len(i.captions) for i in images if i.split == split) for split in SPLITS},
        "words": len(vocabulary),
        "unknown": round(float(np.mean(tokens == vocabulary.unk)), 6),
        "settings": {"min_count": min_count, "max_words": max_words},
        "inputs": {source_names[source]: compute_sha256(source) for source in corpus.sources},
    }
    # only settings that differ from the defaults, so that earlier manifests stay equal to the byte
    if count_words != "train":
        manifest["settings"]["count_words"] = count_words
    if tokenizer is not None:
        manifest["tokenizer"] = {"name": tokenizer, "sha256": compute_sha256(out / TOKENIZER)}
    if corpus.skipped:
        manifest["skipped"] = [image.file for image in corpus.skipped]
    (out / "manifest.json").unlink(missing_ok=True)
    for name, table in (("images", image_table), ("captions", caption_table)):
        with atomic_path(out / f"{name}.parquet") as path:
            pq.write_table(table, path, compression="zstd")
    write_atomically(out / "vocabulary.json", vocabulary.dump())
    write_atomically(out / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    return manifest


def write_objects(objects: Mapping[str, Sequence[str]], images: Iterable[str], out: Path) -> None:
    """Write objects.json: the objects' names in each of `images`; an empty list for an image without annotations."""
    write_atomically(
        out / OBJECTS, serialise_with_checksum({"objects": {image: objects.get(image, []) for image in images}})
    )


@dataclass(frozen=True, eq=False)
class PreparedData:
    """M images and their C captions, sorted by image: image i has the captions first[i] … first[i+1] − 1."""

    folder: Path
    manifest: dict[str, Any]
    vocabulary: Vocabulary
    ids: pa.Array  # (M,) string
    files: pa.Array  # (M,) string: relative to the folder of the images
    splits: np.ndarray  # (M,) int8: index into train, val, test
    first: np.ndarray  # (M+1,) int64
    tokens: np.ndarray  # (C, T) int32: every caption, padded with EOS (0)

    @classmethod
    def load(cls, folder: Path) -> PreparedData:
        """Read the files of `write_prepared` in `folder`. Texts are read on demand.

        Raises UserError where the data are not prepared, or a file differs from its checksum. The prepare stage writes
        the checksums last; without them, damage is not detected.
        """
        folder = Path(folder)
        check_checksums(folder, "run the prepare stage again")
        try:
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            images = read_columns(folder / "images.parquet", IMAGES.names)
            captions = read_columns(folder / "captions.parquet", ["image", "tokens"])
            vocabulary = load_vocabulary(folder)
        except FileNotFoundError as error:
            raise UserError(f"{error.filename or folder}: the data are not prepared; run the prepare stage") from None
        splits = np.array([SPLITS.index(split) for split in images["split"].to_pylist()], np.int8)
        first = np.searchsorted(view_column(captions["image"]), np.arange(len(images) + 1))
        ids, files = images["id"].combine_chunks(), images["file"].combine_chunks()
        tokens = pad_lists(captions["tokens"].combine_chunks(), manifest["settings"]["max_words"])
        return cls(folder, manifest, vocabulary, ids, files, splits, first, tokens)

    def __len__(self) -> int:
        """Return M, the number of images."""
        return len(self.splits)

    @property
    def max_words(self) -> int:
        """Return the maximum length of a caption, in tokens of the vocabulary."""
        return self.tokens.shape[1]

    def rows(self, split: str) -> np.ndarray:
        """Return (B,) int64: the B images of `split`, in ascending order."""
        return np.flatnonzero(self.splits == SPLITS.index(split))

    def file(self, image: int) -> str:
        """Return the path of an image's file, relative to the folder of the images."""
        return self.files[image].as_py()

    def texts(self, image: int) -> list[str]:
        """Return the captions of an image as annotated."""
        return self._texts["text"][self.first[image] : self.first[image + 1]].to_pylist()

    def words(self, image: int) -> list[list[str]]:
        """Return the captions of an image as words, unclipped."""
        return self._texts["words"][self.first[image] : self.first[image + 1]].to_pylist()

    def captions(self, image: int) -> list[list[int]]:
        """Return the captions of an image as tokens, clipped, without EOS."""
        return [row[row > 0].tolist() for row in self.tokens[self.first[image] : self.first[image + 1]]]

    def get_whole_captions(self, image: int) -> list[list[int]]:
        """Return the captions of an image as tokens, unclipped, without EOS."""
        texts = [text.split() for text in self.texts(image)] if self.vocabulary.encodes_text else self.words(image)
        return [self.vocabulary.encode(words) for words in texts]

    def references(self, images: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return (B, K, T) int32: all captions of B images; rows beyond an image's own captions are all 0."""
        images = np.asarray(images, np.int64)
        first, last = self.first[images], self.first[images + 1]
        offsets = np.arange(max((last - first).max(initial=0), 0))
        index = first[:, None] + offsets
        return np.where((index < last[:, None])[..., None], self.tokens[np.minimum(index, len(self.tokens) - 1)], 0)

    def annotated_objects(self, images: np.ndarray) -> list[list[str]]:
        """Return the names of the annotated objects in each of `images`; [] without `prepare.instances`."""
        path = self.folder / OBJECTS
        if not path.is_file():
            return []
        objects = read_checksummed_json(path, "run the prepare stage again")["objects"]
        return [objects[name] for name in self.ids.take(images).to_pylist()]

    @cached_property
    def _texts(self) -> pa.Table:
        return read_columns(self.folder / "captions.parquet", ["text", "words"]).combine_chunks()


def read_columns(path: Path, columns: list[str]) -> pa.Table:
    """Return columns of a Parquet file. `pq.read_table` would first import all of pandas."""
    with pq.ParquetFile(path) as file:
        return file.read(columns)


def view_column(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return a read-only view of a column of numbers without nulls. PyArrow's `to_numpy` would import pandas."""
    return np.from_dlpack(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def _count_vocabulary(corpus: Corpus, min_count: int, count_words: Literal["train", "all"]) -> Vocabulary:
    all_images = (*corpus.images, *corpus.skipped)
    counted_images = [image for image in all_images if count_words == "all" or image.split == "train"]
    captions = (caption.words for image in counted_images for caption in image.captions)
    attached: Iterable[tuple[str, ...]] = ()
    if corpus.attached is not None:
        attached = corpus.attached.texts([count_words == "all" or image.split == "train" for image in corpus.images])
    vocabulary = Vocabulary.count(chain(captions, attached), min_count)
    if len(vocabulary) == 1:
        counted_splits = "all splits" if count_words == "all" else "the training split"
        raise UserError(
            f"{corpus.sources[0]}: no word occurs more than {min_count} times in {counted_splits}; lower min_count"
        )
    return vocabulary


def pad_lists(tokens: pa.ListArray, width: int | None = None) -> np.ndarray:
    """Return (C, width) int32 of a list array, padded with 0; by default as wide as its longest list."""
    offsets, flat = view_column(tokens.offsets), view_column(tokens.values)
    lengths = np.diff(offsets)
    width = int(lengths.max(initial=0)) if width is None else width
    padded = np.zeros((len(tokens), width), np.int32)
    padded[np.arange(width) < lengths[:, None]] = flat[offsets[0] : offsets[-1]]
    return padded
