"""Small worlds of evaluations as the sweep and the chain write them, with images and captions.

`world` has three judges and no scores of single captions. `full_world` has everything, and its numbers in metrics.json
follow from its captions.parquet.
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

from pipeline.runtime.checksums import checksummed_json

SIGNATURE = "gallery test 40|decode beam 2|EOS in reward yes|df train"


def recall(ten: float | None) -> dict[str, float | None]:
    if ten is None:
        return {}
    return {"R@1": ten / 2, "R@5": ten * 0.8, "R@10": ten, "median_rank": 3.0, "mean_rank": 6.5}


def both(ten: float | None) -> dict[str, Any]:
    return {"text_to_image": recall(ten), "image_to_text": recall(None if ten is None else ten - 2)}


def split(cider: float | None, own: float | None, images: int = 40) -> dict[str, Any]:
    """Return a split with easily computed numbers: pretrained = own − 5, judge = own − 20, human 60 / 61 / 41."""
    language = {"BLEU-4": 0.25, "METEOR": 0.22, "ROUGE-L": 0.5}
    return {
        "images": images,
        "language": language | ({} if cider is None else {"CIDEr": cider}),
        "judges": {
            "own": both(own) | {"human": both(60.0)},
            "pretrained": both(None if own is None else own - 5) | {"human": both(61.0)},
            "judge": both(None if own is None else own - 20) | {"human": both(41.0)},
        },
        "diversity": {"words_per_caption": 8.2, "distinct_captions": 0.9, "repetition": 0.05, "unfinished": 0.01},
    }


def cell(method: str, cider: float | None, own: float | None, **settings: Any) -> dict[str, Any]:
    """Return a cell whose test numbers are its validation numbers plus .01 CIDEr and 1 % recall."""
    return {
        "method": method,
        "cell": ",".join(f"{key}={value}" for key, value in settings.items()),
        "settings": settings,
        "signature": SIGNATURE,
        "val": split(cider, own),
        "test": split(None if cider is None else cider + 0.01, None if own is None else own + 1),
        "not_computed": {"SPICE": "its parser's files are missing; fetch them with make spice"},
    }


def grid() -> list[dict[str, Any]]:
    """Return three methods along λ: a higher λ has more recall and less CIDEr; one method has two seeds."""
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
    """Paths of a small world; `write` replaces its cells and evaluations."""

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
        (self.sweep / "cells.json").write_text(json.dumps(list(map(_without_captions, cells))))
        rows = [{"method": c["method"], "cell": c["cell"]} | row for c in cells for row in captions(c)]
        _parquet(self.sweep / "captions.parquet", rows)
        for entry in evaluations:
            folder = self.root / "evaluation" / entry["method"]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "metrics.json").write_text(checksummed_json(_without_captions(entry)))
            _parquet(folder / "captions.parquet", captions(entry))


def _without_captions(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "captions"}


def captions(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the captions of `entry`, or twelve without scores."""
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


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


VAL, TEST = 8, 32  # images of the full world
HELP = {"own": 0.30, "adapted": 0.22, "pretrained": 0.10, "judge": 0.05}  # gain of each judge from discriminability


