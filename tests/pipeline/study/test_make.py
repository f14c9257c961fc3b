"""The questions of a study: captions, pairs and methods, and the content that raters can see."""

import csv
import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.study import make
from pipeline.study.design import NATURALNESS, QUALIFICATION, RETRIEVAL, StudyDesign
from pipeline.study.pages import write_pages
from pipeline.study.questions import select_similar_pairs

METHODS = ("luo", "psst_multinomial", "st_multinomial")
DESIGN = StudyDesign(pairs=10, raters=5, rounds=5)


@pytest.fixture(scope="module")
def made_study(finished_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    return out, finished_run.make(out, DESIGN)


def select_task(sheets, task):
    return [sheet for sheet in sheets if sheet.task == task]


def test_each_question_is_asked_of_five_raters_and_each_sheet_has_a_pair_once(made_study):
    _, sheets = made_study
    for task in (RETRIEVAL, NATURALNESS):
        names = [each.question.name for sheet in select_task(sheets, task) for each in sheet.rounds]
        assert set(Counter(names).values()) == {5}
        for sheet in select_task(sheets, task):
            subjects = [each.question.subject for each in sheet.rounds]
            assert len(set(subjects)) == len(subjects) <= DESIGN.rounds
            assert len(sheet.qualification) == QUALIFICATION


def test_sides_are_counterbalanced_within_sheets_and_among_the_raters_of_a_question(made_study):
    _, sheets = made_study
    left = Counter()
    for sheet in sheets:
        lefts = [each.options == each.question.options for each in sheet.rounds]
        assert abs(2 * sum(lefts) - len(lefts)) <= 1
        left.update(each.question.name for each, first in zip(sheet.rounds, lefts, strict=True) if first)
    names = {each.question.name for sheet in sheets for each in sheet.rounds}
    assert {left[name] for name in names} == {2, 3}


def test_each_pair_has_captions_of_methods_and_annotators_and_equal_captions_are_asked_once(made_study):
    _, sheets = made_study
    questions = {each.question.name: each.question for sheet in select_task(sheets, RETRIEVAL) for each in sheet.rounds}
    pairs = Counter()
    for question in questions.values():
        pairs.update((question.subject, method) for method in question.methods)
    assert len(pairs) == 10 * 4
    assert set(pairs.values()) == {1}
    assert any(len(question.methods) > 1 for question in questions.values())
    human_question = next(question for question in questions.values() if question.methods == ("human",))
    expected = f"a person wrote the words of picture {human_question.subject} at length"
    assert human_question.shown == expected


def test_methods_are_compared_at_the_highest_cider_and_the_highest_score_that_all_reach(made_study):
    out, _ = made_study
    key = json.loads((out / "key.json").read_text())
    assert key["tasks"]["retrieval"]["matched_value"] == 1.0
    assert {each["lambda"] for each in key["tasks"]["retrieval"]["methods"].values()} == {0.1}
    assert key["tasks"]["naturalness"]["matched_value"] == 80.0
    lambdas = {method: each["lambda"] for method, each in key["tasks"]["naturalness"]["methods"].items()}
    assert lambdas == {"luo": 0.9, "st_multinomial": 0.9, "psst_multinomial": 0.5}


def test_methods_are_compared_at_the_settings_nearest_to_given_levels(finished_run, tmp_path):
    finished_run.make(tmp_path, replace(DESIGN, cider=0.72, score=74.0))
    tasks = json.loads((tmp_path / "key.json").read_text())["tasks"]
    assert (tasks["retrieval"]["matched_value"], tasks["naturalness"]["matched_value"]) == (0.72, 74.0)
    assert {each["lambda"] for each in tasks["retrieval"]["methods"].values()} == {0.9}
    assert {each["lambda"] for each in tasks["naturalness"]["methods"].values()} == {0.5}


def test_captions_that_equal_the_references_are_not_asked(made_study):
    _, sheets = made_study
    rounds = [each for sheet in select_task(sheets, NATURALNESS) for each in sheet.rounds]
    questions = {each.question.name: each.question for each in rounds}
    for question in questions.values():
        assert question.options[0] != question.options[1]
        assert "st_multinomial" not in question.methods
    images = Counter(method for question in questions.values() for method in question.methods)
    subjects = {each.question.subject for sheet in select_task(sheets, RETRIEVAL) for each in sheet.rounds}
    assert images["luo"] == len([image for image in subjects if image % 4])


def test_a_folder_with_another_study_is_refused_and_the_same_study_is_made_again(finished_run, tmp_path):
    finished_run.make(tmp_path, DESIGN)
    key = (tmp_path / "key.json").read_bytes()
    finished_run.make(tmp_path, DESIGN)
    with pytest.raises(UserError, match=r"key\.json: is the key of another study \(.*\), whose answers need it"):
        finished_run.make(tmp_path, replace(DESIGN, seed=DESIGN.seed + 1))
    assert (tmp_path / "key.json").read_bytes() == key
    (tmp_path / "key.json").write_text("{")
    with pytest.raises(UserError, match="expected the key of a study, found another file"):
        finished_run.make(tmp_path, DESIGN)


def test_pairs_are_the_most_similar_images_and_no_image_is_in_two():
    pooled = np.array([[0.0, 0], [10, 0], [0, 0.1], [10, 0.1], [-5, 9], [-5, 9.1]])
    pairs = select_similar_pairs(pooled, 10, seed=1)
    assert sorted(map(sorted, pairs)) == [[0, 2], [1, 3], [4, 5]]
    assert len(select_similar_pairs(pooled, 2, seed=1)) == 2


def test_pages_show_no_method_no_right_answer_and_no_file_name(made_study):
    out, _ = made_study
    key = json.loads((out / "key.json").read_text())
    captions = {q["shown"] for q in key["questions"]} | {o for q in key["questions"] for o in q["options"]}
    for page in (out / "pages").glob("*.html"):
        text = page.read_text()
        content = json.loads(re.search(r'<script type="application/json" id="content">(.*?)</script>', text)[1])
        assert all("right" not in each for each in content["rounds"])
        for caption in captions:  # a caption of this run contains the name of its method
            text = text.replace(json.dumps(caption)[1:-1], "")
        assert not any(method in text for method in METHODS)
        assert not re.search(r"\b\d{1,2}\.jpg", text)  # the images of the run are 0.jpg to 47.jpg
    pictures = {path.name for path in (out / "pages" / "images").iterdir()}
    assert pictures
    assert pictures == {name for name in pictures if re.fullmatch(r"[0-9a-f]{10}\.jpg", name)}


def test_equal_inputs_give_equal_bytes_and_another_seed_gives_another_study(finished_run, made_study, tmp_path):
    out, _ = made_study
    finished_run.make(tmp_path / "again", DESIGN)
    files = sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    assert all((out / file).read_bytes() == (tmp_path / "again" / file).read_bytes() for file in files)
    finished_run.make(tmp_path / "other", replace(DESIGN, seed=1))
    assert (out / "key.json").read_bytes() != (tmp_path / "other" / "key.json").read_bytes()


@pytest.mark.parametrize("send", ["", "answers.example.org/study", "https://", "https://example.org/a;b", "file:///a"])
def test_an_address_that_pages_cannot_send_to_is_refused_before_anything_is_written(finished_run, tmp_path, send):
    with pytest.raises(UserError, match=f"--send {send}: expected an address https://"):
        finished_run.make(tmp_path, DESIGN, send)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "send", ["http://127.0.0.1:8000/answers", "https://example.org", "https://example.org/a?k=%3B#x"]
)
def test_pages_may_connect_to_the_address_that_they_send_to(made_study, tmp_path, send):
    _, sheets = made_study
    write_pages(tmp_path, sheets[:1], "study", send)
    assert f'; connect-src {send}">' in (tmp_path / "pages" / f"{sheets[0].name}.html").read_text()


