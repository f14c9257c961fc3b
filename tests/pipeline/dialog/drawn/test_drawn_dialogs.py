"""Drawn dialogs: answers are relevant, questions depend on earlier rounds, and equal seeds give equal dialogs."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pipeline.dialog.drawn import answerer, write_dialogs
from pipeline.dialog.drawn.answerer import (
    GUESS_RELEVANCE,
    HEDGE_RELEVANCE,
    AnswererStyle,
    SceneQuestion,
    list_true_answers,
    list_wordings,
    rate_answers,
)
from pipeline.dialog.drawn.candidate_answers import OPTIONS, CandidatePool
from pipeline.dialog.drawn.dialog_words import HEDGES, KIND_TEXTS, OTHER_TEXTS, REPEAT_TEXTS, name_depth
from pipeline.dialog.drawn.questioner import ROUNDS, DialogRound, DialogState, generate_dialog
from pipeline.dialog.drawn.rival_answers import RIVALS, RivalAnswers
from pipeline.dialog.drawn.write_dialogs import FILES, write_scene_dialogs
from pipeline.runtime.checksums import CHECKSUMS
from pipeline.worlds.scenes.scene_captions import SceneCaption, SceneClaim, describe_scene
from pipeline.worlds.scenes.scene_facts import Scene, Thing, make_generator
from pipeline.worlds.scenes.write_scenes import draw_scenes, sample_scene

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink")
DOG = Thing(
    "dog", "brown", "spotted", "small", 1, "running", "ground", "left", ((0.1, 0.5, 0.3, 0.7),), (0.1, 0.5, 0.3, 0.7)
)
GIRLS = Thing("girl", "gray", "plain", "large", 2, "standing", "ground", "right", (), (0.5, 0.5, 0.9, 0.9))
SCENE = Scene("park", "sunny", "day", 0.45, 0.45, {"trees": 0.5}, (DOG, GIRLS))
CAPTION = SceneCaption("A dog in the park.", (SceneClaim("category", "dog", 0), SceneClaim("setting", "park")))
CURT, WORDY = AnswererStyle(0, "yep", "nope", True, True, 0.0), AnswererStyle(2, "yes", "no", False, False, 0.0)


@pytest.fixture(scope="module")
def other_scenes() -> list[Scene]:
    return [sample_scene(3, i) for i in range(240)]


@pytest.fixture(scope="module")
def scene_dialogs() -> list[tuple[Scene, list[DialogRound]]]:
    """Return two scenes of each neighbourhood, each with a dialog that begins with the scene's first caption."""
    scenes = {i: sample_scene(3, i) for i in range(0, 4 * 300, 4)}
    return [(scene, generate_dialog(scene, describe_scene(scene, 3, i)[0], 3, i)) for i, scene in scenes.items()]


@pytest.fixture(scope="module")
def pool(scene_dialogs) -> CandidatePool:
    return CandidatePool(rounds for _, rounds in scene_dialogs)


