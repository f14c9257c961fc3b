"""Calibration of judges and metrics: agreement of their scores with people's ratings or choices of captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pipeline.analysis.bootstrap import RESAMPLES
from pipeline.errors import UserError
from saywhich.calibrating.choice_accuracy import ChoiceAccuracy, choice_accuracy
from saywhich.calibrating.item_scores import CaptionItems, score_items
from saywhich.calibrating.pascal_50s import ENDING, CaptionChoice, read_pascal_50s
from saywhich.calibrating.rank_correlation import RankCorrelation, correlate
from saywhich.calibrating.rating_files import read_ratings
from saywhich.calibrating.rating_records import CaptionRating
from saywhich.judging.caption_files import Source, read_caption_set
from saywhich.judging.caption_scores import ScoreKey
from saywhich.judging.judge_sources import check_judges
from saywhich.judging.metric_choices import check_metrics
from saywhich.judging.notes import Notes
from saywhich.judging.photo_index import PhotoIndex

PEOPLE = "the other raters' mean"
MISSING_IMAGES = "rated images that are not in {}, or have a name that several photos have"


@dataclass(frozen=True)
class Calibration:
    """Agreement of scores with people's `ratings` of captions of `images` photos, or with their choices of captions.

    `correlations` are of ratings. `accuracies` are of choices between two captions; `ratings` then counts the choices.
    """

    images: int
    captions: int
    ratings: int
    correlations: Mapping[ScoreKey, RankCorrelation]
    notes: Sequence[str]
    resamples: int
    accuracies: Mapping[ScoreKey, ChoiceAccuracy] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return all numbers as values of JSON."""
        return {
            "images": self.images,
            "captions": self.captions,
            "ratings": self.ratings,
            "resamples": self.resamples,
            "notes": list(self.notes),
            "scores": [
                {
                    "judge": key.judge,
                    "score": key.name,
                    "ratings": found.ratings,
                    "tau_b": {"value": _replace_nan(found.tau_b), "interval": found.interval_b},
                    "tau_c": {"value": _replace_nan(found.tau_c), "interval": found.interval_c},
                }
                for key, found in self.correlations.items()
            ]
            + [
                {
                    "judge": key.judge,
                    "score": key.name,
                    "accuracy": dict(each.values),
                    "intervals": dict(each.intervals),
                }
                for key, each in self.accuracies.items()
            ],
        }


@dataclass(frozen=True)
class RatedItems(CaptionItems):
    """N rated captions, each as often as it was rated, and never among its own references; `ratings` is (N,)."""

    ratings: np.ndarray
    raters: Sequence[str]


def calibrate_judges(
    file: Path,
    images: str | Path,
    references: Source | None,
    judges: Sequence[str],
    metrics: Sequence[str] | None,
    resamples: int = RESAMPLES,
) -> Calibration:
    """Correlate the scores of judges, and of metrics against references, with the ratings in `file`.

    For a file of Pascal-50S, compute the accuracy of the scores on its choices between two captions instead.
    Raises UserError for a file of another form, fewer than two images, and an unknown judge or metric.
    """
    check_metrics(metrics)
    check_judges(judges)
    notes = Notes()
    if file.suffix.lower() == ENDING:
        if references is not None:
            raise UserError(f"{file}: Pascal-50S has references of its own; leave --references out")
        return _calibrate_choices(file, images, judges, metrics, notes, resamples)
    items = _read_items(file, images, references, notes)
    scores = score_items(items, judges, metrics, notes)
    others = _other_raters(items)
    if not np.isnan(others).all():
        scores[ScoreKey("", PEOPLE)] = others
    if not scores:
        raise UserError("calibrate: no judge, no references and one rating per caption; give --judge or --references")
    found = {
        key: correlate(items.ratings, values, items.owners, len(items.files), resamples)
        for key, values in tqdm(scores.items(), desc="correlations", unit="", disable=None)
    }
    captions = len(set(zip(items.owners.tolist(), items.captions, strict=True)))
    return Calibration(len(items.files), captions, len(items.ratings), found, list(notes.lines()), resamples)


