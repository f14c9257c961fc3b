"""Design of a study: sheets of questions, each question for `raters` raters, no pair of images twice on a sheet.

A sheet holds the questions of one rater. The numbers of two methods' captions on a sheet differ by at most one, where
no methods share a caption. The first option of a question is on the left for half of its raters (rounded), and for half
of a sheet's questions (rounded).
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
HUMAN = "human"  # the name of human captions among methods
KEY = "key.json"
PICTURE_ROOT = "/data/local-files/?d=images/"  # the path under which Label Studio serves pictures from its disk
QUALIFICATION, PASSED = 10, 9  # rounds, and right answers needed: one rater in a hundred passes at random


@dataclass(frozen=True)
class StudyDesign:
    """Sizes and settings of a study; the defaults of `pairs` and `raters` are the values of Vered et al. (2019)."""

    pairs: int = 300  # maximum; also the number of images of the naturalness task
    raters: int = 5  # per question
    rounds: int = 50  # maximum per rater, besides the qualification
    # empty: the paper's methods that were run, else all but the control and `pretrained`
    methods: tuple[str, ...] = ()
    reference: str | None = None  # reference of the naturalness task; None: ST-Multinomial, or the first method
    # validation CIDEr of the methods in the retrieval task; None: the highest that all reach
    cider: float | None = None
    score: float | None = None  # validation score in the naturalness task, in %; None: the highest that all reach
    seed: int = 0


@dataclass(frozen=True)
class StudyQuestion:
    """Question about one caption and two images, or about one image and two captions.

    `options` are file names of images, or texts. The first is the right image or the compared method's caption; the
    second is the distractor or the reference's caption.
    """

    name: str
    task: Task
    shown: str  # the caption, or the image's file name
    options: tuple[str, str]
    subject: int  # row of its image; questions about one image form one cluster
    methods: tuple[str, ...] = ()  # the methods that generated the caption; empty in the qualification


@dataclass(frozen=True)
class StudyRound:
    """Question with its options in one rater's order, from left to right."""

    question: StudyQuestion
    options: tuple[str, str]


@dataclass(frozen=True)
class Sheet:
    """Rounds of one rater, the qualification first, and two codes; the page shows one of the codes at its end."""

    name: str
    task: Task
    qualification: tuple[StudyRound, ...]
    rounds: tuple[StudyRound, ...]
    completion_code: str
    screen_out_code: str


def lay_out(
    questions: Sequence[StudyQuestion],
    qualification: Sequence[StudyQuestion],
    methods: Sequence[str],
    raters: int,
    rounds: int,
    seed: int,
) -> list[Sheet]:
    """Distribute the questions of one task to sheets of at most `rounds` rounds, each question to `raters` sheets.

    The design is a Latin square over blocks of at most `rounds` images. Let m be the index in `methods` of a question's
    first method. A question about the n-th image of a block goes to slot n + m, modulo the number of methods. Each slot
    gives `raters` sheets.
    """
    rng = np.random.default_rng([seed, TASKS.index(questions[0].task)])
    by_subject: dict[int, list[StudyQuestion]] = {}
    for question in questions:
        by_subject.setdefault(question.subject, []).append(question)
    subjects = rng.permutation(list(by_subject))
    rounds_by_sheet = []
    for block in np.array_split(subjects, -(-len(subjects) // rounds)):
        slots: list[list[StudyQuestion]] = [[] for _ in methods]
        for n, subject in enumerate(block.tolist()):
            for question in by_subject[subject]:
                slots[(n + methods.index(question.methods[0])) % len(methods)].append(question)
        for slot in filter(None, slots):
            first_is_left = rng.permutation(np.arange(len(slot)) % 2 == 0)
            rounds_by_sheet += [_shuffle_rounds(slot, first_is_left ^ bool(rater % 2), rng) for rater in range(raters)]
    half_left = np.arange(len(qualification)) % 2 == 0
    return [
        Sheet(
            name=(name := f"{questions[0].task}-{number:03d}"),
            task=questions[0].task,
            qualification=_shuffle_rounds(qualification, rng.permutation(half_left), rng),
            rounds=rounds_by_sheet[index],
            completion_code=_make_code(seed, name, "complete"),
            screen_out_code=_make_code(seed, name, "screened out"),
        )
        for number, index in enumerate(rng.permutation(len(rounds_by_sheet)).tolist(), 1)
    ]


def name_questions(questions: Iterable[StudyQuestion], prefix: str, seed: int) -> list[StudyQuestion]:
    """Return the questions with names that do not reveal their methods: `prefix` and a random number."""
    question_list = list(questions)
    numbers = np.random.default_rng([seed, len(question_list)]).permutation(len(question_list)).tolist()
    pairs = zip(numbers, question_list, strict=True)
    return [replace(question, name=f"{prefix}{number:04d}") for number, question in pairs]


def make_study_name(content: Mapping[str, object]) -> str:
    """Return a study's name, a digest of `content`, the study's key without the name."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def make_opaque_name(seed: int, name: object) -> str:
    """Return ten characters of a digest in place of a name that raters must not read."""
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()[:10]


def _shuffle_rounds(
    questions: Sequence[StudyQuestion], first_is_left: np.ndarray, rng: np.random.Generator
) -> tuple[StudyRound, ...]:
    order = rng.permutation(len(questions)).tolist()
    return tuple(
        StudyRound(questions[n], questions[n].options if first_is_left[n] else questions[n].options[::-1])
        for n in order
    )


def _make_code(seed: int, name: str, purpose: str) -> str:
    return make_opaque_name(seed, f"{name}/{purpose}")[:8].upper()
