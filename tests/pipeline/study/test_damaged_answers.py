"""Damaged answers, keys, exports and rounds: each gives an error of one line or is read without a traceback."""

import copy
import json
import os
import random
import shutil

import pytest

from pipeline.errors import UserError
from pipeline.report.number_files import format_markdown
from pipeline.study.design import PICTURE_ROOT, StudyDesign
from pipeline.study.study_tables import build_study_tables

TIMES = int(os.environ.get("SAYWHICH_DAMAGES", "60"))
VALUES = (
    *(None, True, 0, -1, 1.5, 10**30, -(10**400), "", "x", "\x1b[31m", "\n", [], {}, [[]], [{}], {"a": []}, ["a", "b"]),
    *(float("nan"), float("inf"), "\ud800", "y" * 100_000, [0] * 5),
)


@pytest.fixture(scope="module")
def study(finished_run, answer_correctly, tmp_path_factory):
    """Return the folder of a study, and the content of an undamaged file of each kind."""
    out = tmp_path_factory.mktemp("study")
    finished_run.make(out, StudyDesign(pairs=4, raters=2, rounds=4, methods=("psst_multinomial", "st_multinomial")))
    key = json.loads((out / "key.json").read_text())
    questions = {each["name"]: each for each in key["questions"]}
    answers = [answer | {"seconds": 2.5} for sheet in key["sheets"] for answer in answer_correctly(key, sheet)]
    tasks = []
    for path in sorted((out / "label_studio").glob("*.json")):
        for task in json.loads(path.read_text()):
            right = questions[task["data"]["question"]]["options"][0]
            side = next(side for side in ("left", "right") if task["data"][side].removeprefix(PICTURE_ROOT) == right)
            result = [{"value": {"choices": [side]}}]
            annotation = {"completed_by": {"email": path.stem}, "result": result, "lead_time": 3.5}
            tasks.append({"data": task["data"], "annotations": [annotation]})
    common = {"study": "play", "rater": "s", "asked": "a dog", "shown": ["1 a.jpg", "2 b.jpg"], "right": "1 a.jpg"}
    rounds = [common | {"chosen": "1 a.jpg", "listener": "2 b.jpg", "model": "luo", "seconds": 1.5}] * 3
    return out, {"answers.jsonl": answers, "export.json": tasks, "rounds.jsonl": rounds, "key.json": key}


def encode_content(name, content):
    if name.endswith(".jsonl"):
        return "".join(json.dumps(each) + "\n" for each in content).encode()
    return json.dumps(content).encode()


def iterate_paths(value, path=()):
    """Yield the paths of all values inside `value`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from iterate_paths(each, (*path, key))


def damage_content(name, content, rng):
    """Return the kind of damage and the damaged bytes of the file.

    One value, one key or some bytes are changed or removed, the end is cut off, or other content replaces the file.
    """
    how = rng.choice(("value", "value", "value", "gone", "renamed", "bytes", "cut", "other"))
    if how in ("value", "gone", "renamed"):
        content = copy.deepcopy(content)
        *parents, last = rng.choice(list(iterate_paths(content)))
        inner = content
        for each in parents:
            inner = inner[each]
        if how == "value":
            inner[last] = rng.choice(VALUES)
        else:
            value = inner.pop(last)
            if how == "renamed" and isinstance(inner, dict):
                inner[f"{last}x"] = value
        return how, encode_content(name, content)
    whole = bytearray(encode_content(name, content))
    if how == "cut":
        return how, bytes(whole[: rng.randrange(len(whole))])
    if how == "other":
        return how, rng.choice(
            (b"", b"\xff\xfe\x00", b"PK\x03\x04", b"[" * 100_000, b"null", b'"a"', b"\x00" * 9, b"{}", b"[]", b"1e999")
        )
    offset = rng.randrange(len(whole))
    whole[offset : offset + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
    return how, bytes(whole)


def test_damaged_answers_are_reported_in_one_line_or_are_read(study, tmp_path):
    out, files = study
    rng, failures = random.Random(0), []
    for number in range(TIMES):
        name = list(files)[number % len(files)]
        folder = tmp_path / str(number)
        folder.mkdir()
        shutil.copy(out / "key.json", folder)
        answers = "answers.jsonl" if name == "key.json" else name
        (folder / answers).write_bytes(encode_content(answers, files[answers]))
        how, content = damage_content(name, files[name], rng)
        (folder / name).write_bytes(content)
        try:
            format_markdown(build_study_tables(folder, [folder / answers]))
        except UserError as error:
            failures += [f"{name}, {how}: several lines"] if "\n" in str(error) else []
            failures += [f"{name}, {how}: {len(str(error))} characters"] if len(str(error)) > 500 else []
        except Exception as error:  # the user would see a traceback
            failures.append(f"{name}, {how}: {type(error).__name__}: {error}")
    print(f"{TIMES} damaged files were read, {len(failures)} without a correct error or result")
    assert failures == []


@pytest.mark.parametrize("name", ["answers.jsonl", "export.json", "rounds.jsonl"])
def test_undamaged_answers_are_read(study, tmp_path, name):
    out, files = study
    (tmp_path / name).write_bytes(encode_content(name, files[name]))
    assert len(build_study_tables(out, [tmp_path / name])) == (1 if name == "rounds.jsonl" else 2)


def test_a_changed_key_is_reported_in_one_line(study, tmp_path):
    out, files = study
    (tmp_path / "key.json").write_text(
        (out / "key.json").read_text().replace("psst_multinomial", "psst_multinomiak", 1)
    )
    (tmp_path / "answers.jsonl").write_bytes(encode_content("answers.jsonl", files["answers.jsonl"]))
    with pytest.raises(UserError, match=r"key\.json: its content was changed; make the study again"):
        build_study_tables(tmp_path, [tmp_path / "answers.jsonl"])
