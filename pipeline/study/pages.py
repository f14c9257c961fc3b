"""Pages of a study: an HTML page for each rater, its pictures, and a key that raters do not get.

Raters need only `pages/`, from a disk or any web server: one HTML file per sheet, which fetches only the pictures in
`pages/images/`. The source of a page contains the right answers of the qualification and the codes. Methods, and right
answers of the measured questions, are in `key.json` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pipeline.errors import UserError
from pipeline.features.images import open_image
from pipeline.report.html_templates import hash_source
from pipeline.study.design import NATURALNESS, PASSED, RETRIEVAL, Sheet, StudyRound, Task, make_study_name

TEMPLATE = Path(__file__).parent / "template"
MAX_SIDE = 420  # pixels of a picture
ADDRESS = re.compile(r"https?://[^\s/'\",;][^\s'\",;]*")  # addresses that a page's security policy can name
INSTRUCTIONS: Mapping[Task, Sequence[str]] = {  # instructions of the paper's appendix B, word for word
    RETRIEVAL: (
        "You are given two images and a sentence caption that should describe one of them. Select the image that is "
        "best described by the sentence.",
        "If both images are suitable, choose the one that fits best in your opinion.",
        "Some of the sentences may have incorrect grammar and “broken English” - that’s OK! Choose the most suitable "
        "image anyway.",
    ),
    NATURALNESS: (
        "Read the two given captions (sentences).",
        "Choose the one that, in your opinion, is better written.",
        "Pay attention to issues like: grammar, singular vs plural, unnecessary repetitions and content coherence.",
        "Sometimes, both sentences (captions) may look like “broken English”, that’s OK! Choose the one you think is "
        "best anyway.",
    ),
}


def check_address(send: str | None) -> None:
    """Raise UserError for an address that is not http or https, or that would end a page's security policy."""
    if send is not None and not ADDRESS.fullmatch(send):
        problem = "expected an address https://… or http://… without spaces, quotes, commas and semicolons"
        raise UserError(f"--send {send}: {problem}; write those characters as %20, %22, %27, %2C and %3B")


def write_pages(out: Path, sheets: Sequence[Sheet], study: str, send: str | None = None) -> None:
    """Write `out`/pages/SHEET.html; `send` is a checked address to which each page posts its answers at the end."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True, undefined=jinja2.StrictUndefined
    )
    style, script = (Markup((TEMPLATE / f"sheet.{kind}").read_text("utf-8")) for kind in ("css", "js"))
    folder = out / "pages"
    folder.mkdir(parents=True, exist_ok=True)
    for sheet in sheets:
        content = {
            "study": study,
            "sheet": sheet.name,
            "task": sheet.task,
            "qualification": [
                {**_describe_round(round_), "right": round_.question.options[0]} for round_ in sheet.qualification
            ],
            "rounds": [_describe_round(round_) for round_ in sheet.rounds],
            "needed": PASSED,
            "codes": {"complete": sheet.completion_code, "screened": sheet.screen_out_code},
            "send": send,
        }
        page = environment.get_template("sheet.html").render(
            sheet=sheet,
            content=content,
            instructions=INSTRUCTIONS[sheet.task],
            style=style,
            script=script,
            hashes=[hash_source(style), hash_source(script)],
            send=send,
        )
        (folder / f"{sheet.name}.html").write_text(page, encoding="utf-8")


def write_images(out: Path, root: Path, files: Mapping[str, str]) -> None:
    """Write each image `root`/file as `out`/pages/images/name: an upright, reduced JPEG without metadata.

    `files` are the images' paths below `root`, by name. Raises the errors of `open_image`.
    """
    folder = out / "pages" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        picture = open_image(root / file)
        picture.thumbnail((MAX_SIDE, MAX_SIDE))
        picture.save(folder / name, format="JPEG", quality=88)


def build_key(sheets: Sequence[Sheet], description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of key.json: `description`, all questions with their methods, and the sheets with their codes.

    The entry `study` is the name of the study, a digest of the rest of the key. Every answer repeats the name.
    """
    rounds = [round_ for sheet in sheets for round_ in (*sheet.qualification, *sheet.rounds)]
    questions = {round_.question.name: asdict(round_.question) for round_ in rounds}
    qualification = {round_.question.name for sheet in sheets for round_ in sheet.qualification}
    key = {
        **description,
        "questions": [questions[name] | {"qualification": name in qualification} for name in sorted(questions)],
        "sheets": [_describe_sheet(sheet) for sheet in sheets],
    }
    return {"study": make_study_name(key), **key}


def _describe_round(round_: StudyRound) -> dict[str, Any]:
    return {"question": round_.question.name, "asked": round_.question.shown, "shown": list(round_.options)}


def _describe_sheet(sheet: Sheet) -> dict[str, Any]:
    return {
        "sheet": sheet.name,
        "task": sheet.task,
        "completion_code": sheet.completion_code,
        "screen_out_code": sheet.screen_out_code,
        "questions": [round_.question.name for round_ in sheet.rounds],
    }


def list_images(sheets: Iterable[Sheet]) -> set[str]:
    """Return the names of all pictures on the sheets."""
    names: set[str] = set()
    for sheet in sheets:
        for round_ in (*sheet.qualification, *sheet.rounds):
            names.update(round_.options if sheet.task == RETRIEVAL else [round_.question.shown])
    return names
