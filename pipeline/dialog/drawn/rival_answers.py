"""False answers of the right type: answers to the same question about things in other scenes."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from functools import cache

import numpy as np

from pipeline.dialog.drawn.answerer import AnswererStyle, SceneQuestion, give_answer
from pipeline.worlds.scenes.scene_facts import Scene, make_generator

RIVALS = 30  # maximum number of rivals of a question
ANSWERS = 90  # answers from which rivals are drawn
STREAM = 14  # random stream of these answers


class RivalAnswers:
    """Source of answers to questions about `scenes`, which are in no data set."""

    def __init__(self, seed: int, scenes: Sequence[Scene]) -> None:
        self._seed, self._scenes = seed, scenes
        self._answers = cache(self._draw_answers)

    def draw(
        self, rng: np.random.Generator, scene: Scene, question: SceneQuestion, relevant: Collection[str]
    ) -> list[str]:
        """Draw up to RIVALS distinct answers to the question in other scenes, without the `relevant` answers."""
        category, count = "", 0
        if question.thing >= 0:
            thing = scene.things[question.thing]
            category, count = thing.category, 0 if question.kind == "count" else thing.count
        answers = self._answers(question.kind, question.asked, category, count)
        rivals = dict.fromkeys(answers[i] for i in rng.permutation(len(answers)) if answers[i] not in relevant)
        return list(rivals)[:RIVALS]

    def _draw_answers(self, kind: str, asked: str, category: str, count: int) -> list[str]:
        """Draw ANSWERS answers about things of a category and a count (0: any), or about scenes; [] if none fit."""
        rng = make_generator(self._seed, zlib.crc32(f"{kind} {asked} {category} {count}".encode()), STREAM)
        questions = []
        for scene in self._scenes:
            things = [i for i, thing in enumerate(scene.things) if thing.category == category]
            targets = [i for i in things if count in (0, scene.things[i].count)] if category else [-1]
            unmentioned = np.flatnonzero(rng.random(len(scene.things)) < 0.5).tolist() if kind == "else" else ()
            questions += [(scene, SceneQuestion(kind, "", i, asked, unmentioned=tuple(unmentioned))) for i in targets]
        if not questions:
            return []
        samples = (questions[int(rng.random() * len(questions))] for _ in range(ANSWERS))
        return [give_answer(rng, scene, question, AnswererStyle.draw(rng)) for scene, question in samples]