def test_prolific_has_a_page_and_a_code_for_each_rater(made_study):
    out, sheets = made_study
    rows = list(csv.DictReader((out / "prolific.csv").open()))
    assert len(rows) == len(sheets) == len({row["completion_code"] for row in rows})
    for row in rows:
        page, _, query = row["page"].partition("?")
        assert (out / "pages" / page).exists()
        assert query == "PROLIFIC_PID={{%PROLIFIC_PID%}}"
        assert row["completion_code"] in (out / "pages" / page).read_text()


def test_a_study_without_captions_of_the_test_split_is_reported_in_one_line(finished_run, tmp_path, monkeypatch):
    monkeypatch.setattr(make, "read_captions", lambda *_: [{}])
    with pytest.raises(
        UserError, match=r"expected captions of two or more test images, found 0; evaluate the split test"
    ):
        finished_run.make(tmp_path, DESIGN)
    assert not list(tmp_path.iterdir())


def test_a_method_that_was_not_run_is_reported_in_one_line(finished_run, tmp_path):
    with pytest.raises(UserError, match=r"nobody: no captions of this method; expected one of luo, psst_multinomial"):
        finished_run.make(tmp_path, replace(DESIGN, methods=("luo", "nobody")))
    with pytest.raises(UserError, match="expected two or more methods to compare, found luo;"):
        finished_run.make(tmp_path, replace(DESIGN, methods=("luo", "luo")))
    with pytest.raises(UserError, match="--reference mle: must be one of the methods"):
        finished_run.make(tmp_path, replace(DESIGN, reference="mle"))
