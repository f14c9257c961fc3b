"""Dialogs of a simulated questioner and one answerer; questions refer to earlier rounds by pronoun and ellipsis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pipeline.dialog.drawn.answerer import AnswererStyle, SceneQuestion, give_answer, of_kind, true_answers
from pipeline.dialog.drawn.dialog_words import (
    AGAIN,
    ATMOSPHERES,
    BLIND,
    MARKS,
    MOVING,
    NUMBERS,
    OF_SCENE,
    OF_THINGS,
    OTHER,
    RELATIONS,
    SCENERY,
    WHICH,
    be,
    doing,
    garment,
    is_worn,
    noun,
    plural,
    pronoun,
    with_article,
)
from pipeline.worlds.scenes import scene_words as w
from pipeline.worlds.scenes.scene_captions import SceneCaption
from pipeline.worlds.scenes.scene_facts import CONVERSE, Scene, atmosphere, pick, stream
from pipeline.worlds.scenes.scene_world import CATEGORIES, SETTINGS

ROUNDS = 10
STREAM = 11  # random stream; drawing and captions have their own
ABOUT_A_THING = 0.85  # share of questions about a thing, once one has been named
ATTRIBUTE_OF = {
    "colour": "colour",
    "is_colour": "colour",
    "pose": "pose",
    "is_pose": "pose",
    "count": "count",
    "size": "size",
    "pattern": "pattern",
}
OF_A_THING = {  # most ask for what only the picture shows; answers of yes or no would be easy to guess
    **{"colour": 4.0, "is_colour": 0.2, "count": 1.6, "pose": 1.6, "is_pose": 0.2, "size": 0.1, "look": 1.6},
    **{"pattern": 0.1, "facing": 0.05, "side": 1.6, "near": 0.5, "relation": 1.6, "blind": 0.05},
}
OF_THE_SCENE = {
    **{"exist": 1.0, "exist_kind": 0.4, "else": 2.0, "total": 0.2, "weather": 0.3, "is_weather": 0.05, "light": 0.05},
    **{"setting": 0.5, "is_setting": 0.1, "scenery": 0.1, "outdoors": 0.02, "time": 0.02, "good": 0.02},
}
CONVERSES = CONVERSE | {converse: relation for relation, converse in CONVERSE.items()}
DULL = 0.75  # share of questions with the answer no or one that are skipped
EMPTY = 0.95  # share of questions for things that are nowhere that are skipped
REPEATED = (
    "colour",
    "count",
    "look",
    "pose",
    "size",
    "facing",
    "side",
)  # kinds that "and the dog" repeats


class DialogRound(NamedTuple):
    question: SceneQuestion
    answer: str


def generate_dialog(scene: Scene, caption: SceneCaption, seed: int, index: int) -> list[DialogRound]:
    """Return ten questions and answers about `scene`, image `index`; they depend on the arguments alone.

    The questioner knows `caption`, the answerer knows the scene.
    """
    rng = stream(seed, index, STREAM)
    talk, person = DialogState(scene, caption, rng), AnswererStyle.draw(rng)
    rounds: list[DialogRound] = []
    while len(rounds) < ROUNDS:
        question = talk.ask()
        answer = give_answer(rng, scene, question, person)
        talk.update_knowledge(question, answer)
        rounds.append(DialogRound(question, answer))
    return rounds


class DialogState:
    """Common knowledge of a dialog so far; things are indices into `Scene.things`."""

    def __init__(self, scene: Scene, caption: SceneCaption, rng: np.random.Generator) -> None:
        self.scene, self.rng = scene, rng
        named = [thing for claim in caption.claims for thing in (claim.of, claim.to) if thing >= 0]
        self.known = list(dict.fromkeys(named))  # things that have been named
        self.stated = {(claim.what, claim.of) for claim in caption.claims}  # attributes of things
        self.asked: set[tuple[str, int, str]] = set()
        for claim in caption.claims:
            if claim.what == "relation":
                self.stated |= {(claim.value, claim.to), (CONVERSES.get(claim.value, claim.value), claim.of)}
        if any(claim.what in ("weather", "light") for claim in caption.claims):
            self.asked |= {("weather", -1, ""), ("light", -1, "")}
        if any(claim.what == "setting" for claim in caption.claims):
            self.asked |= {("setting", -1, ""), ("is_setting", -1, "")}
        self.focus = self.known[0] if self.known else -1  # the referent of a pronoun
        self.last: SceneQuestion | None = None
        self.vague = -1  # an unnamed thing of a kind that is known to be in the scene

    def ask(self) -> SceneQuestion:
        """Return the next question; it repeats no question and asks for no known fact."""
        for _ in range(1000):
            question = self._propose()
            if question is not None and self._key(question) not in self.asked and not self._dull(question):
                self.asked.add(self._key(question))
                return question
        raise RuntimeError("nothing left to ask")

    def _dull(self, question: SceneQuestion) -> bool:
        """Return whether to skip the question because its answer is no, nothing or one, as most answers would be."""
        if question.kind not in ("exist", "exist_kind", "scenery", "total", "near", "relation", "else", "count"):
            return False
        answer = true_answers(self.scene, question).short
        skipped = {"no": DULL, "none": DULL, NUMBERS[1][1]: DULL, "nothing": EMPTY}
        return answer in skipped and self.rng.random() < skipped[answer]

    def update_knowledge(self, question: SceneQuestion, answer: str) -> None:
        """Update the common knowledge with an answer."""
        things, words = self.scene.things, set(answer.split())
        if question.of >= 0:
            self.focus = question.of
            self.stated.add((ATTRIBUTE_OF.get(question.kind, question.kind), question.of))
            self.stated |= {("colour", question.of)} if question.kind == "look" else set()
        named = [i for i, thing in enumerate(things) if i not in self.known and noun(thing) in words]
        if question.kind == "exist" and words & {"yes", "yeah", "yep", "there", "see"}:
            named = [i for i, thing in enumerate(things) if thing.category == question.asked]
        for i in named:
            self._learn(i)
            self.stated |= {("colour", i)} if things[i].colour in words else set()
        if question.kind == "exist_kind" and not named and words & {"yes", "yeah", "yep"}:
            there = [i for i, thing in enumerate(things) if thing in of_kind(self.scene, question.asked)]
            self.vague = next((i for i in there if i not in self.known), -1)
        self.last = question

    def _learn(self, i: int) -> None:
        if i not in self.known:
            self.known.append(i)
        self.focus = i

    def _key(self, question: SceneQuestion) -> tuple[str, int, str]:
        return question.kind, question.of, "" if question.kind == "is_setting" else question.asked

    def _propose(self) -> SceneQuestion | None:
        """Return a random question; None if it makes no sense."""
        rng, last = self.rng, self.last
        if self.vague >= 0:
            i, self.vague = self.vague, -1
            self._learn(i)
            return SceneQuestion("which", pick(rng, WHICH), i, refers="ellipsis")
        if last is not None and last.of >= 0 and last.kind in REPEATED and rng.random() < 0.4:
            return self._again(last)
        if self.known and rng.random() < ABOUT_A_THING:
            i = self.focus if self.focus >= 0 and rng.random() < 0.65 else pick(rng, self.known)
            return self._of_thing(i, pick(rng, tuple(OF_A_THING), tuple(OF_A_THING.values())))
        return self._of_scene(pick(rng, tuple(OF_THE_SCENE), tuple(OF_THE_SCENE.values())))

    def _again(self, last: SceneQuestion) -> SceneQuestion | None:
        attribute = ATTRIBUTE_OF.get(last.kind, last.kind)
        others = [i for i in self.known if i != last.of and (attribute, i) not in self.stated]
        if not others or not self._fits(others[0], last.kind):
            return None
        texts = OTHER if len(self.known) == 2 and self.rng.random() < 0.4 else AGAIN
        text = pick(self.rng, texts).format(noun=noun(self.scene.things[others[0]], self.rng.random() < 0.15))
        return SceneQuestion(last.kind, text, others[0], refers="ellipsis")

    def _fits(self, i: int, kind: str) -> bool:
        """Return whether a question of this kind applies to thing `i`."""
        category = CATEGORIES[self.scene.things[i].category]
        needs = {"pose": MOVING, "facing": MOVING, **dict.fromkeys(BLIND, ())}.get(kind)
        if needs is not None and category.kind not in needs:
            return False
        if kind == "is_pose":
            return len(category.poses) > 1
        return category.patterned > 0 if kind == "pattern" else True

    def _of_thing(self, i: int, kind: str) -> SceneQuestion | None:
        rng, thing = self.rng, self.scene.things[i]
        category = CATEGORIES[thing.category]
        if (ATTRIBUTE_OF.get(kind, kind), i) in self.stated or not self._fits(i, kind):
            return None
        asked = ""
        if kind == "relation":
            asked = pick(rng, tuple(RELATIONS))
            if (asked, i) in self.stated:
                return None
        elif kind == "blind":
            if category.kind not in BLIND:
                return None
            kind = pick(rng, BLIND[category.kind])
        elif kind == "is_colour":
            asked = thing.colour if rng.random() < 0.5 else pick(rng, category.colours)
        elif kind == "is_pose":
            asked = thing.pose if rng.random() < 0.5 else pick(rng, tuple(category.poses))
        elif kind == "pattern":
            asked = thing.pattern if thing.pattern != "plain" else pick(rng, tuple(MARKS))
        by_pronoun = i == self.focus and rng.random() < 0.75
        texts = OF_THINGS[kind]
        if is_worn(thing):
            texts = OF_THINGS.get(f"{kind}:worn", texts)
        if kind == "count" and by_pronoun:
            texts = OF_THINGS["count:group"]
        asked_text = doing(thing.category, asked) if kind == "is_pose" else RELATIONS.get(asked, asked)
        shown = {"asked": asked_text, "marks": MARKS.get(asked, "")}
        text = pick(rng, texts).format(**self._names(i, by_pronoun), **shown)
        return SceneQuestion(kind, text, i, asked, "pronoun" if by_pronoun else "name")

    def _names(self, i: int, by_pronoun: bool) -> Mapping[str, str]:
        thing = self.scene.things[i]
        name = f"the {noun(thing, self.rng.random() < 0.12)}"
        cases = {"s": name, "o": name, "p": f"{name}'" if thing.count > 1 else f"{name}'s"}
        if by_pronoun:
            cases = dict(zip("sop", map(pronoun, (thing,) * 3, range(3)), strict=True))
        worn = {"garment": garment(thing)} if is_worn(thing) else {}
        return {
            **cases,
            **worn,
            "be": be(thing),
            "do": "do" if thing.count > 1 else "does",
            "plural": plural(thing.category),
        }

    def _of_scene(self, kind: str) -> SceneQuestion | None:
        rng, scene = self.rng, self.scene
        unknown = [i for i in range(len(scene.things)) if i not in self.known]
        asked, shown = "", ""
        unmentioned: tuple[int, ...] = ()
        if kind == "exist":
            there = bool(unknown) and rng.random() < 0.5
            asked = scene.things[unknown[0]].category if there else pick(rng, SETTINGS[scene.setting])
            if any(scene.things[i].category == asked for i in self.known):
                return None
        elif kind in ("exist_kind", "total"):
            asked = pick(rng, ("people", "animals", "vehicles", "children"))
            named = any(scene.things[i] in of_kind(scene, asked) for i in self.known)
            if named and kind == "exist_kind":
                return None
        elif kind == "else":
            unmentioned = tuple(unknown)
        elif kind == "is_weather":
            asked = atmosphere(scene) if rng.random() < 0.5 else pick(rng, tuple(ATMOSPHERES))
            shown = ATMOSPHERES[asked][0] if asked != "sunset" else "sunset"
        elif kind == "is_setting":
            asked = w.SCENES[scene.setting if rng.random() < 0.5 else pick(rng, tuple(SETTINGS))][0]
        elif kind == "scenery":
            asked = pick(rng, tuple(SCENERY))
            shown = SCENERY[asked]
        category = plural(asked) if kind == "exist" else ""
        a_asked = with_article(asked) if kind == "exist" else ""
        text = pick(rng, OF_SCENE[kind]).format(asked=shown or asked, a_asked=a_asked, plural=category)
        return SceneQuestion(kind, text, -1, asked, "ellipsis" if kind == "else" else "none", unmentioned)
