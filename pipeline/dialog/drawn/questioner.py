"""Dialogs of a simulated questioner and answerer; questions refer to earlier rounds by pronoun and ellipsis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pipeline.dialog.drawn.answerer import AnswererStyle, SceneQuestion, give_answer, list_true_answers, select_kind
from pipeline.dialog.drawn.dialog_words import (
    ATMOSPHERES,
    KIND_TEXTS,
    MOVING,
    NUMBERS,
    OTHER_TEXTS,
    PATTERN_NOUNS,
    RELATIONS,
    REPEAT_TEXTS,
    SCENE_QUESTIONS,
    SCENERY,
    THING_QUESTIONS,
    UNANSWERABLE,
    add_article,
    choose_noun,
    choose_pose_verb,
    choose_pronoun,
    conjugate_be,
    form_plural,
    has_garment,
    name_garment,
)
from pipeline.worlds.scenes import scene_words as w
from pipeline.worlds.scenes.scene_captions import SceneCaption
from pipeline.worlds.scenes.scene_facts import CONVERSE, Scene, make_generator, name_atmosphere, pick
from pipeline.worlds.scenes.scene_world import CATEGORIES, SETTINGS

ROUNDS = 10
STREAM = 11  # random stream of dialogs
THING_SHARE = 0.85  # probability of proposing a question about a thing, after a thing has been named
ATTRIBUTE_OF = {
    "colour": "colour",
    "is_colour": "colour",
    "pose": "pose",
    "is_pose": "pose",
    "count": "count",
    "size": "size",
    "pattern": "pattern",
}
# relative probability of each kind of question; yes-no questions about attributes are rare, since their answers are
# easily guessed
THING_KINDS = {
    **{"colour": 4.0, "is_colour": 0.2, "count": 1.6, "pose": 1.6, "is_pose": 0.2, "size": 0.1, "look": 1.6},
    **{"pattern": 0.1, "facing": 0.05, "side": 1.6, "near": 0.5, "relation": 1.6, "unanswerable": 0.05},
}
SCENE_KINDS = {
    **{"exist": 1.0, "exist_kind": 0.4, "else": 2.0, "total": 0.2, "weather": 0.3, "is_weather": 0.05, "light": 0.05},
    **{"setting": 0.5, "is_setting": 0.1, "scenery": 0.1, "outdoors": 0.02, "time": 0.02, "good": 0.02},
}
CONVERSES = CONVERSE | {converse: relation for relation, converse in CONVERSE.items()}
SKIP_NO = 0.75  # probability of skipping a question with the answer no, none or one
SKIP_NOTHING = 0.95  # probability of skipping a question with the answer nothing
REPEATABLE = ("colour", "count", "look", "pose", "size", "facing", "side")  # kinds that "and the dog" may repeat


class DialogRound(NamedTuple):
    """Question and answer."""

    question: SceneQuestion
    answer: str


def generate_dialog(scene: Scene, caption: SceneCaption, seed: int, index: int) -> list[DialogRound]:
    """Return ROUNDS questions and answers about `scene`, image `index`; they depend on the arguments alone.

    Only questions of the kinds that `DialogState.ask` names may ask for a fact that `caption` states.
    """
    rng = make_generator(seed, index, STREAM)
    state, style = DialogState(scene, caption, rng), AnswererStyle.draw(rng)
    rounds: list[DialogRound] = []
    while len(rounds) < ROUNDS:
        question = state.ask()
        answer = give_answer(rng, scene, question, style)
        state.update_knowledge(question, answer)
        rounds.append(DialogRound(question, answer))
    return rounds


class DialogState:
    """State of a dialog: common knowledge and questions asked so far; things are indices into `Scene.things`."""

    def __init__(self, scene: Scene, caption: SceneCaption, rng: np.random.Generator) -> None:
        self.scene, self.rng = scene, rng
        mentioned_things = [thing for claim in caption.claims for thing in (claim.thing, claim.other) if thing >= 0]
        self.known = list(dict.fromkeys(mentioned_things))  # things that have been named
        self.stated = {(claim.kind, claim.thing) for claim in caption.claims}  # attributes of things
        self.asked: set[tuple[str, int, str]] = set()
        for claim in caption.claims:
            if claim.kind == "relation":
                self.stated |= {(claim.value, claim.other), (CONVERSES.get(claim.value, claim.value), claim.thing)}
        if any(claim.kind in ("weather", "light") for claim in caption.claims):
            self.asked |= {("weather", -1, ""), ("light", -1, "")}
        if any(claim.kind == "setting" for claim in caption.claims):
            self.asked |= {("setting", -1, ""), ("is_setting", -1, "")}
        self.focus = self.known[0] if self.known else -1  # thing to which a pronoun refers
        self.last: SceneQuestion | None = None
        self.unnamed = -1  # a thing that the last answer implied by its kind alone

    def ask(self) -> SceneQuestion:
        """Return the next question, which repeats no question and rarely asks for a known fact.

        Questions of the kinds look, near, total, scenery, outdoors and is_weather may ask for a fact that the caption
        states. Of an answer, only the asked attribute of a thing and newly named things with their colours count as
        known. A colour named as "grey" does not. Raises RuntimeError where no question applies in 1,000 proposals.
        """
        for _ in range(1000):
            question = self._propose()
            if question is not None and self._make_key(question) not in self.asked and not self._is_skipped(question):
                self.asked.add(self._make_key(question))
                return question
        raise RuntimeError(f"expected a further question about the scene, found none after {len(self.asked)}")

    def _is_skipped(self, question: SceneQuestion) -> bool:
        """Return whether to skip the question, drawn at random.

        Most questions about existence, relations and counts with the answer no, none, nothing or one are skipped.
        """
        if question.kind not in ("exist", "exist_kind", "scenery", "total", "near", "relation", "else", "count"):
            return False
        answer = list_true_answers(self.scene, question).short
        skipped = {"no": SKIP_NO, "none": SKIP_NO, NUMBERS[1][1]: SKIP_NO, "nothing": SKIP_NOTHING}
        return answer in skipped and self.rng.random() < skipped[answer]

    def update_knowledge(self, question: SceneQuestion, answer: str) -> None:
        """Update the common knowledge with an answer."""
        things, words = self.scene.things, set(answer.split())
        if question.thing >= 0:
            self.focus = question.thing
            self.stated.add((ATTRIBUTE_OF.get(question.kind, question.kind), question.thing))
            self.stated |= {("colour", question.thing)} if question.kind == "look" else set()
        new_things = [i for i, thing in enumerate(things) if i not in self.known and choose_noun(thing) in words]
        if question.kind == "exist" and words & {"yes", "yeah", "yep", "there", "see"}:
            new_things = [i for i, thing in enumerate(things) if thing.category == question.asked]
        for i in new_things:
            self._add_known(i)
            self.stated |= {("colour", i)} if things[i].colour in words else set()
        if question.kind == "exist_kind" and not new_things and words & {"yes", "yeah", "yep"}:
            candidates = [i for i, thing in enumerate(things) if thing in select_kind(self.scene, question.asked)]
            self.unnamed = next((i for i in candidates if i not in self.known), -1)
        self.last = question

    def _add_known(self, i: int) -> None:
        if i not in self.known:
            self.known.append(i)
        self.focus = i

    def _make_key(self, question: SceneQuestion) -> tuple[str, int, str]:
        return question.kind, question.thing, "" if question.kind == "is_setting" else question.asked

    def _propose(self) -> SceneQuestion | None:
        """Return a random question; None if it does not apply."""
        rng, last = self.rng, self.last
        if self.unnamed >= 0:
            i, self.unnamed = self.unnamed, -1
            self._add_known(i)
            return SceneQuestion("which", pick(rng, KIND_TEXTS), i, refers="ellipsis")
        if last is not None and last.thing >= 0 and last.kind in REPEATABLE and rng.random() < 0.4:
            return self._repeat(last)
        if self.known and rng.random() < THING_SHARE:
            i = self.focus if self.focus >= 0 and rng.random() < 0.65 else pick(rng, self.known)
            return self._ask_about_thing(i, pick(rng, tuple(THING_KINDS), tuple(THING_KINDS.values())))
        return self._ask_about_scene(pick(rng, tuple(SCENE_KINDS), tuple(SCENE_KINDS.values())))

    def _repeat(self, last: SceneQuestion) -> SceneQuestion | None:
        attribute = ATTRIBUTE_OF.get(last.kind, last.kind)
        others = [i for i in self.known if i != last.thing and (attribute, i) not in self.stated]
        if not others or not self._applies(others[0], last.kind):
            return None
        texts = OTHER_TEXTS if len(self.known) == 2 and self.rng.random() < 0.4 else REPEAT_TEXTS
        text = pick(self.rng, texts).format(noun=choose_noun(self.scene.things[others[0]], self.rng.random() < 0.15))
        return SceneQuestion(last.kind, text, others[0], refers="ellipsis")

    def _applies(self, i: int, kind: str) -> bool:
        """Return whether a question of this kind applies to thing `i`."""
        category = CATEGORIES[self.scene.things[i].category]
        needs = {"pose": MOVING, "facing": MOVING}.get(kind)
        if needs is not None and category.kind not in needs:
            return False
        if kind == "is_pose":
            return len(category.poses) > 1
        return category.patterned > 0 if kind == "pattern" else True

    def _ask_about_thing(self, i: int, kind: str) -> SceneQuestion | None:
        rng, thing = self.rng, self.scene.things[i]
        category = CATEGORIES[thing.category]
        if (ATTRIBUTE_OF.get(kind, kind), i) in self.stated or not self._applies(i, kind):
            return None
        asked = ""
        if kind == "relation":
            asked = pick(rng, tuple(RELATIONS))
            if (asked, i) in self.stated:
                return None
        elif kind == "unanswerable":
            if category.kind not in UNANSWERABLE:
                return None
            kind = pick(rng, UNANSWERABLE[category.kind])
        elif kind == "is_colour":
            asked = thing.colour if rng.random() < 0.5 else pick(rng, category.colours)
        elif kind == "is_pose":
            asked = thing.pose if rng.random() < 0.5 else pick(rng, tuple(category.poses))
        elif kind == "pattern":
            asked = thing.pattern if thing.pattern != "plain" else pick(rng, tuple(PATTERN_NOUNS))
        by_pronoun = i == self.focus and rng.random() < 0.75
        texts = THING_QUESTIONS[kind]
        if has_garment(thing):
            texts = THING_QUESTIONS.get(f"{kind}:worn", texts)
        if kind == "count" and by_pronoun:
            texts = THING_QUESTIONS["count:group"]
        asked_text = choose_pose_verb(thing.category, asked) if kind == "is_pose" else RELATIONS.get(asked, asked)
        values = {"asked": asked_text, "marks": PATTERN_NOUNS.get(asked, "")}
        text = pick(rng, texts).format(**self._list_word_forms(i, by_pronoun), **values)
        return SceneQuestion(kind, text, i, asked, "pronoun" if by_pronoun else "name")

    def _list_word_forms(self, i: int, by_pronoun: bool) -> Mapping[str, str]:
        thing = self.scene.things[i]
        name = f"the {choose_noun(thing, self.rng.random() < 0.12)}"
        cases = {"s": name, "o": name, "p": f"{name}'" if thing.count > 1 else f"{name}'s"}
        if by_pronoun:
            cases = dict(zip("sop", map(choose_pronoun, (thing,) * 3, range(3)), strict=True))
        worn = {"garment": name_garment(thing)} if has_garment(thing) else {}
        return {
            **cases,
            **worn,
            "be": conjugate_be(thing),
            "do": "do" if thing.count > 1 else "does",
            "plural": form_plural(thing.category),
        }

    def _ask_about_scene(self, kind: str) -> SceneQuestion | None:
        rng, scene = self.rng, self.scene
        unknown = [i for i in range(len(scene.things)) if i not in self.known]
        asked, wording = "", ""
        unmentioned: tuple[int, ...] = ()
        if kind == "exist":
            present = bool(unknown) and rng.random() < 0.5
            asked = scene.things[unknown[0]].category if present else pick(rng, SETTINGS[scene.setting])
            if any(scene.things[i].category == asked for i in self.known):
                return None
        elif kind in ("exist_kind", "total"):
            asked = pick(rng, ("people", "animals", "vehicles", "children"))
            has_known_things = any(scene.things[i] in select_kind(scene, asked) for i in self.known)
            if has_known_things and kind == "exist_kind":
                return None
        elif kind == "else":
            unmentioned = tuple(unknown)
        elif kind == "is_weather":
            asked = name_atmosphere(scene) if rng.random() < 0.5 else pick(rng, tuple(ATMOSPHERES))
            wording = ATMOSPHERES[asked][0] if asked != "sunset" else "sunset"
        elif kind == "is_setting":
            asked = w.SCENES[scene.setting if rng.random() < 0.5 else pick(rng, tuple(SETTINGS))][0]
        elif kind == "scenery":
            asked = pick(rng, tuple(SCENERY))
            wording = SCENERY[asked]
        plural_noun = form_plural(asked) if kind == "exist" else ""
        a_asked = add_article(asked) if kind == "exist" else ""
        text = pick(rng, SCENE_QUESTIONS[kind]).format(asked=wording or asked, a_asked=a_asked, plural=plural_noun)
        return SceneQuestion(kind, text, -1, asked, "ellipsis" if kind == "else" else "none", unmentioned)
