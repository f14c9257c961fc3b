"""Random data sets, settings and arrays are read or refused.

Errors of data sets and of settings are one line that names the file.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzed_bytes import IMPORTERS, fuzz_importer, make_importers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.config.reading import parse_yaml
from pipeline.data.corpus import Corpus
from pipeline.errors import UserError
from pipeline.features.imported import import_features
from pipeline.readers import read_corpus
from pipeline.runtime.untrusted import read_npy
from pipeline.slices.corpus_formats import FORMATS
from pipeline.slices.feature_formats import FEATURE_FORMATS

CASES = int(os.environ.get("SAYWHICH_FUZZ_CASES", "40"))  # per kind of input
tried: Counter[str] = Counter()
REPEATED = "SAYWHICH_FUZZ_CASES" not in os.environ  # `make fault-injection` draws other inputs each time
fuzz_settings = settings(
    max_examples=CASES, derandomize=REPEATED, suppress_health_check=list(HealthCheck), database=None
)
random_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("\ud800"), st.just("../x"),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
)  # fmt: skip
GOOD = {
    "karpathy": {
        "images": [
            {"filename": f"{i}.jpg", "imgid": i, "split": split, "sentences": [{"raw": "a ball", "sentid": i}]}
            for i, split in enumerate(("train", "val", "test"))
        ]
    },
    "visdial": {
        "data": {
            "questions": ["is it red"], "answers": ["yes", "no"],
            "dialogs": [{"image_id": 1, "caption": "a ball", "dialog": [
                {"question": 0, "answer": 1, "answer_options": [0, 1], "gt_index": 1}]}],
        }
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def case_count():
    yield
    print(f"{tried.total()} cases were tried")


def read_data_set(folder: Path, form: str) -> Corpus | str:
    """Return the data set of the file a.json, or the line of the error; further splits of visdial have valid files."""
    problem = None
    annotations = {"karpathy": "a.json", "visdial": {"train": "a.json", "val": "val.json", "test": "test.json"}}
    for split, image in (("val", 1001), ("test", 1002)):
        text = json.dumps(GOOD["visdial"]).replace('"image_id": 1', f'"image_id": {image}')
        (folder / f"{split}.json").write_text(text)
    options = {"slice_settings": {"dialogs": {"rounds": None, "options": None}}} if form == "visdial" else {}
    try:
        return read_corpus("x", form, folder, annotations[form], None, formats=FORMATS, **options)
    except UserError as error:
        problem = str(error)
    assert "\n" not in problem
    assert "a.json" in problem
    return problem


@st.composite
def annotation_files(draw, form: str) -> str:
    """Draw the text of an annotation file in which a random value replaces one value."""
    data = json.loads(json.dumps(GOOD[form]))
    node: object = data
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = draw(st.sampled_from(keys))
        inner = node[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 4)) == 0:
            break
        node = inner
    node[key] = draw(random_values)
    return json.dumps(data)


@pytest.mark.parametrize("form", GOOD)
def test_valid_annotations_are_read(tmp_path, form):
    (tmp_path / "a.json").write_text(json.dumps(GOOD[form]))
    corpus = read_data_set(tmp_path, form)
    assert isinstance(corpus, Corpus), corpus
    assert len(corpus.images) == 3


@pytest.mark.parametrize("form", GOOD)
def test_a_random_value_is_read_or_named(tmp_path_factory, form):
    folder = tmp_path_factory.mktemp("fuzz")

    @fuzz_settings
    @given(annotation_files(form))
    def check(text: str) -> None:
        tried[form] += 1
        (folder / "a.json").write_text(text)
        read_data_set(folder, form)

    check()


@pytest.mark.parametrize("form", GOOD)
def test_replaced_removed_or_inserted_bytes_are_read_or_named(tmp_path_factory, form):
    folder, whole = tmp_path_factory.mktemp("fuzz"), json.dumps(GOOD[form]).encode()

    @fuzz_settings
    @given(st.integers(0, len(whole) - 1), st.binary(max_size=3), st.integers(0, 9))
    def check(start: int, replacement: bytes, removed: int) -> None:
        tried[form] += 1
        (folder / "a.json").write_bytes(whole[:start] + replacement + whole[start + removed :])
        read_data_set(folder, form)

    check()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "not JSON"),
        ('{"images": ' + "[" * 50_000 + "]" * 50_000 + "}", "not JSON"),
        ('{"images": ' + "9" * 5000 + "}", "not JSON"),
        (json.dumps(GOOD["karpathy"]).replace("a ball", "a \\ud800 ball"), "line 1: a lone surrogate"),
        (json.dumps(GOOD["karpathy"]).replace("a ball", "a \\udc00 ball"), "line 1: a lone surrogate"),
        (
            json.dumps(GOOD["karpathy"]).replace('"imgid": 0', '"imgid": [0]'),
            "image id must be a whole number or a text",
        ),
        (json.dumps(GOOD["karpathy"]).replace('"sentid": 0', '"sentid": {}'), "sentence id must be a whole number or"),
    ],
)
def test_unrepresentable_annotations_are_reported_in_one_line(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    assert message in read_data_set(tmp_path, "karpathy")


def test_surrogate_pairs_in_escapes_are_read(tmp_path):
    text = json.dumps(GOOD["karpathy"]).replace("a ball", "a \\ud83d\\ude00 \\\\ud800 ball")
    (tmp_path / "a.json").write_text(text)
    corpus = read_data_set(tmp_path, "karpathy")
    assert isinstance(corpus, Corpus), corpus
    assert corpus.images[0].captions[0].text == "a 😀 \\ud800 ball"


def test_a_pipe_in_place_of_annotations_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    assert "expected a plain file" in read_data_set(tmp_path, "karpathy")


def test_a_parquet_table_of_invalid_text_is_reported_in_one_line(tmp_path):
    wrong = pa.array([b"\xff\xfe"] * 6, pa.binary()).view(pa.string())
    pq.write_table(pa.table({"file": wrong, "caption": wrong, "split": wrong}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: the column file holds bytes that are not UTF-8; [^\n]*\Z"):
        read_corpus("x", "folder", tmp_path, "a.parquet", None)


PAIRS = zip("abcdefghijk", "bcdefghijkl", strict=True)
BOMB = "a: &a [x, x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in PAIRS)
INVALID_SETTINGS = [
    BOMB,
    "? [1, 2]\n: x",
    "a: !!int abc",
    "a: !!timestamp x",
    "a: !!python/x 1",
    "a: " + "9" * 5000,
    "[" * 20_000,
    "- " * 20_000,
]


@pytest.mark.parametrize("text", INVALID_SETTINGS)
def test_invalid_settings_are_reported_in_one_line(text):
    with pytest.raises(UserError, match=r"^params\.yaml.*$"):
        parse_yaml(text, "params.yaml")


@fuzz_settings
@given(st.text(st.sampled_from("ab:-[]{}&*!?|>'\"#%@`,. \n\t019~"), max_size=40))
def test_any_settings_are_read_or_refused_in_one_line(text):
    tried["settings"] += 1
    problem = ""
    try:
        parse_yaml(text, "params.yaml")
    except UserError as error:
        problem = str(error)
    assert "\n" not in problem
    assert not problem or problem.startswith("params.yaml")


@fuzz_settings
@given(st.integers(0, 130), st.binary(min_size=1, max_size=4))
def test_any_array_is_read_or_refused_by_a_value_error(start, replacement):
    tried["arrays"] += 1
    stream = io.BytesIO()
    np.save(stream, np.arange(2.0))
    whole = stream.getvalue()
    with suppress(ValueError):
        read_npy(whole[:start] + replacement + whole[start + len(replacement) :])


def catch_import_error(folder: Path, form: str, regions: Path) -> str:
    with pytest.raises(UserError) as error:
        import_features(
            ["1"], folder / "out", feature_format=FEATURE_FORMATS[form], regions=str(regions), max_regions=3
        )
    assert "\n" not in error.value.args[0]
    return str(error.value)


def test_oversized_damaged_and_special_files_of_features_are_refused(tmp_path):
    (tmp_path / "npy").mkdir()
    stream = io.BytesIO()
    np.save(stream, np.zeros((1, 4), np.float32))
    with zipfile.ZipFile(tmp_path / "npy/1.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("feat.npy", bytes(2**26 + 1))
    assert (tmp_path / "npy/1.npz").stat().st_size < 2**20
    assert "feat.npy states more than" in catch_import_error(tmp_path, "npy_folders", tmp_path / "npy")
    with zipfile.ZipFile(tmp_path / "npy/1.npz", "w") as archive:
        archive.writestr("feat.npy", stream.getvalue())
    content = bytearray((tmp_path / "npy/1.npz").read_bytes())
    for offset in (content.index(b"PK\x03\x04") + 8, content.index(b"PK\x01\x02") + 10):
        content[offset] = 99  # an unknown compression method
    (tmp_path / "npy/1.npz").write_bytes(content)
    assert "cannot be read" in catch_import_error(tmp_path, "npy_folders", tmp_path / "npy")
    (tmp_path / "npy/1.npz").unlink()
    os.mkfifo(tmp_path / "npy/1.npz")
    assert "expected a plain file" in catch_import_error(tmp_path, "npy_folders", tmp_path / "npy")
    with open(tmp_path / "endless.tsv", "wb") as file:
        file.truncate(2**27)  # one line
    assert "line 1: longer than" in catch_import_error(tmp_path, "tsv", tmp_path / "endless.tsv")


def test_importers_read_the_seeds_of_fuzzing(tmp_path):
    importers = make_importers(tmp_path)
    assert tuple(importers) == IMPORTERS
    for content, read in importers.values():
        read(content)


@pytest.mark.parametrize("name", ["arrays", "settings", "karpathy", "archives"])
def test_coverage_guided_bytes_are_read_or_named(name):
    pytest.importorskip("atheris", reason="the extra fuzz is not installed")
    assert fuzz_importer(name, 300) == (300, "")
