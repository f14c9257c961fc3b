"""Scores of single captions by judges, and by metrics against references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.metrics.language import LanguageScorer
from saywhich.judging.caption_scores import ScoreKey
from saywhich.judging.clip_metrics import PROMPT, average_with_reference
from saywhich.judging.judge_sources import open_judge
from saywhich.judging.notes import Notes
from saywhich.judging.photo_vectors import CaptionJudge, encode_captions, encode_gallery, find_truncated_captions
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

    Raises UserError for an unknown judge, and for a photo that a judge cannot read.
    """
    scores: dict[ScoreKey, np.ndarray] = {}
    for spec in judges:
        scores |= _score_by_judge(open_judge(spec), spec, items, scores, notes)
    return scores | _score_by_metrics(items, metrics, notes)


def _score_by_judge(
    judge: CaptionJudge, spec: str, items: CaptionItems, earlier_scores: Mapping[ScoreKey, Any], notes: Notes
) -> dict[ScoreKey, np.ndarray]:
    """Return a judge's published scores, CLIPScore or PAC-S, or else the cosine of caption and photo, (N,) each.

    If a key of `earlier_scores` has the judge's name, the judge is named by `spec`, or by `spec` and a number.
    """
    judge_names = {key.judge for key in earlier_scores}
    numbered_names = (f"{spec} {number}" for number in count(len(judge_names) + 1))
    name = next(name for name in chain((judge.name, spec), numbered_names) if name not in judge_names)
    photos = encode_gallery(judge, items.files)
    if list(photos.files) != list(items.files):
        raise UserError(
            f"--judge {spec}: cannot read {len(items.files) - len(photos.files)} of the photos; remove their ratings"
        )
    for text in find_truncated_captions(judge, list(dict.fromkeys(items.captions))):
        notes.add(f"captions that are longer than the input of {name}, and are cut", text)
    for text in judge.find_unknown(list(dict.fromkeys(items.captions))):
        notes.add(f"captions mostly of words that are unknown to {name}", text)
    images = torch.from_numpy(photos.vectors)[torch.from_numpy(items.owners)]
    if judge.metric is None:
        cosines = (encode_captions(judge, items.captions).double() * images.double()).sum(1)
        return {ScoreKey(name, COSINE): cosines.numpy()}
    captions = encode_captions(judge, [PROMPT + text for text in items.captions])
    values = judge.metric.score(captions, images)
    scores = {ScoreKey(name, judge.metric.name): values.numpy()}
    if any(items.references):
        nearest = _find_nearest_reference(judge, captions, items.references)
        with_references = average_with_reference(values, nearest).masked_fill(nearest.isnan(), torch.nan)
        scores[ScoreKey(name, judge.metric.with_references)] = with_references.numpy()
    return scores


def _find_nearest_reference(judge: CaptionJudge, captions: Tensor, references: Sequence[Sequence[str]]) -> Tensor:
    """Return the cosine (N,) of each caption and its nearest reference; NaN without a reference."""
    texts = list(dict.fromkeys(PROMPT + text for caption_references in references for text in caption_references))
    row_of_text = {text: row for row, text in enumerate(texts)}
    vectors = encode_captions(judge, texts).double()
    cosines = torch.full((len(captions),), torch.nan, dtype=torch.float64)
    for row, caption_references in enumerate(references):
        if caption_references:
            rows = [row_of_text[PROMPT + text] for text in caption_references]
            cosines[row] = (vectors[rows] @ captions[row].double()).max()
    return cosines


def _score_by_metrics(items: CaptionItems, metrics: Sequence[str] | None, notes: Notes) -> dict[ScoreKey, np.ndarray]:
    """Return each metric of each caption (N,); NaN without a reference. Equal items are scored once."""
    if not any(items.references):
        return {}
    keys = list(zip(items.owners.tolist(), items.captions, map(tuple, items.references), strict=True))
    row_of_item = {key: row for row, key in enumerate(keys) if items.references[row]}
    rows = list(row_of_item.values())
    with LanguageScorer(list_computable_scores(metrics)) as language:
        language_scores = language.score([items.captions[row] for row in rows], [items.references[row] for row in rows])
    for name, reason in language_scores.not_computed.items():
        notes.add(f"metrics that are not computed ({reason})", name)
    index_of_item = {key: index for index, key in enumerate(row_of_item)}
    indices = np.array([index_of_item.get(key, len(rows)) for key in keys])
    return {
        ScoreKey("", name): np.append(np.asarray(values, np.float64), np.nan)[indices]
        for name, values in language_scores.per_caption.items()
    }
