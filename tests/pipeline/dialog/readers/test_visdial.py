"""VisDial's files: the official JSON, and the two HDF5 forms that published code writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline.data.corpus import Corpus
from pipeline.data.prepared import PreparedData, write_prepared
from pipeline.dialog.data.prepared_dialogs import DialogLengths, PreparedDialogs, write_prepared_dialogs
from pipeline.dialog.readers import visdial, visdial_h5
from pipeline.dialog.readers.visdial import ExpectedDialog, read_visdial
from pipeline.dialog.readers.visdial_h5 import read_visdial_h5
from pipeline.errors import UserError
from pipeline.readers import read_corpus
from pipeline.slices.corpus_formats import FORMATS

SMALL = ExpectedDialog(rounds=2, options=3)
QUESTIONS = ["Is it red?", "How many are there?", "What is it?"]
ANSWERS = ["yes", "No, it isn't", "two", "a very big red dog", "a very big red cat"]
WORDS = ["yes", "no", "it", "is", "two", "red", "UNK"]


def make_dialog(image: int, rounds: list[tuple[int, int, list[int]]]) -> dict[str, Any]:
    dialog = [{"question": q, "answer": a, "answer_options": o, "gt_index": o.index(a)} for q, a, o in rounds]
    return {"image_id": image, "caption": f"Picture number {image}.", "dialog": dialog}


def make_split(*images: int) -> dict[str, Any]:
    rounds = [(0, 1, [0, 1, 2]), (1, 2, [3, 4, 2])]
    data = {"questions": QUESTIONS, "answers": ANSWERS, "dialogs": [make_dialog(image, rounds) for image in images]}
    return {"version": "0.9", "split": "train", "data": data}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / f"{name}.json" for name in ("train", "val", "test")}
    for path, images in zip(paths.values(), ((10, 11), (20,), (30,)), strict=True):
        path.write_text(json.dumps(make_split(*images)))
    return paths


def change_file(path: Path, change: Any) -> None:
    content = json.loads(path.read_text())
    change(content["data"])
    path.write_text(json.dumps(content))


def test_the_official_form_is_read(files):
    corpus = read_visdial(files, {}, SMALL)
    assert [(image.id, image.split) for image in corpus.images] == [
        ("10", "train"),
        ("11", "train"),
        ("20", "val"),
        ("30", "test"),
    ]
    found = corpus.attached
    assert found.captions[0] == ("picture", "number", "10")
    assert found.questions[found.question[0, 1]] == ("how", "many", "are", "there")
    human = [found.answers[found.options[3, r, found.truth[3, r]]] for r in range(2)]
    assert human == [("no", "it", "isn't"), ("two",)]  # without the comma
    assert found.relevance is None
    assert found.kinds is None


def test_the_last_dialogs_of_train_are_held_out_without_a_val_file(files, monkeypatch):
    monkeypatch.setattr(visdial, "HELD_OUT", 1)
    del files["val"]
    corpus = read_visdial(files, {}, SMALL)
    assert [(image.id, image.split) for image in corpus.images] == [("10", "train"), ("11", "val"), ("30", "test")]
    monkeypatch.setattr(visdial, "HELD_OUT", 2)
    with pytest.raises(UserError, match=r"train\.json: 2 dialogs are too few to hold out 2; name a val file"):
        read_visdial(files, {}, SMALL)


@pytest.mark.parametrize("key", ["gt_relevance", "relevance"])
def test_dense_annotations_may_cover_some_rounds(files, tmp_path, key):
    dense = tmp_path / "dense.json"
    dense.write_text(json.dumps([{"image_id": 30, "round_id": 2, key: [0.2, 0.0, 1.0]}]))
    found = read_visdial(files, {"test": dense}, SMALL).attached
    assert found.relevance[3, 1].tolist() == pytest.approx([0.2, 0.0, 1.0])
    assert np.isnan(found.relevance[:3]).all()
    assert np.isnan(found.relevance[3, 0]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["dialogs"][1]["dialog"].pop(), r"dialog 1 \(image 11\): 1 rounds, and 2 are expected"),
        (
            lambda data: data["dialogs"][1]["dialog"][0]["answer_options"].append(4),
            r"dialog 1 \(image 11\), round 1: 4 options, and 3 are expected \(prepare.dialogs.options, or the first",
        ),
        (
            lambda data: data["dialogs"][0]["dialog"][1].update(answer_options=[0, 1, 3]),
            r"dialog 0 \(image 10\), round 2: option 2 is answer 3, but the human answer is 2",
        ),
        (lambda data: data["dialogs"][0]["dialog"][1].update(gt_index=7), r"round 2: `gt_index` 7 is none of the 3"),
        (
            lambda data: data["dialogs"][0]["dialog"][0].update(answer_options=[9, 1, 0]),
            r"round 1: option 9 is none of",
        ),
        (
            lambda data: data["dialogs"][0]["dialog"][0].update(answer_options=[-1, 1, 0]),
            r"round 1: option -1 is none of the 5 answers",
        ),
        (
            lambda data: data["dialogs"][0]["dialog"][0].update(question=-1),
            r"round 1: question -1 is none of the 3 questions",
        ),
        (lambda data: data["dialogs"][0].pop("caption"), r"dialog 0: not a dialog of VisDial's form \(KeyError"),
        (lambda data: data["dialogs"][1].update(image_id=10), r"image \"10\" occurs a second time"),
        (lambda data: data.pop("answers"), "line 1: no `data` with"),
        (lambda data: data.update(dialogs=[]), "`dialogs` of `data` is empty; at least one dialog is expected"),
        (
            lambda data: data["dialogs"][0]["dialog"][0].update(answer_options=[0.9, 1, 2]),
            r"round 1: `answer_options`, `gt_index`, `answer` and `question` must be whole numbers, not 0\.9; correct",
        ),
        (
            lambda data: data["dialogs"][0]["dialog"][1].update(kind=["yes"]),
            r'round 2: `kind` and `refers` must be texts, not \["yes"\] and ""; correct the file',
        ),
        (
            lambda data: data["dialogs"][0]["dialog"][1].update(refers=None),
            'round 2: `kind` and `refers` must be texts, not "" and null; correct the file',
        ),
    ],
)
def test_a_mistake_is_reported_with_file_dialog_and_round(files, change, message):
    change_file(files["train"], change)
    with pytest.raises(UserError, match=message) as error:
        read_visdial(files, {}, SMALL)
    assert str(files["train"]) in str(error.value)
    assert "\n" not in error.value.args[0]


def test_wrong_relevances_are_refused(files, tmp_path):
    dense = tmp_path / "dense.json"
    for entry, pattern in (
        (
            {"image_id": 10, "round_id": 1, "gt_relevance": [1, 0, 0]},
            "entry 1: no round 1 of image 10 is in this split",
        ),
        ({"image_id": 30, "round_id": 3, "gt_relevance": [1, 0, 0]}, "no round 3"),
        ({"image_id": 30, "round_id": 1, "gt_relevance": [1, 0]}, "2 numbers of relevance for 3 options"),
        (
            {"image_id": 30, "round_id": 1, "gt_relevance": [1, 0, "high"]},
            'the relevance "high" is no number from 0 to 1',
        ),
        ({"image_id": 30, "round_id": 1, "gt_relevance": [1, 0, float("nan")]}, "NaN is no number from 0 to 1"),
        ({"image_id": 30, "round_id": 1, "gt_relevance": [1, 0, 10**400]}, "0… is no number from 0 to 1"),
        ({"image_id": 30, "round_id": 1, "gt_relevance": [1, 0, 0], "answers": ["no"]}, "not VisDial's dense"),
        (
            {"image_id": 30, "round_id": 1, "gt_relevance": [1, 0, 0], "answers": {"no": -1}},
            "the relevance -1 is no number from 0 to 1",
        ),
    ):
        dense.write_text(json.dumps([entry]))
        with pytest.raises(UserError, match=pattern):
            read_visdial(files, {"test": dense}, SMALL)


def test_a_second_relevance_of_one_round_is_refused(files, tmp_path):
    dense = tmp_path / "dense.json"
    dense.write_text(json.dumps([{"image_id": 30, "round_id": 1, "gt_relevance": [1, 0, 0]}] * 2))
    with pytest.raises(UserError, match=r'entry 2: round "1 of image 30" occurs a second time, first at entry 1'):
        read_visdial(files, {"test": dense}, SMALL)


def test_relevance_of_a_split_without_its_own_file_is_refused(files, tmp_path, monkeypatch):
    monkeypatch.setattr(visdial, "HELD_OUT", 1)
    del files["val"]
    with pytest.raises(UserError, match=r"dense\.json: val_relevance needs a file `val` with its dialogs; name both"):
        read_visdial(files, {"val": tmp_path / "dense.json"}, SMALL)


def test_the_first_dialog_must_have_rounds(files):
    change_file(files["train"], lambda data: data["dialogs"][0].update(dialog=[]))
    with pytest.raises(UserError, match=r"dialog 0 \(image 10\): there are no rounds; at least one is expected"):
        read_visdial(files, {}, ExpectedDialog(rounds=None, options=None))


def test_captions_and_files_are_taken_from_a_second_file(files, tmp_path):
    sentences = [{"raw": "a dog"}, {"raw": "a red dog"}]
    images = [{"cocoid": i, "filename": f"{i}.jpg", "split": "train", "sentences": sentences} for i in (10, 11, 20, 30)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images}))
    named = {"train": "train.json", "val": "val.json", "test": "test.json", "captions": "captions.json"}
    options = {"slice_settings": {"dialogs": {"rounds": 2, "options": 3}}, "formats": FORMATS}
    corpus = read_corpus("scenes", "visdial", tmp_path, named, None, **options)
    assert [(i.file, i.split, len(i.captions)) for i in corpus.images][2:] == [
        ("20.jpg", "val", 2),
        ("30.jpg", "test", 2),
    ]
    assert corpus.attached.captions[0] == ("picture", "number", "10")
    (tmp_path / "captions.json").write_text(json.dumps({"images": images[:3]}))
    with pytest.raises(UserError, match=r"image 30 of .* is missing"):
        read_corpus("scenes", "visdial", tmp_path, named, None, **options)


def prepare_dialogs(corpus: Corpus, out: Path, **lengths: int) -> PreparedDialogs:
    write_prepared(corpus, out, None if corpus.vocabulary else 0, 16)
    vocabulary = PreparedData.load(out).vocabulary
    write_prepared_dialogs(
        corpus.attached, vocabulary, DialogLengths(**{"caption": 24, "question": 16, "answer": 8} | lengths), out
    )
    return PreparedDialogs.load(out)


def test_answers_made_equal_by_clipping_or_unk_are_merged(files, tmp_path):
    unknown = prepare_dialogs(read_visdial(files, {}, SMALL), tmp_path / "unknown")
    assert unknown.options[0, 1, 0] == unknown.options[0, 1, 1]  # "a", "very", "big", "dog" and "cat" are UNK
    change_file(files["train"], lambda data: data["dialogs"][0].update(caption="A very big dog"))
    corpus = read_visdial(files, {}, SMALL)
    assert len(set(prepare_dialogs(corpus, tmp_path / "whole").options[0, 1].tolist())) == 3
    clipped = prepare_dialogs(corpus, tmp_path / "clipped", answer=4)  # a very big red
    assert clipped.options[0, 1, 0] == clipped.options[0, 1, 1] != clipped.options[0, 1, 2]
    assert clipped.answers.shape == (4, 5)
    assert (clipped.answers[:, -1] == 0).all()  # a clipped answer also ends in EOS


def test_the_history_excludes_the_last_question_and_answer(files, tmp_path):
    corpus = read_visdial(files, {}, SMALL)
    found, words = prepare_dialogs(corpus, tmp_path / "out"), PreparedData.load(tmp_path / "out").vocabulary
    items = found.history(np.array([1, 3]))
    assert items.shape[:2] == (2, 2)
    assert [words.decode(row) for row in items[0].tolist()] == ["picture number 11", "is it red no it isn't"]


def test_the_vocabulary_counts_training_dialogs_alone(files, tmp_path):
    change_file(files["test"], lambda data: data["questions"].__setitem__(0, "zebra?"))
    prepare_dialogs(read_visdial(files, {}, SMALL), tmp_path / "out")
    words = PreparedData.load(tmp_path / "out").vocabulary.words
    assert "isn't" in words
    assert not {"zebra", "cat"} & set(words)  # cat occurs only in options that are not the human answer


def make_arrays(
    options_from: int, truth_from: int, long_keys: bool = False, right_aligned: bool = False
) -> dict[str, np.ndarray]:
    """Return the arrays of three training and two validation dialogs with the answers yes, no, two and UNK red."""
    arrays = {}
    for name, number in (("train", 3), ("val", 2)):
        questions = np.tile(np.array([[4, 3, 6], [5, 0, 0]]), (number, 1, 1))
        listed = np.array([[1, 0], [2, 0], [5, 0], [7, 6]])
        options = np.tile(np.array([[0, 1, 2], [3, 2, 1]]), (number, 1, 1))
        truth = np.tile(np.array([1, 0]), (number, 1))
        answers = listed[np.take_along_axis(options, truth[..., None], 2)[..., 0]]
        arrays |= {
            f"ques_{name}": np.sort(questions) if right_aligned else questions,
            f"ans_{name}": answers,
            f"cap_{name}": np.tile([6, 3, 0], (number, 1)),
            f"opt_list_{name}": listed,
            f"opt_{name}": options + options_from,
            f"ans_index_{name}": truth + truth_from,
        }
        word = "length" if long_keys else "len"
        for key in ("ques", "ans", "cap"):
            arrays[f"{key}_{word}_{name}"] = (arrays[f"{key}_{name}"] > 0).sum(-1)
    return arrays


def write_h5(folder: Path, arrays: dict[str, np.ndarray], words: list[str] = WORDS) -> tuple[Path, Path]:
    with h5py.File(folder / "visdial_data.h5", "w") as file:
        for name, values in arrays.items():
            file[name] = values.astype(np.uint32)
    params = {
        "itow": {str(i): word for i, word in enumerate(words, 1)},
        "img_train": [f"train2014/COCO_train2014_{n:012d}.jpg" for n in (5, 6, 7)],
        "unique_img_val": [8, 9],
    }
    (folder / "visdial_params.json").write_text(json.dumps(params))
    return folder / "visdial_data.h5", folder / "visdial_params.json"


@pytest.mark.parametrize("forms", [(0, 0, False), (1, 1, True), (1, 0, False)])
def test_options_may_count_from_0_or_from_1(tmp_path, monkeypatch, forms):
    monkeypatch.setattr(visdial_h5, "HELD_OUT", 1)
    corpus = read_visdial_h5(*write_h5(tmp_path, make_arrays(*forms)), SMALL)
    splits = {image.id: image.split for image in corpus.images}
    assert splits == {"5": "train", "6": "train", "7": "val", "8": "test", "9": "test"}
    found = prepare_dialogs(corpus, tmp_path / "out")
    assert PreparedData.load(tmp_path / "out").vocabulary.words == tuple(WORDS)  # ids are unchanged
    assert found.answers[found.human_answers[4]].tolist() == [[2, 0, 0], [7, 6, 0]]
    assert found.questions[0, 0].tolist() == [4, 3, 6]
    assert corpus.attached.captions[0] == ("red", "it")


@pytest.mark.parametrize("bases", [(1, 1), (1, 0), (0, 1)])
def test_an_answer_outside_the_options_is_reported(tmp_path, monkeypatch, bases):
    monkeypatch.setattr(visdial_h5, "HELD_OUT", 1)
    arrays = make_arrays(*bases)
    arrays["ans_val"][1, 1] = [1, 1]
    arrays["ans_len_val"] = (arrays["ans_val"] > 0).sum(-1)
    with pytest.raises(UserError, match=r"dialog 1 of val \(image 9\), round 2: the human answer is not the option"):
        read_visdial_h5(*write_h5(tmp_path, arrays), SMALL)


@pytest.mark.parametrize(("long_keys", "name"), [(False, "ans_len_train"), (True, "ans_length_train")])
def test_an_answer_longer_than_the_clip_is_reported(tmp_path, long_keys, name):
    arrays = make_arrays(0, 0, long_keys)
    arrays[name][2, 1] = 9
    with pytest.raises(UserError, match=rf"dialog 2, round 2: {name} states 9 words, and 2 are there; at most 2 were"):
        read_visdial_h5(*write_h5(tmp_path, arrays), SMALL)


def test_texts_may_be_aligned_to_the_right(tmp_path, monkeypatch):
    monkeypatch.setattr(visdial_h5, "HELD_OUT", 1)
    found = prepare_dialogs(
        read_visdial_h5(*write_h5(tmp_path, make_arrays(0, 0, right_aligned=True)), SMALL), tmp_path / "out"
    )
    assert found.questions[0, 1].tolist() == [5, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("opt_train"), "not an HDF5 file as prepro.py writes it"),
        (
            lambda arrays: arrays.update(opt_val=arrays["opt_val"][:, :, :2]),
            "opt_val has 2 options, and 3 are expected",
        ),
        (
            lambda arrays: arrays.update(ques_val=arrays["ques_val"][:1]),
            "1 dialogs in ques_val, but 2 images in img_val",
        ),
        (lambda arrays: arrays["ques_train"].__setitem__((0, 0, 0), 8), r"an id outside 0 … 7"),
        (
            lambda arrays: arrays["opt_val"].__setitem__((0, 0, 2), 9),
            "an index of opt_val or ans_index_val is out of range",
        ),
    ],
)
def test_an_inconsistent_file_is_reported(tmp_path, monkeypatch, change, message):
    monkeypatch.setattr(visdial_h5, "HELD_OUT", 1)
    arrays = make_arrays(0, 0)
    change(arrays)
    with pytest.raises(UserError, match=message):
        read_visdial_h5(*write_h5(tmp_path, arrays), SMALL)


def test_the_last_word_is_unk(tmp_path):
    with pytest.raises(UserError, match=r'itow\["7"\] is "unk"; the last word must be UNK'):
        read_visdial_h5(*write_h5(tmp_path, make_arrays(0, 0), [*WORDS[:-1], "unk"]), SMALL)


def test_the_vocabulary_may_have_the_key_of_visdials_code(tmp_path, monkeypatch):
    monkeypatch.setattr(visdial_h5, "HELD_OUT", 1)
    data, params = write_h5(tmp_path, make_arrays(1, 1, True))
    content = json.loads(params.read_text())
    content["ind2word"] = content.pop("itow")
    params.write_text(json.dumps(content))
    assert read_visdial_h5(data, params, SMALL).vocabulary.words == tuple(WORDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["yes", "yes", *WORDS[2:]], r'itow\["2"\] is "yes", which is word 1 already'),
        (["yes", "", *WORDS[2:]], r'itow\["2"\] must be a word, not ""'),
        (["yes", "not it", *WORDS[2:]], r'itow\["2"\] must be a word, not "not it"'),
    ],
)
def test_the_words_of_the_vocabulary_are_distinct_words(tmp_path, monkeypatch, words, message):
    """A word that occurred twice would have two ids."""
    monkeypatch.setattr(visdial_h5, "HELD_OUT", 1)
    with pytest.raises(UserError, match=message):
        read_visdial_h5(*write_h5(tmp_path, make_arrays(0, 0), words), SMALL)


def drop_rounds(arrays: dict[str, np.ndarray], name: str) -> None:
    for key in ("ques", "ans", "opt", "ans_index", "ques_len", "ans_len"):
        arrays[f"{key}_{name}"] = arrays[f"{key}_{name}"][:, :1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda arrays: arrays.update({key: arrays[key][:0] for key in arrays if key.endswith("_val")}),
            r"ques_val has the shape \(0, 2, 3\); expected 3 axes, none of them empty",
        ),
        (
            lambda arrays: arrays.update(opt_val=arrays["opt_val"][:, :, 0]),
            r"opt_val has the shape \(2, 2\); expected 3 axes",
        ),
        (
            lambda arrays: arrays.update(opt_val=arrays["opt_val"][0, 0, 0]),
            r"opt_val has the shape \(\); expected 3 axes",
        ),
        (
            lambda arrays: arrays.update(opt_val=arrays["opt_val"][:1]),
            r"opt_val has the size \(1, 2\), but ques_val has \(2, 2\)",
        ),
        (
            lambda arrays: arrays.update(ans_index_val=arrays["ans_index_val"][:1]),
            r"ans_index_val has the size \(1, 2\), but ques_val has \(2, 2\)",
        ),
        (
            lambda arrays: arrays.update(cap_val=arrays["cap_val"][:1], cap_len_val=arrays["cap_len_val"][:1]),
            r"cap_val has the size \(1,\), but ques_val has \(2,\)",
        ),
        (
            lambda arrays: arrays.update(opt_list_val=np.pad(arrays["opt_list_val"], ((0, 0), (0, 1)))),
            r"opt_list_val has the size \(3,\), but ans_val has \(2,\)",
        ),
        (lambda arrays: arrays["cap_train"].__setitem__((0, 0), 8), "cap_train holds an id outside 0 … 7"),
        (
            lambda arrays: drop_rounds(arrays, "val"),
            "opt_val has 1 rounds, and 2 are expected .*; correct the key or the file",
        ),
    ],
)
def test_arrays_that_do_not_belong_together_are_reported(tmp_path, monkeypatch, change, message):
    monkeypatch.setattr(visdial_h5, "HELD_OUT", 1)
    arrays = make_arrays(0, 0)
    change(arrays)
    with pytest.raises(UserError, match=message):
        read_visdial_h5(*write_h5(tmp_path, arrays), ExpectedDialog(rounds=None, options=None))


def test_indices_are_whole_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(visdial_h5, "HELD_OUT", 1)
    files = write_h5(tmp_path, make_arrays(0, 0))
    with h5py.File(files[0], "r+") as file:
        del file["ans_index_val"]
        file["ans_index_val"] = np.full((2, 2), 0.5)
    with pytest.raises(UserError, match=r"ans_index_val holds 0\.5; expected signed 64-bit integers"):
        read_visdial_h5(*files, SMALL)


def test_a_negative_index_of_an_option_is_out_of_range(tmp_path, monkeypatch):
    monkeypatch.setattr(visdial_h5, "HELD_OUT", 1)
    files = write_h5(tmp_path, make_arrays(0, 0))
    with h5py.File(files[0], "r+") as file:
        options = file["opt_val"][:].astype(np.int64)
        options[0, 0, 1] = -1
        del file["opt_val"]
        file["opt_val"] = options
    with pytest.raises(UserError, match="an index of opt_val or ans_index_val is out of range"):
        read_visdial_h5(*files, SMALL)


def test_an_image_has_one_dialog(tmp_path, monkeypatch):
    monkeypatch.setattr(visdial_h5, "HELD_OUT", 1)
    data, params = write_h5(tmp_path, make_arrays(0, 0))
    params.write_text(json.dumps(json.loads(params.read_text()) | {"unique_img_val": [5, 8]}))
    with pytest.raises(UserError, match='val dialog 0: image "5" occurs a second time, first at train dialog 0'):
        read_visdial_h5(data, params, SMALL)