def full_cell(
    method: str,
    natural: float,
    telling: float,
    *,
    images: tuple[int, int] = (VAL, TEST),
    **settings: Any,
) -> dict[str, Any]:
    """Return an evaluated run: captions scored one by one, and the numbers that follow from them.

    `natural` is the mean CIDEr of its captions, `telling` (0 … 1) how easily listeners find their images. All runs
    share which images are hard; seed and method move single captions a little.
    """
    import numpy as np

    name = json.dumps([method, settings], sort_keys=True)
    noise = np.random.default_rng([*name.encode()])
    entry: dict[str, Any] = {
        "method": method,
        "cell": ",".join(f"{key}={value}" for key, value in settings.items() if value is not None) or "only",
        "settings": settings,
        "signature": SIGNATURE,
        "not_computed": {"SPICE": "its parser's files are missing; fetch them with make spice"},
        "captions": [],
    }
    first = 0
    for part, count in zip(("val", "test"), images, strict=True):
        hard = np.random.default_rng([7, count]).normal(size=count)
        cider = np.maximum(0.0, natural * (1 + 0.4 * hard) + 0.05 * noise.normal(size=count))
        cider += natural - cider.mean()
        found = {
            judge: np.maximum(1, (count * (1 - telling * (0.6 + gain)) * np.exp(0.5 * hard) * noise.random(count)))
            for judge, gain in HELP.items()
        }
        ranks = {judge: np.minimum(value.astype(int), count) for judge, value in found.items()}
        words = noise.integers(5, 12, size=count)
        together = 2 if method == "mle" else 1  # images to which the control gives one caption
        rows = [
            {
                "split": part,
                "image": first + n,
                "id": str(100 + first + n),
                "file": f"{first + n}.jpg",
                "caption": f"{method} ({entry['cell']}) says </script> & <b>{first + n - n % together}</b> of $x$",
                **{f"rank_{judge}": int(ranks[judge][n]) for judge in HELP},
                **{f"retrieved_{judge}": _retrieved(n, int(ranks[judge][n]), first, count) for judge in HELP},
                "CIDEr": float(cider[n]),
                "METEOR": float(0.2 + 0.1 * cider[n]),
                "ROUGE-L": float(0.4 + 0.1 * cider[n]),
                "bleu": _bleu_counts(int(words[n]), natural),
            }
            for n in range(count)
        ]
        entry["captions"] += rows
        entry[part] = _numbers(rows, ranks, count)
        first += count
    return entry


def _retrieved(place: int, rank: int, first: int, count: int) -> list[int]:
    """Return five images of the split, with the right one at its rank."""
    others = [first + (place + step) % count for step in range(1, count)]
    return ([*others[: rank - 1], first + place, *others[rank - 1 :]])[:5]


def _bleu_counts(words: int, natural: float) -> list[int]:
    lengths = [max(0, words - n) for n in range(4)]
    return [
        words,
        words + 1,
        *lengths,
        *(int(count * min(1.0, natural) * 0.8 ** (n + 1)) for n, count in enumerate(lengths)),
    ]


def _numbers(rows: list[dict[str, Any]], ranks: dict[str, Any], count: int) -> dict[str, Any]:
    import numpy as np

    def recalls(values: Any) -> dict[str, float]:
        shares = {f"R@{k}": 100 * float(np.mean(values <= k)) for k in (1, 5, 10)}
        return shares | {"median_rank": float(np.median(values)), "mean_rank": float(np.mean(values))}

    def ways(values: Any) -> dict[str, Any]:
        return {"text_to_image": recalls(values), "image_to_text": recalls(np.minimum(values + 1, count))}

    def gallery(values: Any, ease: float) -> dict[str, float]:
        found = recalls(np.maximum(1, values * ease))
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
                **ways(values),
                "human": ways(np.maximum(1, human + shift[judge])),
                "galleries": {"random100": gallery(values, 0.5), "similar100": gallery(values, 0.9)},
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
    """Return corpus BLEU-1 … 4 of summed counts, one after the other."""
    words, reference, *counts = [sum(column) for column in zip(*(row["bleu"] for row in rows), strict=True)]
    scores, product = [], 1.0
    for n in range(4):
        product *= (counts[4 + n] + 1e-15) / (counts[n] + 1e-9)
        scores.append(product ** (1 / (n + 1)))
    ratio = (words + 1e-15) / (reference + 1e-9)
    return [score * math.exp(1 - 1 / ratio) if ratio < 1 else score for score in scores]


def full_grid() -> list[dict[str, Any]]:
    """Return four methods along λ; two seeds for most; PSST with five values of ρ."""
    steps = ((0.001, 1.00, 0.55), (0.005, 0.95, 0.70), (0.02, 0.88, 0.85), (0.05, 0.80, 0.95))
    cells = []
    for lam, natural, telling in steps:
        for seed in (1, 2):
            nudge = 0.01 * (seed - 1.5)
            for rho, lift in ((0.0, -0.06), (0.25, 0.03), (0.5, 0.02), (0.75, 0.02), (1.0, -0.03)):
                options = {"lambda": lam, "rho": rho, "mix": "caption", "seed": seed}
                cells.append(full_cell("psst_multinomial", natural + nudge, telling + lift, **options))
            options = {"lambda": lam, "seed": seed}
            cells.append(full_cell("st_multinomial", natural - 0.02 + nudge, telling - 0.05, **options))
        cells.append(full_cell("reinforce", natural - 0.03, telling - 0.10, **{"lambda": lam, "seed": 1}))
    for lam, natural, telling in ((0.5, 0.97, 0.55), (0.8, 0.93, 0.62), (0.9, 0.86, 0.66)):
        cells += [full_cell("luo", natural, telling, **{"lambda": lam, "seed": seed}) for seed in (1, 2)]
    return cells


