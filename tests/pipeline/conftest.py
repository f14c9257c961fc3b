"""Small worlds: evaluations in the form of the sweep and of the evaluate stage, with images and captions.

`world` has three judges and no scores of single captions. `full_world` has four judges and a cross-play file, and its
text-to-image recalls and language metrics follow from its captions.parquet.
"""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime.checksums import serialise_with_checksum

SIGNATURE = "gallery test 40|decode beam 2|EOS in reward yes|df train"


def make_recalls(r10: float | None) -> dict[str, float | None]:
    if r10 is None:
        return {}
    return {"R@1": r10 / 2, "R@5": r10 * 0.8, "R@10": r10, "median_rank": 3.0, "mean_rank": 6.5}


def make_retrieval(r10: float | None) -> dict[str, Any]:
    return {"text_to_image": make_recalls(r10), "image_to_text": make_recalls(None if r10 is None else r10 - 2)}


def make_split(cider: float | None, own: float | None, images: int = 40) -> dict[str, Any]:
    """Return a split with easily computed numbers: pretrained = own − 5, judge = own − 20, human 60 / 61 / 41."""
    language = {"BLEU-4": 0.25, "METEOR": 0.22, "ROUGE-L": 0.5}
    return {
        "images": images,
        "language": language | ({} if cider is None else {"CIDEr": cider}),
        "judges": {
            "own": make_retrieval(own) | {"human": make_retrieval(60.0)},
            "pretrained": make_retrieval(None if own is None else own - 5) | {"human": make_retrieval(61.0)},
            "judge": make_retrieval(None if own is None else own - 20) | {"human": make_retrieval(41.0)},
        },
        "diversity": {"words_per_caption": 8.2, "distinct_captions": 0.9, "repetition": 0.05, "unfinished": 0.01},
    }


def build_cell(method: str, cider: float | None, own: float | None, **settings: Any) -> dict[str, Any]:
    """Return a cell whose test numbers are its validation numbers plus .01 CIDEr and 1 percentage point of R@10."""
    return {
        "method": method,
        "cell": ",".join(f"{key}={value}" for key, value in settings.items()),
        "settings": settings,
        "signature": SIGNATURE,
        "val": make_split(cider, own),
        "test": make_split(None if cider is None else cider + 0.01, None if own is None else own + 1),
        "not_computed": {"SPICE": "its parser's files are missing; fetch them"},
    }


def build_grid() -> list[dict[str, Any]]:
    """Return three methods along λ: a higher λ has a higher recall and a lower CIDEr. One method has two seeds."""
    cells = []
    for lam, cider, own in ((0.001, 0.95, 72.0), (0.005, 0.92, 84.0), (0.02, 0.80, 93.0)):
        for seed in (1, 2):
            cells.append(
                build_cell(
                    "psst_multinomial", cider + 0.01 * seed, own + seed, **{"lambda": lam, "rho": 0.25, "seed": seed}
                )
            )
        cells.append(build_cell("st_multinomial", cider - 0.01, own - 3, **{"lambda": lam, "seed": 1}))
    for lam, cider, own in ((0.5, 0.94, 70.0), (0.9, 0.90, 78.0)):
        cells.append(build_cell("luo", cider, own, **{"lambda": lam, "rho": None, "seed": 1}))
    return cells


@dataclass(frozen=True)
class World:
    """Paths of a small world; `write` replaces its cells, and the evaluations of the given methods."""

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
    def crossed(self) -> Path:
        return self.root / "crossed" / "crossed.json"

    @property
    def evaluations(self) -> list[Path]:
        return sorted((self.root / "evaluation").glob("*"))

    def write(self, cells: list[dict[str, Any]], evaluations: list[dict[str, Any]]) -> None:
        self.sweep.mkdir(parents=True, exist_ok=True)
        (self.sweep / "cells.json").write_text(json.dumps(list(map(_drop_captions, cells))))
        rows = [{"method": c["method"], "cell": c["cell"]} | row for c in cells for row in list_captions(c)]
        _write_parquet(self.sweep / "captions.parquet", rows)
        for entry in evaluations:
            folder = self.root / "evaluation" / entry["method"]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "metrics.json").write_text(serialise_with_checksum(_drop_captions(entry)))
            _write_parquet(folder / "captions.parquet", list_captions(entry))