def _calibrate_choices(
    file: Path, images: str | Path, judges: Sequence[str], metrics: Sequence[str] | None, notes: Notes, resamples: int
) -> Calibration:
    """Compare scores with people's choices between two captions; ties of votes are left out with a note."""
    index = PhotoIndex(images)
    kept: list[tuple[Path, CaptionChoice]] = []
    for choice in read_pascal_50s(file):
        if (path := index.find(choice.image)) is None:
            notes.add(MISSING_IMAGES.format(images), choice.image)
        elif choice.votes[0] == choice.votes[1]:
            notes.add("pairs with as many votes for either caption, which are left out", choice.image)
        else:
            kept.append((path, choice))
    files = _select_rated_files(file, images, [path for path, _ in kept])
    place = {path: row for row, path in enumerate(files)}
    owners = np.array([place[path] for path, _ in kept])
    items = CaptionItems(
        files,
        np.repeat(owners, 2),
        [text for _, choice in kept for text in choice.captions],
        [choice.references for _, choice in kept for _ in choice.captions],
    )
    signs = np.array([np.sign(choice.votes[0] - choice.votes[1]) for _, choice in kept])
    kinds = [choice.kind for _, choice in kept]
    found = {
        key: choice_accuracy(signs * -np.diff(each.reshape(-1, 2))[:, 0], kinds, owners, len(files), resamples)
        for key, each in score_items(items, judges, metrics, notes).items()
    }
    captions = len(set(zip(items.owners.tolist(), items.captions, strict=True)))
    return Calibration(len(files), captions, len(kept), {}, list(notes.lines()), resamples, found)


def _read_items(file: Path, images: str | Path, references: Source | None, notes: Notes) -> RatedItems:
    """Return the ratings of the photos in `images`, with the photos' references."""
    read = read_ratings(file, None if references is None else read_caption_set(references, notes), notes)
    index = PhotoIndex(images)
    texts: dict[Path, list[str]] = {}
    for image, known in read.references.items():
        if (path := index.find(image)) is not None:
            texts.setdefault(path, []).extend(text for each in known if (text := " ".join(each.split())))
    kept: list[tuple[Path, CaptionRating]] = []
    for rating in read.ratings:
        if (path := index.find(rating.image)) is None:
            notes.add(MISSING_IMAGES.format(images), rating.image)
        else:
            kept.append((path, rating))
    files = _select_rated_files(file, images, [path for path, _ in kept])
    place = {path: row for row, path in enumerate(files)}
    people = []
    for path, rating in kept:
        if rating.caption in texts.get(path, ()):
            notes.add("ratings whose caption is also a reference, which is left out", rating.caption)
        people.append([text for text in texts.get(path, ()) if text != rating.caption])
    return RatedItems(
        files,
        np.array([place[path] for path, _ in kept]),
        [rating.caption for _, rating in kept],
        people,
        np.array([rating.rating for _, rating in kept]),
        [rating.rater or f"row {row}" for row, (_, rating) in enumerate(kept)],
    )


def _select_rated_files(file: Path, images: str | Path, paths: Sequence[Path]) -> list[Path]:
    """Return the distinct photos of `paths`. Raises UserError for fewer than two."""
    files = list(dict.fromkeys(paths))
    if len(files) < 2:
        raise UserError(f"{file}: {len(files)} of its images are photos in {images}; two or more are needed")
    return files


def _other_raters(items: RatedItems) -> np.ndarray:
    """Return for each rating the mean of other people's ratings of the same caption (N,); NaN without any."""
    groups: dict[tuple[int, str], list[int]] = {}
    for row, key in enumerate(zip(items.owners.tolist(), items.captions, strict=True)):
        groups.setdefault(key, []).append(row)
    found = np.full(len(items.ratings), np.nan)
    for rows in groups.values():
        for row in rows:
            others = [other for other in rows if items.raters[other] != items.raters[row]]
            if others:
                found[row] = items.ratings[others].mean()
    return found


def _replace_nan(value: float) -> float | None:
    return None if np.isnan(value) else value