@pytest.mark.parametrize(
    ("question", "true", "false"),
    [
        (
            SceneQuestion("colour", "", 0),
            {"brown", "it is brown", "brown with spots"},
            {"black", "it is black", "brown with stripes"},
        ),
        (SceneQuestion("colour", "", 1), {"gray", "grey", "they are wearing grey"}, {"it is gray", "white"}),
        (SceneQuestion("is_colour", "", 0, "brown"), {"yes", "yep it is", "it is brown"}, {"no", "no brown"}),
        (SceneQuestion("is_colour", "", 0, "black"), {"no", "nope brown", "it is brown"}, {"yes", "it is black"}),
        (SceneQuestion("count", "", 1), {"2", "two", "i see 2"}, {"3", "one"}),
        (SceneQuestion("pose", "", 0), {"running", "it is just running"}, {"sitting"}),
        (
            SceneQuestion("side", "", 0),
            {"back left", "on the left in the back", "it is on the left in the back"},
            {"front left", "back right", "left"},
        ),
        (
            SceneQuestion("look", "", 0),
            {"brown and running", "looks brown and running"},
            {"black and running", "brown"},
        ),
        (SceneQuestion("look", "", 1), {"standing in gray", "standing in grey"}, {"running in gray"}),
        (SceneQuestion("size", "", 1), {"large", "pretty big"}, {"small", "medium"}),
        (SceneQuestion("pattern", "", 0, "striped"), {"no", "no spots", "just spots"}, {"yes", "i see stripes"}),
        (SceneQuestion("near", "", 0), {"2 girls", "two girls in gray dresses"}, {"nothing", "a girl"}),
        (SceneQuestion("exist", "", -1, "cat"), {"no", "no cats"}, {"yes", "yes a cat"}),
        (SceneQuestion("exist_kind", "", -1, "children"), {"yes", "yes two girls", "there are 2 girls"}, {"no"}),
        (SceneQuestion("total", "", -1, "people"), {"2", "there are two"}, {"none", "1"}),
        (SceneQuestion("relation", "", 0, "right_of"), {"2 girls", "i see two girls"}, {"nothing", "a dog"}),
        (SceneQuestion("relation", "", 0, "left_of"), {"nothing", "there is nothing"}, {"2 girls"}),
        (SceneQuestion("else", "", -1, "", "none", (1,)), {"2 girls", "two girls in gray dresses"}, {"nothing", "yes"}),
        (SceneQuestion("else", ""), {"nothing", "that's all"}, {"no", "yes"}),
        (SceneQuestion("scenery", "", -1, "trees"), {"yes", "i see some"}, {"no"}),
        (SceneQuestion("is_weather", "", -1, "rainy"), {"no", "it is sunny"}, {"yes"}),
        (SceneQuestion("light", ""), {"day", "daytime"}, {"night"}),
        (SceneQuestion("setting", ""), {"in the park", "a park"}, {"on the beach"}),
    ],
)
def test_an_answer_is_relevant_if_it_is_true(question, true, false):
    found = rate_answers(SCENE, question)
    assert {text: found.get(text, 0.0) for text in true} == dict.fromkeys(true, 1.0)
    assert not false & found.keys()
    assert {found[text] for text in HEDGES} == {HEDGE_RELEVANCE}


def test_hedges_are_more_relevant_than_guesses_to_unanswerable_questions():
    found = rate_answers(SCENE, SceneQuestion("age", "how old is she", 1))
    assert found["can't tell"] == 1.0
    assert found["maybe 10"] == GUESS_RELEVANCE
    assert "brown" not in found


def test_the_style_of_an_answerer_determines_its_wordings():
    asked = SceneQuestion("is_colour", "is it brown", 0, "brown")
    curt, wordy = (
        dict(list_wordings(list_true_answers(SCENE, asked, style.digits, style.grey), style)) for style in (CURT, WORDY)
    )
    assert max(curt, key=curt.__getitem__) == "yep"
    assert wordy["it is brown"] == pytest.approx(0.60 / 2)
    assert wordy["yes"] == 0.06
    assert sum(curt.values()) == pytest.approx(1)
    assert {text for text, _ in list_wordings(list_true_answers(SCENE, SceneQuestion("count", "", 1), True), CURT)} >= {
        "2",
        "there are 2",
    }


def test_a_dialog_depends_on_seed_and_image_alone():
    assert (
        generate_dialog(SCENE, CAPTION, 1, 5)
        == generate_dialog(SCENE, CAPTION, 1, 5)
        != generate_dialog(SCENE, CAPTION, 1, 6)
    )
    assert generate_dialog(SCENE, CAPTION, 1, 5) != generate_dialog(SCENE, CAPTION, 2, 5)
    first = [write_dialogs._generate_image_dialog(seed, 5, SCENE)[0] for seed in range(8)]
    assert len(set(first)) > 1, "without given captions, the caption depends on the seed"
    assert first == [
        write_dialogs._generate_image_dialog(seed, 5, SCENE, describe_scene(SCENE, seed, 5))[0] for seed in range(8)
    ]


def test_every_answer_is_relevant_and_nothing_is_asked_twice(scene_dialogs):
    refers = Counter()
    for scene, rounds in scene_dialogs[:60]:
        assert len(rounds) == ROUNDS
        assert len({(q.kind, q.thing, q.asked) for q, _ in rounds}) == ROUNDS
        for question, answer in rounds:
            assert rate_answers(scene, question)[answer] > 0, (question, answer)
            refers[question.refers] += 1
    # Questions with a pronoun or an ellipsis need the history.
    assert (refers["pronoun"] + refers["ellipsis"]) / refers.total() > 0.3