def _drop_captions(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "captions"}


def list_captions(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the captions of `entry`, or twelve captions without scores."""
    if "captions" in entry:
        return entry["captions"]
    words = " ".join(f"{key} {value}" for key, value in entry["settings"].items())
    return [
        {"split": "test" if n >= 4 else "val", "image": n, "id": str(100 + n), "file": f"{n}.jpg"}
        | {
            "caption": f"{entry['method']} says {words} of <b>{n}</b> & $x$",
            "rank_own": n + 1,
            "rank_pretrained": n + 2,
        }
        | {"rank_judge": None}
        for n in range(12)
    ]


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


VAL, TEST = 8, 32  # images of the full world
# A larger gain makes a judge's ranks depend more on discriminability.
JUDGE_GAINS = {"own": 0.30, "adapted": 0.22, "pretrained": 0.10, "judge": 0.05}


def build_full_cell(
    method: str,
    mean_cider: float,
    discriminability: float,
    *,
    images: tuple[int, int] = (VAL, TEST),
    **settings: Any,
) -> dict[str, Any]:
    """Return an evaluated run: scores of single captions, and the metrics that follow from them.

    `mean_cider` is the mean CIDEr of its captions. A higher `discriminability` (0 … 1) gives better ranks. The same
    images are hard to retrieve in all runs. The noise of single captions depends on the method and the settings.
    """
    import numpy as np

    name = json.dumps([method, settings], sort_keys=True)
    noise = np.random.default_rng([*name.encode()])
    entry: dict[str, Any] = {
        "method": method,
        "cell": ",".join(f"{key}={value}" for key, value in settings.items() if value is not None) or "only",
        "settings": settings,
        "signature": SIGNATURE,
        "not_computed": {"SPICE": "its parser's files are missing; fetch them"},
        "captions": [],
    }
    first = 0
    for part, count in zip(("val", "test"), images, strict=True):
        hard = np.random.default_rng([7, count]).normal(size=count)
        cider = np.maximum(0.0, mean_cider * (1 + 0.4 * hard) + 0.05 * noise.normal(size=count))
        cider += mean_cider - cider.mean()
        values_by_judge = {
            judge: np.maximum(
                1, (count * (1 - discriminability * (0.6 + gain)) * np.exp(0.5 * hard) * noise.random(count))
            )
            for judge, gain in JUDGE_GAINS.items()
        }
        ranks = {judge: np.minimum(value.astype(int), count) for judge, value in values_by_judge.items()}
        words = noise.integers(5, 12, size=count)
        sharing = 2 if method == "mle" else 1  # number of consecutive images with the same caption
        rows = [
            {
                "split": part,
                "image": first + n,
                "id": str(100 + first + n),
                "file": f"{first + n}.jpg",
                "caption": f"{method} ({entry['cell']}) says </script> & <b>{first + n - n % sharing}</b> of $x$",
                **{f"rank_{judge}": int(ranks[judge][n]) for judge in JUDGE_GAINS},
                **{
                    f"retrieved_{judge}": _list_retrieved(n, int(ranks[judge][n]), first, count)
                    for judge in JUDGE_GAINS
                },
                "CIDEr": float(cider[n]),
                "METEOR": float(0.2 + 0.1 * cider[n]),
                "ROUGE-L": float(0.4 + 0.1 * cider[n]),
                "bleu": _count_ngrams(int(words[n]), mean_cider),
            }
            for n in range(count)
        ]
        entry["captions"] += rows
        entry[part] = _compute_metrics(rows, ranks, count)
        first += count
    return entry


def _list_retrieved(target: int, rank: int, first: int, count: int) -> list[int]:
    """Return the five best images of the split, where the target has the given rank."""
    others = [first + (target + step) % count for step in range(1, count)]
    return ([*others[: rank - 1], first + target, *others[rank - 1 :]])[:5]


def _count_ngrams(words: int, mean_cider: float) -> list[int]:
    lengths = [max(0, words - n) for n in range(4)]
    return [
        words,
        words + 1,
        *lengths,
        *(int(count * min(1.0, mean_cider) * 0.8 ** (n + 1)) for n, count in enumerate(lengths)),
    ]


def _compute_metrics(rows: list[dict[str, Any]], ranks: dict[str, Any], count: int) -> dict[str, Any]:
    import numpy as np

    def compute_recalls(values: Any) -> dict[str, float]:
        shares = {f"R@{k}": 100 * float(np.mean(values <= k)) for k in (1, 5, 10)}
        return shares | {"median_rank": float(np.median(values)), "mean_rank": float(np.mean(values))}

    def compute_retrieval(values: Any) -> dict[str, Any]:
        return {
            "text_to_image": compute_recalls(values),
            "image_to_text": compute_recalls(np.minimum(values + 1, count)),
        }

    def compute_gallery(values: Any, ease: float) -> dict[str, float]:
        found = compute_recalls(np.maximum(1, values * ease))
        return {key: found[key] for key in ("R@1", "R@5", "R@10")}

    human = np.arange(count) % 25 + 1
    shift = {"own": -1, "adapted": 0, "pretrained": 1, "judge": 2}
    kinds = {
        "colour": {"precision": 0.75, "told": 0.25, "claims": 1.5},
        "count": {"precision": 0.5, "told": 0.4, "claims": 0.5},
    }
    language = {name: float(np.mean([row[name] for row in rows])) for name in ("CIDEr", "METEOR", "ROUGE-L")}
    return {
        "images": count,
        "language": language | {f"BLEU-{n}": score for n, score in enumerate(_bleu(rows), start=1)},
        "judges": {
            judge: {
                **compute_retrieval(values),
                "human": compute_retrieval(np.maximum(1, human + shift[judge])),
                "galleries": {"random100": compute_gallery(values, 0.5), "similar100": compute_gallery(values, 0.9)},
            }
            for judge, values in ranks.items()
        },
        "diversity": {
            "words_per_caption": 8.2,
            "distinct_captions": 0.9,
            "words_used": 120,
            "repetition": 0.05,
            "unfinished": 0.01,
            "Div-1": 0.11,
            "Div-2": 0.33,
        },
        "faithfulness": {"precision": 0.7, "told": 0.3, "claims_per_caption": 2.0, "by_kind": kinds},
    }


def _bleu(rows: list[dict[str, Any]]) -> list[float]:
    """Return corpus BLEU-1 … BLEU-4 of summed counts."""
    words, reference, *counts = [sum(column) for column in zip(*(row["bleu"] for row in rows), strict=True)]
    scores, product = [], 1.0
    for n in range(4):
        product *= (counts[4 + n] + 1e-15) / (counts[n] + 1e-9)
        scores.append(product ** (1 / (n + 1)))
    ratio = (words + 1e-15) / (reference + 1e-9)
    return [score * math.exp(1 - 1 / ratio) if ratio < 1 else score for score in scores]


def build_full_grid() -> list[dict[str, Any]]:
    """Return four methods along λ. Three have two seeds, and PSST has five values of ρ."""
    steps = ((0.001, 1.00, 0.55), (0.005, 0.95, 0.70), (0.02, 0.88, 0.85), (0.05, 0.80, 0.95))
    cells = []
    for lam, mean_cider, discriminability in steps:
        for seed in (1, 2):
            seed_offset = 0.01 * (seed - 1.5)
            for rho, rho_offset in ((0.0, -0.06), (0.25, 0.03), (0.5, 0.02), (0.75, 0.02), (1.0, -0.03)):
                options = {"lambda": lam, "rho": rho, "mix": "caption", "seed": seed}
                cells.append(
                    build_full_cell(
                        "psst_multinomial", mean_cider + seed_offset, discriminability + rho_offset, **options
                    )
                )
            options = {"lambda": lam, "seed": seed}
            cells.append(
                build_full_cell("st_multinomial", mean_cider - 0.02 + seed_offset, discriminability - 0.05, **options)
            )
        cells.append(
            build_full_cell("reinforce", mean_cider - 0.03, discriminability - 0.10, **{"lambda": lam, "seed": 1})
        )
    for lam, mean_cider, discriminability in ((0.5, 0.97, 0.55), (0.8, 0.93, 0.62), (0.9, 0.86, 0.66)):
        cells += [
            build_full_cell("luo", mean_cider, discriminability, **{"lambda": lam, "seed": seed}) for seed in (1, 2)
        ]
    return cells


def make_cross_play() -> dict[str, Any]:
    """Return cross-play of three methods' captions with six listeners and two seeds. One pair was not measured."""
    names = ["mle", "luo", "psst_multinomial"]
    listeners = ["pretrained", "judge", *names, "adapted"]
    matrix = [[[50.0 + 5 * row + column, 52.0 + 5 * row + column] for column in range(6)] for row in range(3)]
    matrix[0][3] = []
    return {
        "split": "test",
        "recall": "R@10",
        "captions": names,
        "listeners": listeners,
        "seeds": [1, 2],
        "matrix": matrix,
    }


@pytest.fixture
def guidance_cells() -> list[dict[str, Any]]:
    """Return cells of guidance along γ, and of luo with and without guidance."""
    found = [
        build_cell("guidance", 0.97 - 0.1 * gamma, 60.0 + 5 * gamma, **{"lambda": 0.0, "gamma": gamma, "seed": 1})
        for gamma in (2.0, 1, 1.5)
    ]
    for lam in (0.5, 0.9):
        found.append(build_cell("luo", 0.94 - lam / 10, 70.0 + lam, **{"lambda": lam, "seed": 1}))
        found.append(build_cell("luo", 0.84 - lam / 10, 80.0 + lam, **{"lambda": lam, "gamma": 1.5, "seed": 1}))
    for entry in found:
        if entry["settings"].get("gamma", 1) != 1:
            entry["signature"] = SIGNATURE.replace("|EOS", f"|guidance={entry['settings']['gamma']:g}|EOS")
    return found


@pytest.fixture
def make_cell() -> Callable[..., dict[str, Any]]:
    return build_cell


@pytest.fixture
def cells() -> list[dict[str, Any]]:
    return build_grid()


@pytest.fixture
def control() -> dict[str, Any]:
    return build_cell("mle", 0.96, 69.0, seed=1)


@pytest.fixture(scope="session")
def build_world(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, bool], World]:
    """Return a function that copies a small or a full world into a folder; each is written once per session."""

    @cache
    def write_template(full: bool) -> Path:
        return _write_world(tmp_path_factory.mktemp("template") / "world", full).root

    return lambda root, full: World(Path(shutil.copytree(write_template(full), root, dirs_exist_ok=True)))


