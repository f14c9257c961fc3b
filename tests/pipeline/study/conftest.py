"""A small run of three methods as the pipeline writes it: pictures, features, human captions, a grid's captions."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Picture

from pipeline.analysis.results import read_results
from pipeline.data.corpus import AnnotatedCaption, Corpus, CorpusImage
from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.data.prepared import PreparedData, write_prepared
from pipeline.study.design import Sheet, StudyDesign
from pipeline.study.make import make_study

TRAIN, TEST = 24, 24
METHODS = ("luo", "psst_multinomial", "st_multinomial")


@dataclass(frozen=True)
class FinishedRun:
    """Finished run in the folder `root`, from which `make` makes a study."""

    root: Path

    def make(self, out: Path, design: StudyDesign, send: str | None = None) -> list[Sheet]:
        results = read_results(self.root / "sweep", [])
        prepared, features = PreparedData.load(self.root / "prepared"), FeatureStore(self.root / "features" / "main")
        return make_study(results, prepared, features, self.root / "images", out, design, "mle", send)


def make_caption(method: str, image: int, lam: float) -> str:
    """Return a caption.

    The captions of ST and Luo are equal for every fourth image. The captions of PSST and ST are equal for image 30.
    """
    if image == 30 and method != "luo":
        return "a word for thirty"
    return f"a {method if image % 4 else method.replace('luo', 'st_multinomial')} caption of {image} at {lam:g}"


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory) -> FinishedRun:
    root = tmp_path_factory.mktemp("trial")
    images = []
    for n in range(TRAIN + TEST):
        text = f"A person wrote the words of picture {n}, at length."
        words = tuple(text.rstrip(".").replace(",", "").lower().split())
        images.append(
            CorpusImage(str(100 + n), f"{n}.jpg", "train" if n < TRAIN else "test", (AnnotatedCaption(text, words),))
        )
        path = root / "images" / f"{n}.jpg"
        path.parent.mkdir(exist_ok=True)
        Picture.new("RGB", (60, 40), (5 * n, 250 - 5 * n, 128)).save(path)
    source = root / "annotations.json"
    source.write_text("{}")
    write_prepared(Corpus("trial", tuple(images), (source,)), root / "prepared", 0, 12)
    pooled = np.random.default_rng(3).normal(size=(len(images), 6)).astype(np.float32)
    pooled[TRAIN + 1 :: 2] = pooled[TRAIN::2] + 0.01  # test images 24 and 25, 26 and 27, … are similar
    with FeatureWriter(root / "features" / "main", len(images), 6, (1, 2)) as writer:
        writer.write(np.arange(len(images)), pooled, np.zeros((len(images), 1, 2), np.float32))
    cells, rows = [], []
    for method in METHODS:
        for lam, cider, score in (
            (0.1, 1.0, 60.0),
            (0.5, 0.9, 75.0),
            (0.9, 0.7, 90.0 if method == METHODS[1] else 80.0),
        ):
            cell, own = f"lambda={lam}", {"own": {"text_to_image": {"R@10": score}}}
            numbers = {"images": TEST, "language": {"CIDEr": cider}, "judges": own}
            entry = {"method": method, "cell": cell, "settings": {"lambda": lam, "seed": 1}, "signature": "one"}
            cells.append(entry | {"val": numbers, "test": numbers})
            for image in range(TRAIN, TRAIN + TEST):
                row = {"method": method, "cell": cell, "split": "test", "image": image}
                rows.append(row | {"caption": make_caption(method, image, lam)})
    (root / "sweep").mkdir()
    (root / "sweep" / "cells.json").write_text(json.dumps(cells))
    pq.write_table(pa.Table.from_pylist(rows), root / "sweep" / "captions.parquet")
    return FinishedRun(root)


@pytest.fixture(scope="session")
def answer_correctly() -> Callable[[dict[str, Any], dict[str, Any]], list[dict[str, Any]]]:
    """Return a function that answers a sheet as a rater who always chooses the first option of the key."""

    def make_answers(key: dict[str, Any], sheet: dict[str, Any]) -> list[dict[str, Any]]:
        questions = [q for q in key["questions"] if q["qualification"] or q["name"] in sheet["questions"]]
        return [
            {"study": key["study"], "rater": sheet["sheet"], "question": q["name"], "chosen": q["options"][0]}
            for q in questions
            if q["task"] == sheet["task"]
        ]

    return make_answers
