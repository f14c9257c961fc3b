"""Calibration of judges and metrics: rank correlation of their scores with people's ratings of captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from pipeline.analysis.bootstrap import RESAMPLES
from pipeline.errors import UserError
from pipeline.metrics.language import LanguageScorer
from saywhich.calibrating.rank_correlation import RankCorrelation, correlate
from saywhich.calibrating.rating_files import CaptionRating, read_ratings
from saywhich.judging.caption_files import Source, read_caption_set
from saywhich.judging.caption_scores import ScoreKey
from saywhich.judging.clip_metrics import PROMPT, with_nearest_reference
from saywhich.judging.judge_sources import check_judges, open_judge
from saywhich.judging.metric_choices import check_metrics
from saywhich.judging.notes import Notes
from saywhich.judging.photo_index import PhotoIndex
from saywhich.judging.photo_vectors import CaptionJudge, encode_captions, encode_gallery
from saywhich.judging.text_scores import computable_scores

COSINE, PEOPLE = "cosine", "the other raters' mean"


@dataclass(frozen=True)
class Calibration:
    """Correlations of scores with the ratings of captions of `images` photos."""

    images: int
    captions: int
    ratings: int
    correlations: Mapping[ScoreKey, RankCorrelation]
    notes: Sequence[str]
    resamples: int

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
                    "tau_b": {"value": _none_if_nan(found.tau_b), "interval": found.interval_b},
                    "tau_c": {"value": _none_if_nan(found.tau_c), "interval": found.interval_c},
                }
                for key, found in self.correlations.items()
            ],
        }


@dataclass(frozen=True)
class RatedItems:
    """N ratings: the image of each (N,), its caption, rating and references (those equal to the caption left out)."""

    files: Sequence[Path]  # files of M images
    owners: np.ndarray
    captions: Sequence[str]
    ratings: np.ndarray
    raters: Sequence[str]
    references: Sequence[Sequence[str]]


def calibrate_judges(
    file: Path,
    images: Path,
    references: Source | None,
    judges: Sequence[str],
    metrics: Sequence[str] | None,
    resamples: int = RESAMPLES,
) -> Calibration:
    """Correlate the scores of judges and of metrics against references with the ratings in `file`.

    Raises UserError for a file of another form, fewer than two images, and an unknown judge or metric.
    """
    check_metrics(metrics)
    check_judges(judges)
    notes = Notes()
    items = _read_items(file, images, references, notes)
    scores: dict[ScoreKey, np.ndarray] = {}
    for spec in judges:
        scores |= _judge_scores(open_judge(spec), spec, items, scores, notes)
    scores |= _metric_scores(items, metrics, notes)
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


def _read_items(file: Path, images: Path, references: Source | None, notes: Notes) -> RatedItems:
    """Return the ratings of the photos in `images`, with the photos' references."""
    read = read_ratings(file, notes)
    human = {} if references is None else read_caption_set(references, notes).captions
    index = PhotoIndex(images)
    texts: dict[Path, list[str]] = {}
    for image, known in (*read.references.items(), *human.items()):
        if (path := index.find(image)) is not None:
            texts.setdefault(path, []).extend(text for each in known if (text := " ".join(each.split())))
    kept: list[tuple[Path, CaptionRating]] = []
    for rating in read.ratings:
        if (path := index.find(rating.image)) is None:
            notes.add(f"rated images that are not in {images}, or have a name that several photos have", rating.image)
        else:
            kept.append((path, rating))
    files = list(dict.fromkeys(path for path, _ in kept))
    if len(files) < 2:
        raise UserError(f"{file}: {len(files)} of its images are photos in {images}; two or more are needed")
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
        np.array([rating.rating for _, rating in kept]),
        [rating.rater or f"row {row}" for row, (_, rating) in enumerate(kept)],
        people,
    )


def _judge_scores(
    judge: CaptionJudge, spec: str, items: RatedItems, earlier: Mapping[ScoreKey, Any], notes: Notes
) -> dict[ScoreKey, np.ndarray]:
    """Return CLIPScore or PAC-S of CLIP models, or else the cosine of caption and photo, (N,) each."""
    name = spec if any(key.judge == judge.name for key in earlier) else judge.name
    photos = encode_gallery(judge, items.files)
    if list(photos.files) != list(items.files):
        raise UserError(f"--judge {spec}: cannot read {len(items.files) - len(photos.files)} of the photos")
    for text in judge.cut(list(dict.fromkeys(items.captions))):
        notes.add(f"captions that are longer than the input of {name}, and are cut", text)
    for text in judge.unknown(list(dict.fromkeys(items.captions))):
        notes.add(f"captions mostly of words that are unknown to {name}", text)
    images = torch.from_numpy(photos.vectors)[torch.from_numpy(items.owners)]
    if judge.metric is None:
        cosines = (encode_captions(judge, items.captions).double() * images.double()).sum(1)
        return {ScoreKey(name, COSINE): cosines.numpy()}
    captions = encode_captions(judge, [PROMPT + text for text in items.captions])
    clip = judge.metric.score(captions, images)
    found = {ScoreKey(name, judge.metric.name): clip.numpy()}
    if any(items.references):
        nearest = _nearest_reference(judge, captions, items.references)
        both = with_nearest_reference(clip, nearest).masked_fill(nearest.isnan(), torch.nan)
        found[ScoreKey(name, judge.metric.with_references)] = both.numpy()
    return found


def _nearest_reference(judge: CaptionJudge, captions: Tensor, references: Sequence[Sequence[str]]) -> Tensor:
    """Return the cosine (N,) of each caption and its nearest reference; NaN without a reference."""
    texts = list(dict.fromkeys(PROMPT + text for each in references for text in each))
    place = {text: row for row, text in enumerate(texts)}
    vectors = encode_captions(judge, texts).double()
    found = torch.full((len(captions),), torch.nan, dtype=torch.float64)
    for row, each in enumerate(references):
        if each:
            found[row] = (vectors[[place[PROMPT + text] for text in each]] @ captions[row].double()).max()
    return found


def _metric_scores(items: RatedItems, metrics: Sequence[str] | None, notes: Notes) -> dict[ScoreKey, np.ndarray]:
    """Return each metric of each caption (N,); NaN without a reference. Equal captions of a photo are scored once."""
    if not any(items.references):
        return {}
    keys = list(zip(items.owners.tolist(), items.captions, strict=True))
    wanted = {key: row for row, key in enumerate(keys) if items.references[row]}
    rows = list(wanted.values())
    with LanguageScorer(computable_scores(metrics)) as language:
        found = language.score([items.captions[row] for row in rows], [items.references[row] for row in rows])
    for name, why in found.not_computed.items():
        notes.add(f"metrics that are not computed ({why})", name)
    place = {key: at for at, key in enumerate(wanted)}
    at = np.array([place.get(key, len(rows)) for key in keys])
    return {
        ScoreKey("", name): np.append(np.asarray(values, np.float64), np.nan)[at]
        for name, values in found.per_caption.items()
    }


def _other_raters(items: RatedItems) -> np.ndarray:
    """Return for each rating the mean of other people's ratings of the same caption (N,); NaN without another."""
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


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else value
