"""A small world of evaluations as the sweep and the chain write them, with images and captions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SIGNATURE = "gallery test 40|decode beam 2|EOS in reward yes|df train"


def recall(ten: float | None) -> dict[str, float | None]:
    if ten is None:
        return {}
    return {"R@1": ten / 2, "R@5": ten * 0.8, "R@10": ten, "median_rank": 3.0, "mean_rank": 6.5}


def both(ten: float | None) -> dict[str, Any]:
    return {"text_to_image": recall(ten), "image_to_text": recall(None if ten is None else ten - 2)}


def split(cider: float | None, own: float | None, images: int = 40) -> dict[str, Any]:
    """A split with easily computed numbers: before = own − 5, judge = own − 20, human 60 / 61 / 41."""
    language = {"BLEU-4": 0.25, "METEOR": 0.22, "ROUGE-L": 0.5}
    return {
        "images": images,
        "language": language | ({} if cider is None else {"CIDEr": cider}),
        "own": both(own),
        "before": both(None if own is None else own - 5),
        "judge": both(None if own is None else own - 20),
        "human": {"own": both(60.0), "before": both(61.0), "judge": both(41.0)},
        "diversity": {"words_per_caption": 8.2, "distinct_captions": 0.9, "repetition": 0.05, "unfinished": 0.01},
    }


def cell(method: str, cider: float | None, own: float | None, **settings: Any) -> dict[str, Any]:
    """A cell whose test numbers are its validation numbers plus .01 CIDEr and 1 % recall."""
    return {
        "method": method,
        "settings": settings,
        "signature": SIGNATURE,
        "val": split(cider, own),
        "test": split(None if cider is None else cider + 0.01, None if own is None else own + 1),
        "not_computed": {"SPICE": "its parser's files are missing; fetch them with make spice"},
    }


def grid() -> list[dict[str, Any]]:
    """Three methods along λ: a higher λ buys recall with CIDEr; two seeds for one of them."""
    cells = []
    for lam, cider, own in ((0.001, 0.95, 72.0), (0.005, 0.92, 84.0), (0.02, 0.80, 93.0)):
        for seed in (1, 2):
            cells.append(
                cell("psst_multinomial", cider + 0.01 * seed, own + seed, **{"lambda": lam, "rho": 0.25, "seed": seed})
            )
        cells.append(cell("st_multinomial", cider - 0.01, own - 3, **{"lambda": lam, "seed": 1}))
    for lam, cider, own in ((0.5, 0.94, 70.0), (0.9, 0.90, 78.0)):
        cells.append(cell("luo", cider, own, **{"lambda": lam, "rho": None, "seed": 1}))
    return cells


@dataclass(frozen=True)
class World:
    """Where everything lies; `write` puts down new cells and evaluations."""

    root: Path

    @property
    def sweep(self) -> Path:
        return self.root / "sweep"

    @property
    def prepared(self) -> Path:
        return self.root / "prepared"

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def evaluations(self) -> list[Path]:
        return sorted((self.root / "evaluation").glob("*"))

    def write(self, cells: list[dict[str, Any]], evaluations: list[dict[str, Any]]) -> None:
        self.sweep.mkdir(parents=True, exist_ok=True)
        (self.sweep / "cells.json").write_text(json.dumps(cells))
        rows = [caption | {"method": c["method"]} | _names(c) for c in cells for caption in captions(c)]
        _parquet(self.sweep / "captions.parquet", rows)
        for entry in evaluations:
            folder = self.root / "evaluation" / entry["method"]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "metrics.json").write_text(json.dumps(entry))
            _parquet(folder / "captions.parquet", captions(entry))


def _names(entry: dict[str, Any]) -> dict[str, Any]:
    settings = entry["settings"]
    name = ",".join(f"{key}={value}" for key, value in settings.items())
    return {"cell": name, **{key: settings.get(key) for key in ("lambda", "rho", "seed")}}


def captions(entry: dict[str, Any]) -> list[dict[str, Any]]:
    words = " ".join(f"{key} {value}" for key, value in entry["settings"].items())
    return [
        {"split": "test" if n >= 4 else "val", "image": n, "id": str(100 + n), "file": f"{n}.jpg"}
        | {"caption": f"{entry['method']} says {words} of <b>{n}</b> & $x$", "rank_own": n + 1, "rank_before": n + 2}
        | {"rank_judge": None}
        for n in range(12)
    ]


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture
def make_cell() -> Callable[..., dict[str, Any]]:
    return cell


@pytest.fixture
def cells() -> list[dict[str, Any]]:
    return grid()


@pytest.fixture
def control() -> dict[str, Any]:
    return cell("mle", 0.96, 69.0, seed=1)


@pytest.fixture
def world(tmp_path: Path, cells: list[dict[str, Any]], control: dict[str, Any]) -> World:
    """Images 0–11, of which 4–11 are the test split, and the grid of `cells` with the control beside it."""
    from PIL import Image

    made = World(tmp_path / "data")
    made.images.mkdir(parents=True)
    made.prepared.mkdir()
    for n in range(12):
        Image.new("RGB", (64, 48), (20 * n, 120, 90)).save(made.images / f"{n}.jpg")
    rows = [
        {"image": n, "id": str(100 + n), "file": f"{n}.jpg", "split": "test" if n >= 4 else "val"} for n in range(12)
    ]
    _parquet(made.prepared / "images.parquet", rows)
    texts = [{"image": n, "text": f"{kind} <i>person</i> on image {n}"} for n in range(12) for kind in ("a", "the")]
    _parquet(made.prepared / "captions.parquet", texts)
    (made.prepared / "manifest.json").write_text(
        json.dumps({"dataset": "scenes <toy>", "counts": {"val": 4, "test": 8}})
    )
    made.write(cells, [control])
    return made