def test_a_pronoun_refers_to_the_thing_of_the_last_question(scene_dialogs):
    checked = 0
    for _, rounds in scene_dialogs[:60]:
        for (last, _), (question, _) in itertools.pairwise(rounds):
            if question.refers == "pronoun" and last.thing >= 0 and last.kind not in ("near", "relation"):
                assert question.thing == last.thing
                checked += 1
    assert checked > 50


def test_the_first_question_is_about_the_scene_or_a_thing_that_the_caption_names():
    first = [generate_dialog(SCENE, CAPTION, 1, i)[0].question for i in range(40)]
    assert {question.thing for question in first} == {-1, 0}  # the caption does not name the girls
    assert all(question.kind not in ("setting", "is_setting") for question in first)  # the caption states the setting


def make_state(*known: int) -> DialogState:
    """Return the state of a dialog about SCENE in which the things `known` have been named, the first by CAPTION."""
    state = DialogState(SCENE, CAPTION, np.random.default_rng(1))
    state.known = list(known)
    return state


def test_a_question_about_a_setting_or_weather_that_the_caption_states_counts_as_asked():
    state = make_state(0)
    for kind, value in (("setting", ""), ("is_setting", "a beach"), ("is_setting", "a park")):
        assert state._make_key(SceneQuestion(kind, "", -1, value)) in state.asked
    assert state._make_key(SceneQuestion("weather", "")) not in state.asked
    sunny = DialogState(SCENE, SceneCaption("", (SceneClaim("weather", "sunny"),)), np.random.default_rng(1))
    assert {sunny._make_key(SceneQuestion(kind, "")) for kind in ("weather", "light")} == sunny.asked


def test_no_question_asks_for_a_kind_after_a_thing_of_this_kind_was_named():
    state = make_state(0)
    asked = [question.asked for _ in range(60) if (question := state._ask_about_scene("exist_kind"))]
    assert set(asked) == {"people", "vehicles", "children"}  # the caption names a dog


def test_questions_are_about_present_and_absent_things():
    state = make_state(0)
    questions = [state._ask_about_scene("exist") for _ in range(200)]
    # Half of the questions ask for an unnamed thing of the scene. Some others ask for a girl by chance.
    about_girls = [question.asked == "girl" for question in questions if question is not None]
    assert 0.4 < np.mean(about_girls) < 0.75


def test_a_repeated_question_and_a_question_for_the_kind_are_ellipses():
    last = SceneQuestion("colour", "what color is it", 0)
    for _ in range(20):
        again = make_state(0, 1)._repeat(last)
        assert (again.kind, again.thing, again.refers) == ("colour", 1, "ellipsis")
        texts = [
            text.format(noun=noun) for text in (*REPEAT_TEXTS, *OTHER_TEXTS) for noun in ("girls", "kids", "children")
        ]
        assert again.text in texts
    state = make_state(0)
    state.unnamed = 1
    which = state._propose()
    assert (which.kind, which.thing, which.refers) == ("which", 1, "ellipsis")
    assert which.text in KIND_TEXTS


def test_a_thing_is_at_the_top_in_the_back_or_in_front():
    assert [name_depth(thing) for thing in (DOG, GIRLS)] == ["back", "front"]
    assert name_depth(replace(DOG, place="air", box=(0.1, 0.5, 0.3, 0.9))) == "top"
    assert name_depth(replace(DOG, box=(0.1, 0.5, 0.3, 0.79))) == "front"


@pytest.mark.parametrize(("thing", "kinds"), [(0, {"happy", "collar"}), (1, {"age", "happy"})])
def test_unanswerable_questions_fit_the_kind_of_thing(thing, kinds):
    state = make_state(0, 1)
    assert {state._ask_about_thing(thing, "unanswerable").kind for _ in range(40)} == kinds


def test_candidates_are_a_hundred_different_answers_with_the_truth_at_a_random_index(pool):
    rng = np.random.default_rng(1)
    indices = set()
    for truth in ("it is brown", "an answer outside the pool"):
        for _ in range(20):
            options, index = pool.draw_candidates("what color is it", truth, rng)
            assert len(options) == len(set(options)) == OPTIONS
            assert options[index] == truth
            indices.add(index)
    assert len(indices) > 20


def test_plausible_candidates_answer_similar_questions(pool):
    colours = {"red", "blue", "green", "white", "black", "brown", "yellow", "orange", "gray", "grey", "pink", "purple"}
    shares = [
        np.mean([bool(set(text.split()) & colours) for text in pool.list_plausible(question)])
        for question in ("what color is it", "how many are there")
    ]
    assert shares[0] > 0.7
    assert shares[1] < 0.3


