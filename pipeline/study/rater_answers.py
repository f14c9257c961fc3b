"""Raters' answers: the JSON lines that the pages save, or Label Studio's export, read with the study's key.

A page's answer is an object with `study`, `sheet`, `task`, `rater`, `question`, `asked`, `shown`, `chosen` and
`seconds`. `shown` has the options from left to right, and `chosen` is one of them. Only the fields of `RaterAnswer`
are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from pipeline.errors import UserError, summarise_error
from pipeline.runtime.records import Line, Record, parse_json, parse_record, read_bytes, read_json
from pipeline.study.design import KEY, PASSED, PICTURE_ROOT, TASKS, StudyQuestion, Task, make_study_name

MAX_BYTES = 2**26  # bytes of a file of answers, or of a key
Text = Annotated[str, Field(max_length=10_000)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]


class OpenRecord(Record):
    """Record that ignores unknown keys."""

    model_config = ConfigDict(extra="ignore")


class RaterAnswer(OpenRecord):
    """Rater's answer to one question."""

    study: Line
    rater: Line | int
    question: Line
    chosen: Text
    seconds: Seconds | None = None


class KeyQuestion(OpenRecord):
    """Question in the key: a `StudyQuestion`, and whether it belongs to the qualification."""

    name: Line
    task: Task
    shown: Text
    options: Annotated[list[Text], Field(min_length=2, max_length=2)]
    subject: Annotated[int, Field(ge=0, lt=2**53)]
    methods: list[Line]
    qualification: bool


class KeyTask(OpenRecord):
    """Comparison of a task: methods matched at the value `at` of the metric `matched_metric`."""

    methods: dict[Line, Any]
    matched_metric: Line
    matched_value: float


class StudyKey(OpenRecord):
    """Part of a study's key that is needed to read answers."""

    study: Line
    reference: Line
    tasks: dict[Task, KeyTask]
    questions: list[KeyQuestion]


@dataclass(frozen=True)
class Vote:
    """Rater's answer to a question outside the qualification."""

    question: StudyQuestion
    rater: str
    first: bool  # whether the rater chose the right image, or the compared method's caption
    seconds: float


@dataclass(frozen=True)
class Answers:
    """Votes of raters who passed the qualification, and notes on omitted answers."""

    key: StudyKey
    votes: tuple[Vote, ...]
    notes: tuple[str, ...] = ()

    def get_votes(self, task: Task) -> list[Vote]:
        """Return the votes on the questions of a task."""
        return [vote for vote in self.votes if vote.question.task == task]


def read_answers(study: Path, paths: Sequence[Path]) -> Answers:
    """Read the answers in `paths`, files or folders of .jsonl and .json, with the key of the folder `study`.

    A rater's later answers to the same question are omitted. A rater's answers in a task are omitted if the rater did
    not pass that task's qualification. Raises UserError for a missing or unreadable file, a changed key or an invalid
    answer. Raises UserError for an answer of another study, and for a question or option that the key lacks.
    """
    key = _read_key(study / KEY)
    questions = {question.name: question for question in key.questions}
    answers_by_rater: dict[tuple[str, str], dict[str, RaterAnswer]] = defaultdict(dict)
    repeated = 0
    for where, content in iterate_answers(paths):
        answer = parse_record(content, RaterAnswer, where, "give the file that the page or Label Studio saved")
        if answer.study != key.study:
            raise UserError(
                f"{where}: expected an answer of the study {key.study}, found one of {answer.study[:40]}; give "
                "the answers of this study"
            )
        question = questions.get(answer.question)
        if question is None or answer.chosen not in question.options:
            raise UserError(
                f"{where}: expected a question and an option of the study's key, got {answer.question[:40]} and "
                f"{answer.chosen[:40]}; give the file that the page or Label Studio saved"
            )
        previous_answers = answers_by_rater[str(answer.rater), question.task]
        repeated += answer.question in previous_answers
        previous_answers.setdefault(answer.question, answer)
    votes, failed = [], []
    for (rater, task), answers in answers_by_rater.items():
        pairs = [(questions[name], answer) for name, answer in answers.items()]
        right = sum(q.options[0] == a.chosen for q, a in pairs if q.qualification)
        if right < PASSED:
            failed.append(f"{rater} ({task}, {right})")
            continue
        votes += [
            Vote(_convert_question(q), rater, q.options[0] == a.chosen, float(a.seconds or 0))
            for q, a in pairs
            if not q.qualification
        ]
    cause = f"Raters with fewer than {PASSED} right answers in the qualification are left out"
    notes = [f"{cause}: {', '.join(failed)}."] if failed else []
    notes += [f"{repeated} answers to questions that the rater had answered before are left out."] if repeated else []
    return Answers(key, tuple(votes), tuple(notes))


def iterate_answers(paths: Sequence[Path]) -> Iterator[tuple[str, Any]]:
    """Yield the location and the content of each answer in the files and folders `paths`."""
    for path in _list_files(paths):
        for position, answer in _read_file(path):
            yield f"{path}, {position}", answer


def _read_key(path: Path) -> StudyKey:
    """Read a study's key; the study's name is a digest of the rest of the key.

    Raises UserError where the key is missing, invalid or was changed.
    """
    if not path.exists():
        raise UserError(f"{path}: no such file; give the folder that saywhich study wrote")
    content = read_json(path, "make the study again", MAX_BYTES)
    key = parse_record(content, StudyKey, str(path), "make the study again")
    if make_study_name({name: value for name, value in content.items() if name != "study"}) != key.study:
        raise UserError(f"{path}: its content was changed; make the study again, or get the file again")
    if set(key.tasks) != set(TASKS) or len({question.name for question in key.questions}) < len(key.questions):
        raise UserError(f"{path}: a task is missing, or two questions have one name; make the study again")
    return key


def _convert_question(question: KeyQuestion) -> StudyQuestion:
    first, second = question.options
    return StudyQuestion(
        question.name, question.task, question.shown, (first, second), question.subject, tuple(question.methods)
    )


def _list_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.suffix.lower() in (".jsonl", ".json"))
        elif path.exists():
            yield path
        else:
            raise UserError(f"{path}: no such file or folder of answers; give the files that the pages saved")


def _read_file(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the answers of a file, each with its position: `answer 1`, or `line 1` in a file of JSON lines."""
    if path.suffix.lower() == ".json":
        tasks = read_json(path, "give an export of Label Studio as JSON", MAX_BYTES)
        yield from ((f"answer {number}", answer) for number, answer in enumerate(_read_label_studio(tasks, path), 1))
        return
    try:
        content = read_bytes(path, "give the file that the page saved", MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error}); give the file that the page saved") from None
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            yield f"line {number}", parse_json(line, f"{path}, line {number}", "give the file that the page saved")


def _read_label_studio(tasks: Any, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the answers of Label Studio's export (JSON); cancelled and empty annotations are skipped."""
    try:
        for task in tasks:
            data = task["data"]
            for annotation in task["annotations"]:
                if annotation.get("was_cancelled") or not annotation["result"]:
                    continue
                side = annotation["result"][0]["value"]["choices"][0]
                annotator = annotation["completed_by"]
                rater = (annotator.get("email") or annotator["id"]) if isinstance(annotator, dict) else annotator
                yield {
                    **data,
                    "rater": str(rater),
                    "chosen": data[side].removeprefix(PICTURE_ROOT),
                    "seconds": annotation.get("lead_time"),
                }
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise UserError(
            f"{path}: not an export of Label Studio as JSON ({type(error).__name__}: {summarise_error(error, 60)}); "
            "export the tasks again"
        ) from None
