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
from saywhich.calibrating.choice_accuracy import ChoiceAccuracy, compute_choice_accuracy
from saywhich.calibrating.item_scores import CaptionItems, score_items
from saywhich.calibrating.pascal_50s import EXTENSION, CaptionChoice, read_pascal_50s
from saywhich.calibrating.rank_correlation import RankCorrelation, correlate
from saywhich.calibrating.rating_files import read_ratings
from saywhich.calibrating.rating_records import CaptionRating
from saywhich.judging.caption_files import Source, read_caption_set
from saywhich.judging.caption_scores import ScoreKey
from saywhich.judging.judge_sources import check_judges
from saywhich.judging.metric_choices import check_metrics
from saywhich.judging.notes import Notes
from saywhich.judging.photo_index import PhotoIndex

OTHER_RATERS = "the other raters' mean"
MISSING_IMAGES = "rated images that are not in {}, or have a name that several photos have"


@dataclass(frozen=True)
class Calibration:
    """Agreement of scores with people's `ratings` of captions of `images` photos, or with their choices of captions.

    `correlations` are with ratings, and `accuracies` are on choices between two captions; one of the two is empty. With
    choices, `ratings` is the number of choices.
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
                    "ratings": correlation.ratings,
                    "tau_b": {"value": _replace_nan(correlation.tau_b), "interval": correlation.interval_b},
                    "tau_c": {"value": _replace_nan(correlation.tau_c), "interval": correlation.interval_c},
                }
                for key, correlation in self.correlations.items()
            ]
            + [
                {
                    "judge": key.judge,
                    "score": key.name,
                    "accuracy": dict(accuracy.values),
                    "intervals": dict(accuracy.intervals),
                }
                for key, accuracy in self.accuracies.items()
            ],
        }


@dataclass(frozen=True)
class RatedItems(CaptionItems):
    """N rated captions, one entry per rating; a caption is never one of its own references. `ratings` is (N,)."""

    ratings: np.ndarray
    raters: Sequence[str]


def calibrate_judges(
    file: Path,
    images: str | Path,
    references: Source | None,
    judges: Sequence[str],
    metrics: Sequence[str] | None,
) -> Calibration:
    """Correlate the scores of judges, and of metrics against references, with the ratings in `file`.

    For a file of Pascal-50S, compute the accuracy of the scores on its choices between two captions instead.
    Raises UserError for a file of another form, fewer than two images or different ratings, and where there is nothing
    to correlate. Raises UserError for an unknown metric, an unknown or repeated judge, and a photo that a judge cannot
    read. Raises UserError also for `references` with Pascal-50S.
    """
    check_metrics(metrics)
    check_judges(judges)
    notes = Notes()
    if file.suffix.lower() == EXTENSION:
        if references is not None:
            raise UserError(f"{file}: Pascal-50S has references of its own; leave --references out")
        return _calibrate_choices(file, images, judges, metrics, notes)
    items = _read_items(file, images, references, notes)
    scores = score_items(items, judges, metrics, notes)
    rater_means = _average_other_raters(items)
    if not np.isnan(rater_means).all():
        scores[ScoreKey("", OTHER_RATERS)] = rater_means
    if not scores:
        raise UserError(
            "calibrate: expected scores to compare with the ratings, found no judge, no metric that can be computed, "
            "and no caption with two raters; give --judge or --references"
        )
    correlations = {
        key: correlate(items.ratings, values, items.owners, len(items.files))
        for key, values in tqdm(scores.items(), desc="correlations", unit="", disable=None)
    }
    captions = len(set(zip(items.owners.tolist(), items.captions, strict=True)))
    return Calibration(len(items.files), captions, len(items.ratings), correlations, list(notes.lines()), RESAMPLES)


def _calibrate_choices(
    file: Path, images: str | Path, judges: Sequence[str], metrics: Sequence[str] | None, notes: Notes
) -> Calibration:
    """Compute the accuracy of scores on people's choices between two captions; ties are left out with a note.

    Raises UserError where there is no score, and for choices on fewer than two photos.
    """
    index = PhotoIndex(images)
    choices: list[tuple[Path, CaptionChoice]] = []
    for choice in read_pascal_50s(file):
        if (path := index.find(choice.image)) is None:
            notes.add(MISSING_IMAGES.format(images), choice.image)
        elif choice.votes[0] == choice.votes[1]:
            notes.add("pairs with equal votes for both captions, which are left out", choice.image)
        else:
            choices.append((path, choice))
    files = _select_rated_files(file, images, [path for path, _ in choices])
    row_of_file = {path: row for row, path in enumerate(files)}
    owners = np.array([row_of_file[path] for path, _ in choices])
    items = CaptionItems(
        files,
        np.repeat(owners, 2),
        [text for _, choice in choices for text in choice.captions],
        [choice.references for _, choice in choices for _ in choice.captions],
    )
    scores = score_items(items, judges, metrics, notes)
    if not scores:
        raise UserError("calibrate: no judge and no metric that can be computed; give --judge or other --metrics")
    signs = np.array([np.sign(choice.votes[0] - choice.votes[1]) for _, choice in choices])
    kinds = [choice.kind for _, choice in choices]
    accuracies = {
        key: compute_choice_accuracy(signs * -np.diff(values.reshape(-1, 2))[:, 0], kinds, owners, len(files))
        for key, values in scores.items()
    }
    captions = len(set(zip(items.owners.tolist(), items.captions, strict=True)))
    return Calibration(len(files), captions, len(choices), {}, list(notes.lines()), RESAMPLES, accuracies)


def _read_items(file: Path, images: str | Path, references: Source | None, notes: Notes) -> RatedItems:
    """Return the ratings of the photos in `images`, with the photos' references."""
    rating_file = read_ratings(file, None if references is None else read_caption_set(references, notes), notes)
    index = PhotoIndex(images)
    texts: dict[Path, list[str]] = {}
    for image, captions in rating_file.references.items():
        if (path := index.find(image)) is not None:
            texts.setdefault(path, []).extend(text for caption in captions if (text := " ".join(caption.split())))
    ratings: list[tuple[Path, CaptionRating]] = []
    for rating in rating_file.ratings:
        if (path := index.find(rating.image)) is None:
            notes.add(MISSING_IMAGES.format(images), rating.image)
        else:
            ratings.append((path, rating))
    files = _select_rated_files(file, images, [path for path, _ in ratings])
    row_of_file = {path: row for row, path in enumerate(files)}
    rating_references = []
    for path, rating in ratings:
        if rating.caption in texts.get(path, ()):
            notes.add("ratings whose caption is also a reference, which is left out", rating.caption)
        rating_references.append([text for text in texts.get(path, ()) if text != rating.caption])
    return RatedItems(
        files,
        np.array([row_of_file[path] for path, _ in ratings]),
        [rating.caption for _, rating in ratings],
        rating_references,
        np.array([rating.rating for _, rating in ratings]),
        [rating.rater or f"row {row}" for row, (_, rating) in enumerate(ratings)],
    )


def _select_rated_files(file: Path, images: str | Path, paths: Sequence[Path]) -> list[Path]:
    """Return the distinct photos of `paths`. Raises UserError for fewer than two."""
    files = list(dict.fromkeys(paths))
    if len(files) < 2:
        raise UserError(
            f"{file}: expected two or more photos in {images} with ratings that count, found {len(files)}; give "
            "the folder of its images"
        )
    return files


def _average_other_raters(items: RatedItems) -> np.ndarray:
    """Return for each rating the mean of other people's ratings of the same caption (N,); NaN without any."""
    groups: dict[tuple[int, str], list[int]] = {}
    for row, key in enumerate(zip(items.owners.tolist(), items.captions, strict=True)):
        groups.setdefault(key, []).append(row)
    means = np.full(len(items.ratings), np.nan)
    for rows in groups.values():
        for row in rows:
            others = [other for other in rows if items.raters[other] != items.raters[row]]
            if others:
                means[row] = items.ratings[others].mean()
    return means


def _replace_nan(value: float) -> float | None:
    return None if np.isnan(value) else value
