"""What raters answered: the JSON lines that the pages save, or Label Studio's export, read with the study's key.

An answer is an object with `study`, `sheet`, `task`, `rater`, `question`, `asked`, `shown` (the options from left to
right), `chosen` (one of them) and `seconds`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.study.design import KEY, PASSED, SERVED, TASKS, Question, Task


@dataclass(frozen=True)
class Vote:
    """One rater's answer to a question that counts."""

    question: Question
    rater: str
    first: bool  # the right image was chosen, or the caption of the method that is compared
    seconds: float


@dataclass(frozen=True)
class Answers:
    """All votes of raters who passed the qualification, and what was left out, in words."""

    key: Mapping[str, Any]
    votes: tuple[Vote, ...]
    notes: tuple[str, ...] = ()

    def of(self, task: Task) -> list[Vote]:
        return [vote for vote in self.votes if vote.question.task == task]


def read_answers(study: Path, paths: Sequence[Path]) -> Answers:
    """Read the answers in `paths`, files or folders of .jsonl and .json, with the key of the folder `study`.

    A rater's second answer to a question is left out, and so are raters who did not pass the qualification of a task.
    Raises UserError for a file that cannot be read, and for answers of another study.
    """
    key = _json(study / KEY, "saywhich study writes it")
    questions = {each["name"]: each for each in key["questions"]}
    of_rater: dict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    again = 0
    for where, answer in given_answers(paths):
        if not isinstance(answer, dict) or not {"study", "rater", "question", "chosen"} <= answer.keys():
            raise UserError(f"{where}: not an answer of a study's page")
        if answer["study"] != key["study"]:
            raise UserError(f"{where}: of the study {answer['study']}, and {study / KEY} is of {key['study']}")
        asked = questions.get(answer["question"])
        if asked is None or answer["chosen"] not in asked["options"]:
            raise UserError(f"{where}: no such question, or no such option of it; the file was changed")
        given = of_rater[str(answer["rater"]), asked["task"]]
        again += answer["question"] in given
        given.setdefault(answer["question"], answer)
    votes, failed = [], []
    for (rater, task), given in of_rater.items():
        asked_of = [(_question(questions[name]), answer) for name, answer in given.items()]
        right = sum(q.options[0] == a["chosen"] for q, a in asked_of if questions[q.name]["qualification"])
        if right < PASSED:
            failed.append(f"{rater} ({task}, {right})")
            continue
        votes += [
            Vote(q, rater, q.options[0] == a["chosen"], float(a.get("seconds") or 0))
            for q, a in asked_of
            if not questions[q.name]["qualification"]
        ]
    few = f"Left out, with fewer than {PASSED} right answers in the qualification"
    notes = [f"{few}: {', '.join(failed)}."] if failed else []
    notes += [f"{again} answers to questions that the rater had answered before are left out."] if again else []
    return Answers(key, tuple(votes), tuple(notes))


def given_answers(paths: Sequence[Path]) -> Iterator[tuple[str, Any]]:
    """Where it stands, and the answer, of all answers in the files and folders `paths`."""
    for path in _files(paths):
        for number, answer in _answers(path):
            yield f"{path}, answer {number}", answer


def _question(entry: Mapping[str, Any]) -> Question:
    if entry["task"] not in TASKS:
        raise UserError(f"{KEY}: unknown task {entry['task']}")
    first, second = entry["options"]
    return Question(
        entry["name"], entry["task"], entry["shown"], (first, second), entry["subject"], tuple(entry["methods"])
    )


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.suffix in (".jsonl", ".json"))
        elif path.exists():
            yield path
        else:
            raise UserError(f"{path}: no such file or folder of answers")


def _answers(path: Path) -> Iterator[tuple[int, Any]]:
    """The answers of a file, numbered from 1."""
    if path.suffix == ".json":
        yield from enumerate(_of_label_studio(_json(path, "expected an export of Label Studio"), path), 1)
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise UserError(f"{path}, line {number}: not JSON ({error})") from None


def _of_label_studio(tasks: Any, path: Path) -> Iterator[dict[str, Any]]:
    """The answers of Label Studio's export (JSON); cancelled annotations are passed over."""
    try:
        for task in tasks:
            data = task["data"]
            for made in task["annotations"]:
                if made.get("was_cancelled") or not made["result"]:
                    continue
                side = made["result"][0]["value"]["choices"][0]
                by = made["completed_by"]
                yield {
                    **data,
                    "rater": str(by.get("email") or by["id"]) if isinstance(by, dict) else str(by),
                    "chosen": data[side].removeprefix(SERVED),
                    "seconds": made.get("lead_time"),
                }
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise UserError(f"{path}: not an export of Label Studio as JSON ({type(error).__name__}: {error})") from None


def _json(path: Path, hint: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {hint}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); {hint}") from None
