"""Scores of single captions by judges, and by metrics against references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.metrics.language import LanguageScorer
from saywhich.judging.caption_scores import ScoreKey
from saywhich.judging.clip_metrics import PROMPT, with_nearest_reference
from saywhich.judging.judge_sources import open_judge
from saywhich.judging.notes import Notes
from saywhich.judging.photo_vectors import CaptionJudge, cut_captions, encode_captions, encode_gallery
from saywhich.judging.text_scores import list_computable_scores

COSINE = "cosine"


@dataclass(frozen=True)
class CaptionItems:
    """N captions: the image of each, its text, and its references."""

    files: Sequence[Path]  # files of M images
    owners: np.ndarray  # (N,) int64: the index of each caption's image
    captions: Sequence[str]
    references: Sequence[Sequence[str]]


def score_items(
    items: CaptionItems, judges: Sequence[str], metrics: Sequence[str] | None, notes: Notes
) -> dict[ScoreKey, np.ndarray]:
    """Return the scores (N,) of each caption by judges and by metrics; NaN where a score needs a missing reference.

    Raises UserError for an unknown judge, and where it cannot read a photo.
    """
    scores: dict[ScoreKey, np.ndarray] = {}
    for spec in judges:
        scores |= _judge_scores(open_judge(spec), spec, items, scores, notes)
    return scores | _metric_scores(items, metrics, notes)


def _judge_scores(
    judge: CaptionJudge, spec: str, items: CaptionItems, earlier: Mapping[ScoreKey, Any], notes: Notes
) -> dict[ScoreKey, np.ndarray]:
    """Return a judge's published scores, CLIPScore or PAC-S, or else the cosine of caption and photo, (N,) each.

    A judge whose name one of the `earlier` scores has is named by `spec`, with a number where that is taken, too.
    """
    taken = {key.judge for key in earlier}
    name = next(name for name in (judge.name, spec, f"{spec} {len(taken) + 1}") if name not in taken)
    photos = encode_gallery(judge, items.files)
    if list(photos.files) != list(items.files):
        raise UserError(f"--judge {spec}: cannot read {len(items.files) - len(photos.files)} of the photos")
    for text in cut_captions(judge, list(dict.fromkeys(items.captions))):
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


def _metric_scores(items: CaptionItems, metrics: Sequence[str] | None, notes: Notes) -> dict[ScoreKey, np.ndarray]:
    """Return each metric of each caption (N,); NaN without a reference. Equal items are scored once."""
    if not any(items.references):
        return {}
    keys = list(zip(items.owners.tolist(), items.captions, map(tuple, items.references), strict=True))
    wanted = {key: row for row, key in enumerate(keys) if items.references[row]}
    rows = list(wanted.values())
    with LanguageScorer(list_computable_scores(metrics)) as language:
        found = language.score([items.captions[row] for row in rows], [items.references[row] for row in rows])
    for name, why in found.not_computed.items():
        notes.add(f"metrics that are not computed ({why})", name)
    place = {key: at for at, key in enumerate(wanted)}
    at = np.array([place.get(key, len(rows)) for key in keys])
    return {
        ScoreKey("", name): np.append(np.asarray(values, np.float64), np.nan)[at]
        for name, values in found.per_caption.items()
    }
