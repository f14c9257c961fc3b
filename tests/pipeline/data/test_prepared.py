import json
import re
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.data.prepared import PreparedData, write_prepared
from pipeline.errors import UserError
from pipeline.readers import read_karpathy
from pipeline.runtime.files import compute_sha256
from pipeline.vocabulary import Vocabulary


@pytest.fixture
def corpus(karpathy):
    return read_karpathy(karpathy()[0])


def test_the_vocabulary_has_the_words_above_min_count_in_the_training_split(corpus, tmp_path):
    write_prepared(corpus, tmp_path / "out", min_count=3, max_words=16)
    # train is images 0, 1, 4, 5 with 1, 2, 5, 1 captions: ball 9, red 7, a 6, the 2, one 1, big 1, on 1, grass 1
    assert PreparedData.load(tmp_path / "out").vocabulary.words == ("ball", "red", "a", "UNK")


def test_words_of_all_splits_are_counted_with_count_words_all(corpus, tmp_path):
    """As in ImageCaptioning.pytorch, words occur more than min_count times over all splits, and UNK is last."""
    manifest = write_prepared(corpus, tmp_path / "out", min_count=3, max_words=16, count_words="all", words=6)
    # all images have 1, 2, 3, 4, 5, 1, 2 and 3 captions: ball 21, red 16, a 11, the 6, one 4; big, on and grass 2
    assert PreparedData.load(tmp_path / "out").vocabulary.words == ("ball", "red", "a", "the", "one", "UNK")
    assert manifest["settings"] == {"min_count": 3, "max_words": 16, "count_words": "all"}


def test_an_unexpected_number_of_words_is_reported_with_the_settings(corpus, tmp_path):
    message = (
        r"dataset_balls.json: the vocabulary has 4 words, UNK included, and 6 are expected "
        r"\(prepare.expected_counts.words\); check min_count \(3\), count_words \(train\)"
    )
    with pytest.raises(UserError, match=message):
        write_prepared(corpus, tmp_path / "out", min_count=3, max_words=16, words=6)
    assert not (tmp_path / "out").exists()


def test_a_skipped_image_is_named_and_its_words_are_counted(corpus, tmp_path):
    broken = replace(corpus, images=corpus.images[:4] + corpus.images[5:], skipped=corpus.images[4:5])
    manifest = write_prepared(broken, tmp_path / "out", min_count=3, max_words=16)
    assert manifest["skipped"] == ["4.jpg"]
    assert manifest["images"] == {"train": 3, "val": 2, "test": 2}
    prepared = PreparedData.load(tmp_path / "out")
    assert prepared.vocabulary.words == ("ball", "red", "a", "UNK")
    assert len(prepared) == 7


def test_sources_of_equal_names_are_recorded_by_their_paths(corpus, tmp_path):
    sources = (corpus.sources[0], *(tmp_path / folder / "captions.json" for folder in ("train", "val")))
    for path in sources[1:]:
        path.parent.mkdir()
        path.write_text(path.parent.name)
    manifest = write_prepared(replace(corpus, sources=sources), tmp_path / "out", min_count=3, max_words=16)
    names = ["dataset_balls.json", *(path.as_posix() for path in sources[1:])]
    assert manifest["inputs"] == {name: compute_sha256(path) for name, path in zip(names, sources, strict=True)}


class TextVocabulary(Vocabulary):
    """A vocabulary of letters that encodes text, as a tokenizer does."""

    encodes_text = True

    def encode(self, words):
        return super().encode("".join(words))


def test_lengths_are_counted_in_tokens_where_the_vocabulary_encodes_text(corpus, tmp_path, capsys):
    letters = TextVocabulary(("a", "b", "d", "e", "l", "r", "UNK"))
    write_prepared(replace(corpus, vocabulary=letters), tmp_path, None, 8)
    assert re.match(r"note: 16 of 21 captions are longer than 8 tokens \(max_words\), ", capsys.readouterr().err)


def test_captions_are_read_by_image(corpus, tmp_path, capsys):
    write_prepared(corpus, tmp_path, min_count=3, max_words=4)
    printed = capsys.readouterr().err
    assert re.match(
        r"note: 2 of 21 captions are longer than 4 words \(max_words\), the longest has 6; training", printed
    )
    prepared = PreparedData.load(tmp_path)
    assert len(prepared) == 8
    assert prepared.texts(3) == ["a red ball.", "the red ball.", "one ball.", "a big red ball on grass."]
    assert prepared.words(3)[3] == ["a", "big", "red", "ball", "on", "grass"]  # not clipped
    assert prepared.captions(3) == [[3, 2, 1], [4, 2, 1], [4, 1], [3, 4, 2, 1]]  # clipped at 4
    assert prepared.tokens.shape == (21, 4)
    assert prepared.first.tolist() == [0, 1, 3, 6, 10, 15, 16, 18, 21]
    assert prepared.file(3) == "part/3.jpg"
    assert prepared.ids.to_pylist() == [str(i) for i in range(8)]
    assert {split: prepared.rows(split).tolist() for split in ("train", "val", "test")} == {
        "train": [0, 1, 4, 5],
        "val": [2, 6],
        "test": [3, 7],
    }


def test_references_are_padded_to_the_image_with_most_captions(corpus, tmp_path):
    write_prepared(corpus, tmp_path, min_count=3, max_words=4)
    assert PreparedData.load(tmp_path).references([]).shape == (0, 0, 4)
    references = PreparedData.load(tmp_path).references([7, 0])
    assert references.shape == (2, 3, 4)
    assert references[0].tolist() == [[3, 2, 1, 0], [4, 2, 1, 0], [4, 1, 0, 0]]
    assert references[1].tolist() == [[3, 2, 1, 0], [0] * 4, [0] * 4]


def test_the_table_of_captions_is_as_declared_and_the_manifest_names_the_inputs(corpus, tmp_path):
    manifest = write_prepared(corpus, tmp_path / "out", min_count=3, max_words=4)
    assert manifest == json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["images"] == {"train": 4, "val": 2, "test": 2}
    assert manifest["captions"] == {"train": 9, "val": 5, "test": 7}
    assert manifest["words"] == 4
    assert manifest["settings"] == {"min_count": 3, "max_words": 4}
    assert manifest["inputs"] == {"dataset_balls.json": compute_sha256(corpus.sources[0])}
    table = pq.read_table(tmp_path / "out" / "captions.parquet")
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("image", "int64"),
        ("text", "string"),
        ("words", "list<element: string>"),
        ("tokens", "list<element: int32>"),
    ]
    assert (np.diff(table["image"].to_numpy()) >= 0).all()


def test_the_same_corpus_is_written_to_the_same_bytes(corpus, tmp_path):
    for name in ("one", "two"):
        write_prepared(corpus, tmp_path / name, min_count=0, max_words=16)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_an_empty_vocabulary_and_missing_data_are_reported(corpus, tmp_path):
    with pytest.raises(UserError, match="no word occurs more than 99 times"):
        write_prepared(corpus, tmp_path, min_count=99, max_words=16)
    with pytest.raises(UserError, match="not prepared; run the prepare stage"):
        PreparedData.load(tmp_path / "nowhere")
