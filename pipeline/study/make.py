"""Construction of a study from the sweep's and the evaluations' captions of test images."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.analysis.caption_files import read_captions
from pipeline.analysis.results import Results, Run
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.runtime.files import write_atomically
from pipeline.study import questions as study_questions
from pipeline.study.design import (
    HUMAN,
    KEY,
    NATURALNESS,
    RETRIEVAL,
    Sheet,
    StudyDesign,
    StudyQuestion,
    lay_out,
    make_opaque_name,
    name_questions,
)
from pipeline.study.exports import write_label_studio, write_prolific
from pipeline.study.pages import build_key, check_address, list_images, write_images, write_pages

REFERENCE = "st_multinomial"  # reference of the paper's Table 5


def make_study(
    results: Results,
    prepared: PreparedData,
    features: FeatureStore,
    images_root: Path,
    out: Path,
    design: StudyDesign,
    control: str,
    send: str | None = None,
) -> list[Sheet]:
    """Write pages, key, and the files for Label Studio and Prolific below `out`; return the sheets, one per rater.

    Equal inputs give equal bytes. Raises UserError where captions, images or methods are missing, and for an invalid
    address `send`. Raises UserError also where `out` has the key of another study, whose answers need that key.
    """
    check_address(send)
    methods = study_questions.choose_methods(results, design.methods, control)
    reference = design.reference or (REFERENCE if REFERENCE in methods else methods[0])
    if reference not in methods:
        raise UserError(f"--reference {reference}: must be one of the methods, {', '.join(methods)}")
    retrieval, cider = study_questions.match_runs_by_cider(results, methods, design.cider)
    naturalness, score = study_questions.match_runs_by_score(results, methods, design.score)
    (captions,) = read_captions([retrieval[reference]], None, [])
    rows = sorted(captions)
    if len(rows) < 2:
        raise UserError(
            f"{retrieval[reference].captions}: expected captions of two or more test images, found {len(rows)}; "
            "evaluate the split test, or prepare more test images"
        )
    index_pairs = study_questions.select_similar_pairs(features.pooled(_to_array(rows)), design.pairs, design.seed)
    pairs = [(rows[target], rows[distractor]) for target, distractor in index_pairs]
    files = {image: f"{make_opaque_name(design.seed, image)}.jpg" for image in range(len(prepared))}
    sheets = []
    easy_rounds = list(study_questions.generate_easy_rounds(prepared, design.seed))
    questions = study_questions.generate_retrieval_questions(retrieval, prepared, pairs, files, design.seed)
    qualification = [StudyQuestion("", RETRIEVAL, text, (files[a], files[b]), a) for a, b, text, _ in easy_rounds]
    sheets += _make_sheets(list(questions), qualification, [*methods, HUMAN], design)
    questions = study_questions.generate_naturalness_questions(
        naturalness, reference, [target for target, _ in pairs], files
    )
    qualification = [
        StudyQuestion("", NATURALNESS, files[a], (text, scrambled), a) for a, _, text, scrambled in easy_rounds
    ]
    sheets += _make_sheets(
        list(questions), qualification, [method for method in methods if method != reference], design
    )
    description = {
        "dataset": prepared.manifest["dataset"],
        "pairs": len(pairs),
        "raters": design.raters,
        "seed": design.seed,
        "reference": reference,
        "tasks": {
            RETRIEVAL: _describe_comparison(retrieval, "CIDEr", cider),
            NATURALNESS: _describe_comparison(naturalness, f"{results.score} {results.first_judge.name}", score),
        },
    }
    key = build_key(sheets, description)
    _refuse_another_study(out / KEY, key["study"])
    image_names = list_images(sheets)
    write_images(out, images_root, {name: prepared.file(image) for image, name in files.items() if name in image_names})
    write_pages(out, sheets, key["study"], send)
    write_label_studio(out, sheets, key["study"])
    write_prolific(out, sheets)
    # written last: its presence means that the study is complete
    write_atomically(out / KEY, json.dumps(key, indent=1, ensure_ascii=False) + "\n")
    return sheets


def _refuse_another_study(key: Path, study: str) -> None:
    if not key.exists():
        return
    try:
        existing = json.loads(key.read_text(encoding="utf-8"))["study"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{key}: expected the key of a study, found another file; choose another --out") from None
    if existing != study:
        raise UserError(f"{key}: is the key of another study ({existing}), whose answers need it; choose another --out")


def _make_sheets(
    questions: Sequence[StudyQuestion],
    qualification: Sequence[StudyQuestion],
    methods: Sequence[str],
    design: StudyDesign,
) -> list[Sheet]:
    if not questions:  # all methods generate the same caption for every image
        return []
    task = questions[0].task
    named_questions = name_questions(questions, task[0], design.seed)
    named_qualification = name_questions(qualification, f"q{task[0]}", design.seed)
    return lay_out(named_questions, named_qualification, methods, design.raters, design.rounds, design.seed)


def _describe_comparison(runs: Mapping[str, Run], metric: str, level: float) -> dict[str, Any]:
    settings = {method: dict(run.settings) for method, run in runs.items()}
    return {"methods": settings, "matched_metric": metric, "matched_value": round(level, 4)}


def _to_array(rows: Sequence[int]) -> np.ndarray:
    return np.array(rows, dtype=np.int64)
