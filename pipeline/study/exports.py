"""Exports of a study's rounds: Label Studio's tasks, and Prolific's table of pages and codes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from pipeline.report.number_files import format_csv
from pipeline.study.design import PICTURE_ROOT, RETRIEVAL, Sheet, StudyRound, Task
from pipeline.study.pages import INSTRUCTIONS

SECONDS = 10  # estimated duration of a round


def write_label_studio(out: Path, sheets: Sequence[Sheet], study: str) -> None:
    """Write below `out`/label_studio each task's labelling configuration, TASK.xml, and each rater's tasks, SHEET.json.

    Label Studio serves the pictures of `pages/` if LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED is true and
    LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT is the folder `pages/`. The project also needs a storage of local files with
    the folder `pages/images`.
    """
    folder = out / "label_studio"
    folder.mkdir(parents=True, exist_ok=True)
    for task in dict.fromkeys(sheet.task for sheet in sheets):
        (folder / f"{task}.xml").write_text(_build_configuration(task), encoding="utf-8")
    for sheet in sheets:
        tasks = [{"data": _build_task(round_, sheet, study)} for round_ in (*sheet.qualification, *sheet.rounds)]
        (folder / f"{sheet.name}.json").write_text(
            json.dumps(tasks, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def write_prolific(out: Path, sheets: Sequence[Sheet]) -> None:
    """Write prolific.csv: each sheet's relative URL, number of participants, minutes and both codes.

    Prolific replaces the placeholder {{%PROLIFIC_PID%}} of the URL by the participant's ID.
    """
    rows = [
        {
            "sheet": sheet.name,
            "page": f"{sheet.name}.html?PROLIFIC_PID={{{{%PROLIFIC_PID%}}}}",
            "places": 1,
            "minutes": -(-(len(sheet.qualification) + len(sheet.rounds)) * SECONDS // 60),
            "completion_code": sheet.completion_code,
            "screen_out_code": sheet.screen_out_code,
        }
        for sheet in sheets
    ]
    (out / "prolific.csv").write_text(format_csv(list(rows[0]), rows), encoding="utf-8")


def _build_task(round_: StudyRound, sheet: Sheet, study: str) -> dict[str, object]:
    is_retrieval = sheet.task == RETRIEVAL
    left, right = round_.options
    return {
        "study": study,
        "sheet": sheet.name,
        "task": sheet.task,
        "question": round_.question.name,
        "asked": round_.question.shown if is_retrieval else f"{PICTURE_ROOT}{round_.question.shown}",
        "left": f"{PICTURE_ROOT}{left}" if is_retrieval else left,
        "right": f"{PICTURE_ROOT}{right}" if is_retrieval else right,
    }


def _build_configuration(task: Task) -> str:
    kind = "Image" if task == RETRIEVAL else "Text"
    element = '<Header value="$asked"/>' if task == RETRIEVAL else '<Image name="asked" value="$asked"/>'
    lines = [f'  <Header size="5" value={quoteattr(line)}/>' for line in INSTRUCTIONS[task]]
    return "\n".join(
        [
            "<View>",
            *lines,
            f"  {element}",
            '  <View style="display: grid; grid-template-columns: 1fr 1fr; gap: 1rem">',
            f'    <{kind} name="left" value="$left"/>',
            f'    <{kind} name="right" value="$right"/>',
            "  </View>",
            '  <Choices name="chosen" toName="left" choice="single-radio" required="true" showInLine="true">',
            '    <Choice value="left" hotkey="1"/>',
            '    <Choice value="right" hotkey="2"/>',
            "  </Choices>",
            "</View>",
            "",
        ]
    )
