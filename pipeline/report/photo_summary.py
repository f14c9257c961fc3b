"""Summary of a run on few photos for the terminal: the best and worst captions, and advice on numbers of photos."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from math import exp, log, sqrt
from pathlib import Path
from statistics import linear_regression

import numpy as np

from pipeline.analysis.caption_files import read_captions, read_rows
from pipeline.analysis.results import Point
from pipeline.errors import escape_line
from pipeline.report.method_names import replace_method_names
from pipeline.report.number_files import WIDTH
from pipeline.report.report_content import ReportContent

MIN_TEST_IMAGES = 100  # test images; with fewer, a difference between methods below ten points may be chance
CAPTIONS_PER_LIST = 3  # best captions, and as many worst captions
DRAWS = 20  # random subsets of photos per size
STREAM = 7  # Philox stream of these subsets

Words = Sequence[str]


def format_photo_summary(content: ReportContent) -> str | None:
    """Return the summary as text for the terminal; None for drawn images, and for MIN_TEST_IMAGES test images or more.

    Returns None also without test images or without a folder of images. The captions are by the method with the highest
    score by the last judge on validation. Raises UserError if a file cannot be read.
    """
    if content.simulated or content.images_root is None or not 0 < content.images < MIN_TEST_IMAGES:
        return None
    folder = content.images_root.as_posix()
    lines = [
        "A pretrained captioner describes your photos without training and without captions of your own:",
        "",
        f"    saywhich caption {shlex.quote(folder)} --preset base",
        "",
        *chain.from_iterable(_wrap(f"WARNING: {line}") for line in content.training_failures),
    ]
    if point := _choose_best_point(content):
        lines += _list_ranked_captions(content, point)
    lines += chain.from_iterable(map(_wrap, _compose_advice(content)))
    return "\n".join(lines) + "\n"


def compute_unknown_share(train: Sequence[Words], other_words: Words, min_count: int) -> float:
    """Return the share of `other_words` (at least one word) that occur at most `min_count` times in `train`."""
    counts = Counter(chain.from_iterable(train))
    return sum(counts[word] <= min_count for word in other_words) / len(other_words)


def extrapolate_unknown_share(photos: int, shares: Mapping[int, float]) -> float:
    """Return the expected share of unknown words with `photos` photos, from `shares` by number of photos (two or more).

    The logarithm of the share is fitted as a linear function of the logarithm of the number (least squares). The result
    is too high, because shares fall faster with more photos.
    """
    slope, intercept = linear_regression([log(n) for n in shares], [log(max(share, 1e-9)) for share in shares.values()])
    return min(1.0, exp(slope * log(photos) + intercept))


def _choose_best_point(content: ReportContent) -> Point | None:
    """Return the chosen setting with the highest validation score by the last judge; None without a score.

    Frozen speakers are excluded.
    """
    keys = content.results.score_keys(content.results.first_and_last_judge[-1])
    points = [choice.point for choice in content.choices if choice.point and choice.point.runs[0].frozen is None]
    scored = [(value, point) for point in points if (value := point.mean("val", *keys)) is not None]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _list_ranked_captions(content: ReportContent, point: Point) -> list[str]:
    """Return lines on the test photos with the best and the worst ranks; [] for fewer than two photos.

    The last judge ranks each photo by its caption.
    """
    results, run = content.results, point.runs[0]
    judge = results.judges[results.first_and_last_judge[-1]]
    column = run.column("rank", judge.name)
    (captions,) = read_captions([run], None, ["caption", "CIDEr", column])
    rows = [row for row in captions.values() if row.get(column)]
    rows.sort(key=lambda row: (row[column], -(row.get("CIDEr") or 0.0), row["image"]))
    files = _read_image_files(content.prepared)
    human: dict[int, str] = {}
    for row in read_rows(content.prepared / "captions.parquet", ["image", "text"]).to_pylist():
        human.setdefault(row["image"], row["text"])
    count = min(CAPTIONS_PER_LIST, len(rows) // 2)
    if not count:
        return []
    lines = []
    for title, group in (("Best", rows[:count]), ("Worst", rows[len(rows) - count :])):
        lines += [
            f"{title} captions by {replace_method_names(run.method)} (rank of the photo by the {judge.title.lower()})"
        ]
        lines.append("")
        for row in group:
            lines += [f"    {escape_line(files[row['image']])}: rank {row[column]} of {len(rows)}"]
            lines += [f"        {replace_method_names(run.method)}: {escape_line(row['caption'])}"]
            lines += [f"        a person: {escape_line(human.get(row['image'], ''))}"]
        lines.append("")
    return lines


def _compose_advice(content: ReportContent) -> list[str]:
    """Return advice on the numbers of test photos and of training photos.

    Advice on training photos needs eight training photos, and a vocabulary of words counted in their captions alone.
    """
    chance = 100 * 1.96 * 0.5 / sqrt(content.images)
    advice = [
        f"Test photos: a share of {content.images} photos has a 95 % interval of up to ±{chance:.0f} points. The "
        "tables in data/report/tables.md therefore hardly show which method is better. 400 test photos give ±5 points."
    ]
    images = read_rows(content.prepared / "images.parquet", ["image", "split"]).to_pylist()
    split = {row["image"]: row["split"] for row in images}
    words: dict[int, list[str]] = defaultdict(list)
    for row in read_rows(content.prepared / "captions.parquet", ["image", "words"]).to_pylist():
        words[row["image"]] += row.get("words") or ()
    train = [words[image] for image in words if split.get(image) == "train"]
    other_words = [word for image in words if split.get(image) != "train" for word in words[image]]
    settings = content.manifest.get("settings", {})
    min_count = settings.get("min_count")
    if min_count is None or settings.get("count_words", "train") != "train" or len(train) < 8 or not other_words:
        return advice
    rng = np.random.Generator(np.random.Philox(key=[content.settings.seed, STREAM]))
    shares = {len(train): compute_unknown_share(train, other_words, min_count)}
    for size in (len(train) // 2, len(train) // 4):
        subsets = [rng.choice(len(train), size, replace=False) for _ in range(DRAWS)]
        shares[size] = float(
            np.mean([compute_unknown_share([train[n] for n in subset], other_words, min_count) for subset in subsets])
        )
    text = (
        f"Training photos: {len(train)}. Captions cannot contain {shares[len(train)]:.0%} of the words in the human "
        "captions of the other photos, because these words are too rare in the training captions."
    )
    if shares[len(train)] > 0:
        double, tenfold = (int(float(f"{factor * len(train):.2g}")) for factor in (2, 10))
        with_double, with_tenfold = (extrapolate_unknown_share(photos, shares) for photos in (double, tenfold))
        text += (
            f" The expected share is about {with_double:.0%} with {double:,} photos like these, and about "
            f"{with_tenfold:.0%} with {tenfold:,}."
        )
    return [*advice, text]


def _read_image_files(prepared: Path) -> dict[int, str]:
    rows = read_rows(prepared / "images.parquet", ["image", "file"]).to_pylist()
    return {row["image"]: row["file"] for row in rows}


def _wrap(text: str) -> list[str]:
    return [*textwrap.wrap(replace_method_names(text), WIDTH), ""]