def crossed() -> dict[str, Any]:
    """Return cross-play of three methods' captions with six listeners, two seeds; one pair was not measured."""
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
def guided() -> list[dict[str, Any]]:
    """Guidance along γ, and a method of which some settings are guided too."""
    found = [
        cell("guidance", 0.97 - 0.1 * gamma, 60.0 + 5 * gamma, **{"lambda": 0.0, "gamma": gamma, "seed": 1})
        for gamma in (2.0, 1, 1.5)
    ]
    for lam in (0.5, 0.9):
        found.append(cell("luo", 0.94 - lam / 10, 70.0 + lam, **{"lambda": lam, "seed": 1}))
        found.append(cell("luo", 0.84 - lam / 10, 80.0 + lam, **{"lambda": lam, "gamma": 1.5, "seed": 1}))
    for entry in found:
        if entry["settings"].get("gamma", 1) != 1:
            entry["signature"] = SIGNATURE.replace("|EOS", f"|guidance={entry['settings']['gamma']:g}|EOS")
    return found


@pytest.fixture
def make_cell() -> Callable[..., dict[str, Any]]:
    return cell


@pytest.fixture
def cells() -> list[dict[str, Any]]:
    return grid()


@pytest.fixture
def control() -> dict[str, Any]:
    return cell("mle", 0.96, 69.0, seed=1)


@pytest.fixture(scope="session")
def build_world(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, bool], World]:
    """A function that writes a world, or a full one, into a folder: a copy of one that was made once."""

    @cache
    def template(full: bool) -> Path:
        return _built(tmp_path_factory.mktemp("template") / "world", full).root

    return lambda root, full: World(Path(shutil.copytree(template(full), root, dirs_exist_ok=True)))


@pytest.fixture
def world(build_world: Callable[[Path, bool], World], tmp_path: Path) -> World:
    """Images 0–11, of which 4–11 are the test split, and the grid of `cells` with the control beside it."""
    return build_world(tmp_path / "data", False)


@pytest.fixture
def full_world(build_world: Callable[[Path, bool], World], tmp_path: Path) -> World:
    """Forty images, of which the last 32 are the test split; everything that an evaluation writes."""
    return build_world(tmp_path / "full", True)


@pytest.fixture
def make_full_cell() -> Callable[..., dict[str, Any]]:
    return full_cell


def _built(root: Path, full: bool) -> World:
    if not full:
        made = _furnished(root, val=4, test=8)
        made.write(grid(), [cell("mle", 0.96, 69.0, seed=1)])
        return made
    made = _furnished(root, val=VAL, test=TEST)
    made.write(full_grid(), [full_cell("mle", 0.96, 0.5, seed=1)])
    made.crossed.parent.mkdir()
    made.crossed.write_text(json.dumps(crossed()))
    return made


def _furnished(root: Path, val: int, test: int) -> World:
    """Return a world with images and human captions, and no evaluation."""
    from PIL import Image

    made = World(root)
    made.images.mkdir(parents=True)
    made.prepared.mkdir()
    count = val + test
    for n in range(count):
        Image.new("RGB", (64, 48), (20 * n % 256, 120, 90)).save(made.images / f"{n}.jpg")
    rows = [
        {"image": n, "id": str(100 + n), "file": f"{n}.jpg", "split": "test" if n >= val else "val"}
        for n in range(count)
    ]
    _parquet(made.prepared / "images.parquet", rows)
    texts = [{"image": n, "text": f"{kind} <i>person</i> on image {n}"} for n in range(count) for kind in ("a", "the")]
    _parquet(made.prepared / "captions.parquet", texts)
    (made.prepared / "manifest.json").write_text(
        json.dumps({"dataset": "scenes <toy>", "counts": {"val": val, "test": test}})
    )
    return made