def test_too_few_answers_are_refused():
    with pytest.raises(ValueError, match="expected 101 distinct answers or more, got 1;"):
        CandidatePool([[DialogRound(SceneQuestion("count", "how many"), "2")]])


@pytest.mark.slow
def test_the_files_have_the_form_of_visdial(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.dialog.drawn.write_dialogs.POOL_DIALOGS", 120)
    drawn = [(scene, describe_scene(scene, 3, i)) for i in range(6) for scene in [sample_scene(3, i)]]
    found = write_scene_dialogs(tmp_path, drawn, ["test", "test", "val", "train", "train", "train"], 3)
    assert found["dialogs"] == 6
    names = {f"{content}_{split}.json" for content in ("dialogs", "relevance") for split in ("train", "val", "test")}
    assert {path.name for path in tmp_path.iterdir()} == set(FILES) == names
    test = json.loads((tmp_path / "dialogs_test.json").read_text())
    relevant = json.loads((tmp_path / "relevance_test.json").read_text())
    assert [dialog["image_id"] for dialog in test["data"]["dialogs"]] == [0, 1]
    assert [(entry["image_id"], entry["round_id"]) for entry in relevant][9:12] == [(0, 10), (1, 1), (1, 2)]
    for dialog, entries in zip(test["data"]["dialogs"], (relevant[:10], relevant[10:]), strict=True):
        assert len(dialog["dialog"]) == ROUNDS
        for round_, entry in zip(dialog["dialog"], entries, strict=True):
            assert len(set(round_["answer_options"])) == OPTIONS
            assert round_["answer_options"][round_["gt_index"]] == round_["answer"]
            assert entry["gt_relevance"][round_["gt_index"]] > 0
            texts = [test["data"]["answers"][i] for i in round_["answer_options"]]
            assert entry["gt_relevance"] == [entry["answers"].get(text, 0.0) for text in texts]
    write_scene_dialogs(tmp_path / "fewer", drawn[:3], ["test", "test", "val"], 3)  # no dialog depends on other images
    again = json.loads((tmp_path / "fewer" / "dialogs_test.json").read_text())
    assert again["data"]["dialogs"] == test["data"]["dialogs"]


@pytest.mark.slow
def test_drawing_dialogs_changes_no_image_or_caption(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.dialog.drawn.write_dialogs.POOL_DIALOGS", 150)
    for name in ("with", "without"):
        annotate = write_scene_dialogs if name == "with" else None
        draw_scenes(tmp_path / name, images=24, size=32, val=8, test=8, seed=3, workers=1, annotate=annotate)
    files = {path.relative_to(tmp_path / "without") for path in (tmp_path / "without").rglob("*") if path.is_file()}
    assert len(files) > 24
    for file in (file for file in files if file.name != CHECKSUMS):
        assert (tmp_path / "with" / file).read_bytes() == (tmp_path / "without" / file).read_bytes()
    assert (tmp_path / "with" / "dialogs_test.json").is_file()


def test_dialogs_have_many_kinds_of_questions_and_an_unknown_kind_is_refused(scene_dialogs):
    asked = {question.kind for _, rounds in scene_dialogs for question, _ in rounds}
    assert len(asked) > 25
    with pytest.raises(ValueError, match="flavour"):
        answerer.list_true_answers(SCENE, SceneQuestion("flavour", ""))


def make_pool(*questions: tuple[str, int]) -> CandidatePool:
    """Return a pool of these questions, each with the given number of different answers."""
    return CandidatePool(
        [DialogRound(SceneQuestion("count", text), f"{text} {i}") for i in range(number)] for text, number in questions
    )


def test_a_pool_needs_a_hundred_answers_in_addition_to_the_thirty_popular_ones():
    options, _ = make_pool(("how many", 130)).draw_candidates("how many", "2", np.random.default_rng(1))
    assert len(options) == OPTIONS
    with pytest.raises(ValueError, match="expected 130 distinct answers or more, got 129;"):
        make_pool(("how many", 129))


def test_the_thirty_most_frequent_answers_are_candidates_of_every_question():
    answers = [f"rare {i}" for i in range(200)] + [f"frequent {i}" for i in range(30) for _ in range(2 + i % 3)]
    pool = CandidatePool(
        [[DialogRound(SceneQuestion("count", f"question {i}"), text)] for i, text in enumerate(answers)]
    )
    for question in ("question 3", "what"):
        options, _ = pool.draw_candidates(question, "a truth", np.random.default_rng(2))
        assert {f"frequent {i}" for i in range(30)} <= set(options)


def test_the_vector_of_a_question_by_hand():
    pool = make_pool(("is it a big dog", 130), ("is she", 1))
    vector = pool._compute_vector("is it a big dog").reshape(4, -1)
    columns = {word: pool._column[word] for word in ("is", "it", "a", "big", "dog")}
    idf = np.log(2)  # idf of a word in one of the two questions; "is" is in both
    expected = np.zeros_like(vector)
    expected[1, columns["it"]] = expected[2, columns["a"]] = idf
    expected[3, columns["big"]] = expected[3, columns["dog"]] = idf / 2  # all words after the third share one position
    np.testing.assert_allclose(vector, expected, rtol=1e-6)


def test_the_first_name_of_a_near_thing_has_its_colour():
    answers = list_true_answers(SCENE, SceneQuestion("near", "", 0), digits=True, grey=True)
    assert (answers.short, answers.longer) == ("2 girls in grey dresses", ("2 girls",))
    assert answers.whole == ("i see 2 girls in grey dresses", "i see 2 girls")


def test_no_question_asks_whether_things_named_in_the_caption_exist(scene_dialogs):
    asked = 0
    for i, (scene, rounds) in enumerate(scene_dialogs):
        caption = describe_scene(scene, 3, 4 * i)[0]
        named = {scene.things[n].category for claim in caption.claims for n in (claim.thing, claim.other) if n >= 0}
        for question, _ in rounds:
            if question.kind == "exist":
                asked += 1
                assert question.asked not in named
    assert asked > 100


@pytest.mark.slow
def test_candidates_are_rivals_or_from_a_pool_that_depends_on_the_seed(tmp_path, monkeypatch):
    seeds = set()

    def record_stream(seed: int, index: int, purpose: int) -> np.random.Generator:
        seeds.add(seed)
        return make_generator(seed, index, purpose)

    def record_rivals(seed: int, scenes: list[Scene]) -> RivalAnswers:
        seeds.add(seed)
        return RivalAnswers(seed, scenes)

    monkeypatch.setattr(write_dialogs, "POOL_DIALOGS", 120)
    monkeypatch.setattr(write_dialogs, "make_generator", record_stream)
    monkeypatch.setattr(write_dialogs, "RivalAnswers", record_rivals)
    drawn = [(scene, describe_scene(scene, 3, 0)) for scene in [sample_scene(3, 0)]]
    write_scene_dialogs(tmp_path, drawn, ["test"], 3)
    assert seeds == {3}
    pool = {
        answer
        for i in range(0, 2 * 120, 2)
        for _, answer in write_dialogs._generate_image_dialog(3, write_dialogs.POOL_START + i)[1]
    }
    content = json.loads((tmp_path / "dialogs_test.json").read_text())["data"]
    for round_ in content["dialogs"][0]["dialog"]:
        options = {content["answers"][i] for i in round_["answer_options"]}
        assert len(options - {content["answers"][round_["answer"]]} - pool) <= RIVALS


@pytest.mark.parametrize(("digits", "number"), [(True, "2"), (False, "two")])
def test_a_total_is_written_in_the_answerers_style_of_numbers(digits, number):
    answers = list_true_answers(SCENE, SceneQuestion("total", "", -1, "people"), digits=digits, grey=True)
    assert (answers.short, answers.longer) == (number, (f"i see {number}", f"just {number}"))


def test_questions_that_name_a_value_of_the_scene_record_this_value(scene_dialogs):
    for _, rounds in scene_dialogs:
        for question, _ in rounds:
            if question.kind in ("exist", "exist_kind", "total", "is_weather", "is_setting", "scenery"):
                assert question.asked
                assert not question.unmentioned
            if question.kind == "else":
                assert not question.asked


def test_similar_questions_are_the_nearest_by_the_idf_of_their_words():
    """The squared distance to "x y", up to a constant, is 1.2 − 2·1.2 for "x" and 10.8 − 2·4.4 for "x y z w"."""
    pool = make_pool(("x", 130), ("x y z w", 130), *((f"other {i}", 1) for i in range(4)))
    assert {text.rpartition(" ")[0] for text in pool.list_plausible("x y")} == {"x"}
    assert len(pool.list_plausible("x y")) == 100


def test_fifty_candidates_are_plausible():
    plausible = [[DialogRound(SceneQuestion("count", "how many"), f"plausible {i}")] for i in range(100)]
    popular = [[DialogRound(SceneQuestion("count", "what"), f"popular {i}")] * 3 for i in range(30)]
    pool = CandidatePool(
        [*plausible, *popular, *([DialogRound(SceneQuestion("count", "who"), f"other {i}")] for i in range(2000))]
    )
    options, _ = pool.draw_candidates("how many", "a truth", np.random.default_rng(1))
    # Few of the random candidates are plausible.
    assert 50 <= sum(text.startswith("plausible") for text in options) <= 55
    assert sum(text.startswith("popular") for text in options) == 30
    rivals = [f"rival {i}" for i in range(20)]
    options, _ = pool.draw_candidates("how many", "a truth", np.random.default_rng(1), rivals)
    assert 30 <= sum(text.startswith("plausible") for text in options) <= 35  # the rivals count among the fifty


@pytest.fixture(scope="module")
def rivals(other_scenes) -> RivalAnswers:
    return RivalAnswers(3, other_scenes)


def test_rivals_of_a_colour_are_other_colours_that_such_a_thing_can_have(rivals):
    question = SceneQuestion("colour", "what color is it", 0)
    relevant = rate_answers(SCENE, question)
    found = rivals.draw(np.random.default_rng(1), SCENE, question, relevant)
    assert len(found) == len(set(found)) > 10
    assert not set(found) & relevant.keys()
    named = [set(text.split()) & {"brown", "black", "white", "gray", "grey", *COLOURS} for text in found]
    assert set().union(*named) <= {"black", "white", "gray", "grey", "brown"}  # "brown with stripes" is false, too
    assert all(named)


def test_rivals_of_a_number_are_other_numbers_and_other_rivals_keep_the_number(rivals):
    words = {*("1", "2", "3"), *("one", "two", "three")}
    question = SceneQuestion("count", "how many", 1)
    found = rivals.draw(np.random.default_rng(1), SCENE, question, rate_answers(SCENE, question))
    named = {word for text in found for word in set(text.split()) & words}
    assert {"1", "one"} <= named <= {"1", "3", "one", "three"}
    question = SceneQuestion("pose", "what are they doing", 1)
    women = replace(SCENE, things=(DOG, replace(GIRLS, category="woman")))  # no other scene has two girls
    found = rivals.draw(np.random.default_rng(1), women, question, rate_answers(women, question))
    assert found
    assert not any(set(text.split()) & {"she", "is"} for text in found)


def test_rivals_do_not_depend_on_earlier_questions(other_scenes):
    questions = [
        SceneQuestion("weather", ""),
        SceneQuestion("else", "", unmentioned=(1,)),
        SceneQuestion("size", "", 0),
    ]

    def draw_rivals(asked: list[SceneQuestion]) -> list[list[str]]:
        source = RivalAnswers(3, other_scenes)
        return [source.draw(np.random.default_rng(2), SCENE, question, ()) for question in asked]

    found = draw_rivals(questions)
    assert found == draw_rivals(questions[::-1])[::-1]
    assert all(found)


def test_at_most_four_candidates_are_synonyms_of_the_truth():
    pool = make_pool(*((f"question {i}", 30) for i in range(10)))
    true = [f"question 1 {i}" for i in range(25)]
    options, index = pool.draw_candidates("question 1", true[0], np.random.default_rng(1), ["a rival"], true)
    assert len(set(options) & set(true)) == 5
    assert (len(options), options[index]) == (OPTIONS, true[0])
    assert "a rival" in options


def test_most_questions_cannot_be_answered_by_yes_or_no(scene_dialogs):
    answers = [answer.split()[0] for _, rounds in scene_dialogs for _, answer in rounds]
    assert np.mean([word in {"yes", "yeah", "yep", "no", "nope"} for word in answers]) < 0.2


def test_some_questions_are_about_things_that_the_caption_does_not_name(scene_dialogs):
    dialogs = 0
    for i, (scene, rounds) in enumerate(scene_dialogs[:60]):
        named = {thing for claim in describe_scene(scene, 3, 4 * i)[0].claims for thing in (claim.thing, claim.other)}
        dialogs += any(question.thing >= 0 and question.thing not in named for question, _ in rounds)
    assert dialogs > 10
