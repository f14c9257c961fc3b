"""Who is asked what: questions on sheets, each answered by several raters, and no pair of images twice on a sheet.

A sheet is what one rater answers. Every method stands equally often on a sheet, the right image of a question is on the
left for half of its raters (rounded), and so it is for half of a sheet's questions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Task = Literal["retrieval", "naturalness"]
RETRIEVAL: Task = "retrieval"
NATURALNESS: Task = "naturalness"
TASKS = (RETRIEVAL, NATURALNESS)
PEOPLE = "human"  # whose caption is one of a person
KEY = "key.json"
SERVED = "/data/local-files/?d=images/"  # where Label Studio serves pictures from its disk
QUALIFICATION, PASSED = 10, 9  # rounds, and how many must be right: at random one rater in a hundred passes


@dataclass(frozen=True)
class Design:
    """What is asked of how many; the defaults are the paper's."""

    pairs: int = 300  # images of the naturalness task, too
    raters: int = 5  # of each question
    rounds: int = 50  # of one rater
    methods: tuple[str, ...] = ()  # none: those of the paper that were run
    reference: str | None = None  # of the naturalness task; None: ST-Multinomial, or the first method
    cider: float | None = None  # of the methods in the retrieval task; None: the highest that all reach
    score: float | None = None  # in the naturalness task, in %; None: the highest that all reach
    seed: int = 0


@dataclass(frozen=True)
class Question:
    """One caption and two images, or one image and two captions.

    `options` are file names of images or texts; the first is the right image, or the caption of the method that is
    compared, the second the distractor, or the caption of the reference.
    """

    name: str
    task: Task
    shown: str  # the caption, or the image's file name
    options: tuple[str, str]
    subject: int  # the image that it is about; questions about one image are one cluster
    methods: tuple[str, ...] = ()  # whose caption it is; none in the qualification


@dataclass(frozen=True)
class Round:
    """A question as one rater sees it: the options from left to right."""

    question: Question
    options: tuple[str, str]


@dataclass(frozen=True)
class Sheet:
    """What one rater answers, the qualification first, and the codes that the page shows at its end."""

    name: str
    task: Task
    qualification: tuple[Round, ...]
    rounds: tuple[Round, ...]
    completion_code: str
    screen_out_code: str


def lay_out(
    questions: Sequence[Question],
    qualification: Sequence[Question],
    methods: Sequence[str],
    raters: int,
    rounds: int,
    seed: int,
) -> list[Sheet]:
    """Sheets of at most `rounds` questions of one task, on which each question stands `raters` times.

    A Latin square: the questions about the n-th image go to the sheets n, n + 1, … of its block, one each, by the
    place of their first method in `methods`.
    """
    draw = np.random.default_rng([seed, TASKS.index(questions[0].task)])
    about: dict[int, list[Question]] = {}
    for question in questions:
        about.setdefault(question.subject, []).append(question)
    subjects = draw.permutation(list(about))
    sheets = []
    for block in np.array_split(subjects, -(-len(subjects) // rounds)):
        slots: list[list[Question]] = [[] for _ in methods]
        for n, subject in enumerate(block.tolist()):
            for question in about[subject]:
                slots[(n + methods.index(question.methods[0])) % len(methods)].append(question)
        for asked in filter(None, slots):
            first_is_left = draw.permutation(np.arange(len(asked)) % 2 == 0)
            sheets += [_in_order(asked, first_is_left ^ bool(rater % 2), draw) for rater in range(raters)]
    trial = np.arange(len(qualification)) % 2 == 0
    return [
        Sheet(
            name=(name := f"{questions[0].task}-{number:03d}"),
            task=questions[0].task,
            qualification=_in_order(qualification, draw.permutation(trial), draw),
            rounds=sheets[at],
            completion_code=_code(seed, name, "complete"),
            screen_out_code=_code(seed, name, "screened out"),
        )
        for number, at in enumerate(draw.permutation(len(sheets)).tolist(), 1)
    ]


def named(questions: Iterable[Question], prefix: str, seed: int) -> list[Question]:
    """The questions with names that say nothing of their methods: `prefix` and a number at random."""
    listed = list(questions)
    numbers = np.random.default_rng([seed, len(listed)]).permutation(len(listed)).tolist()
    return [replace(each, name=f"{prefix}{number:04d}") for number, each in zip(numbers, listed, strict=True)]


def study_name(content: Mapping[str, object]) -> str:
    """Name a study by a digest of what its key holds beside the name."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def opaque(seed: int, name: object) -> str:
    """Ten characters for a name that raters may not read."""
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()[:10]


def _in_order(asked: Sequence[Question], first_is_left: np.ndarray, draw: np.random.Generator) -> tuple[Round, ...]:
    order = draw.permutation(len(asked)).tolist()
    return tuple(Round(asked[n], asked[n].options if first_is_left[n] else asked[n].options[::-1]) for n in order)


def _code(seed: int, name: str, what: str) -> str:
    return opaque(seed, f"{name}/{what}")[:8].upper()