@pytest.fixture
def world(build_world: Callable[[Path, bool], World], tmp_path: Path) -> World:
    """Return a world of images 0–11, of which 4–11 are the test split, with the grid of `cells` and the control."""
    return build_world(tmp_path / "data", False)


@pytest.fixture
def full_world(build_world: Callable[[Path, bool], World], tmp_path: Path) -> World:
    """Return a world of forty images, of which the last 32 are the test split, with scores of single captions."""
    return build_world(tmp_path / "full", True)


@pytest.fixture
def make_full_cell() -> Callable[..., dict[str, Any]]:
    return build_full_cell


def _write_world(root: Path, full: bool) -> World:
    if not full:
        world = _write_dataset(root, val=4, test=8)
        world.write(build_grid(), [build_cell("mle", 0.96, 69.0, seed=1)])
        return world
    world = _write_dataset(root, val=VAL, test=TEST)
    world.write(build_full_grid(), [build_full_cell("mle", 0.96, 0.5, seed=1)])
    world.crossed.parent.mkdir()
    world.crossed.write_text(json.dumps(make_cross_play()))
    return world


def _write_dataset(root: Path, val: int, test: int) -> World:
    """Return a world with images and human captions, and no evaluation."""
    from PIL import Image

    world = World(root)
    world.images.mkdir(parents=True)
    world.prepared.mkdir()
    count = val + test
    for n in range(count):
        Image.new("RGB", (64, 48), (20 * n % 256, 120, 90)).save(world.images / f"{n}.jpg")
    rows = [
        {"image": n, "id": str(100 + n), "file": f"{n}.jpg", "split": "test" if n >= val else "val"}
        for n in range(count)
    ]
    _write_parquet(world.prepared / "images.parquet", rows)
    texts = [{"image": n, "text": f"{kind} <i>person</i> on image {n}"} for n in range(count) for kind in ("a", "the")]
    _write_parquet(world.prepared / "captions.parquet", texts)
    (world.prepared / "manifest.json").write_text(
        json.dumps({"dataset": "scenes <toy>", "counts": {"val": val, "test": test}})
    )
    return world
