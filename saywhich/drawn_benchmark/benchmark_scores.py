"""Scores of answers to a drawn benchmark by the facts of its scenes, with 95 % intervals over images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.errors import UserError
from pipeline.evaluation.hard_gallery import find_galleries_by_key
from pipeline.evaluation.judges import JudgedCaptions, rank_embeddings
from pipeline.metrics.gallery_names import HARD_GALLERY
from pipeline.worlds.scene_baselines import sample_oracle_caption
from pipeline.worlds.scenes.faithfulness import KINDS, judge_faithfulness
from pipeline.worlds.scenes.scene_claims import SceneClaims
from pipeline.worlds.scenes.scene_facts import Scene
from pipeline.worlds.symbolic_judge import SymbolicJudge
from saywhich.drawn_benchmark.benchmark_folder import DrawnBenchmark
from saywhich.judging.caption_files import Source, read_caption_set
from saywhich.judging.caption_scores import (
    ScoreKey,
    ScoreValues,
    average_over,
    compute_ratio,
    compute_score_interval,
    resample_scores,
)
from saywhich.judging.notes import Notes
from saywhich.judging.photo_index import PhotoIndex
from saywhich.judging.retrieval_scores import flatten

RECALL, TRUE_CAPTIONS = "R@1 (hard), %", "without a false claim, %"
CLAIMS, UNKNOWN = "claims per caption", "unknown words, %"
TRUE, STATED = "claims that are true, %", "facts that are stated, %"
KIND_TITLES = {title: [f"{title[:-3]}: {kind}" for kind in KINDS] for title in (TRUE, STATED)}
NAMES = (
    RECALL,
    TRUE_CAPTIONS,
    CLAIMS,
    UNKNOWN,
    *(name for title in KIND_TITLES for name in (title, *KIND_TITLES[title])),
)
EXACT, OTHERS = "exact captions", "captions of other images"
WIDTH, CELL = 35, 25  # columns of a score's name, and of a number with its interval


@dataclass(frozen=True)
class ScoredAnswers:
    """Scores of one set of captions of M images, and their resamples over images."""

    name: str
    scores: dict[str, ScoreValues]
    resampled: dict[ScoreKey, np.ndarray]

    def compute_interval(self, score: str) -> tuple[float, float] | None:
        """Return the 95 % interval of a score; None where no image has such a fact or claim."""
        return compute_score_interval(self.resampled.get(ScoreKey("", score)))


@dataclass(frozen=True)
class BenchmarkScores:
    """Scores of the answers, of exact captions, and of other images' captions."""

    images: int
    difficulty: int
    rows: Sequence[ScoredAnswers]
    notes: Sequence[str]

    def record(self) -> dict[str, Any]:
        """Return all scores and notes as values of JSON; an interval is a pair, or None."""
        return {
            "images": self.images,
            "difficulty": self.difficulty,
            "notes": list(self.notes),
            "captions": {
                row.name: {name: {"value": each.value, "interval": row.compute_interval(name)}
                           for name, each in row.scores.items()}
                for row in self.rows
            },
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield the lines of a table for a terminal."""
        yield f"{self.images:,} drawn scenes, difficulty {self.difficulty}; 95 % intervals over images, in brackets"
        yield f"{RECALL}: captions that fit their own scene's facts best among the gallery's scenes; a tie is a miss"
        yield ""
        yield " " * WIDTH + "".join(row.name.rjust(CELL) for row in self.rows)
        names = {name for row in self.rows for name in row.scores}
        for name in filter(names.__contains__, NAMES):
            yield name.ljust(WIDTH) + "".join(_format_cell(row, name).rjust(CELL) for row in self.rows)


def score_answers(benchmark: DrawnBenchmark, folder: Path, answers: Source) -> BenchmarkScores:
    """Score a caption file of any form that `saywhich judge` reads.

    An image may have several captions; an image without any has the empty caption, which claims nothing. Raises
    UserError where no caption is of an image of the benchmark, and as `read_caption_set` does.
    """
    notes = Notes()
    answer_set = read_caption_set(answers, notes)
    index, row_of_file = PhotoIndex(folder), {folder / file: row for row, file in enumerate(benchmark.files)}
    captions: list[list[str]] = [[] for _ in benchmark.files]
    for image, texts in answer_set.captions.items():
        path = index.find(image)
        if path is None or path not in row_of_file:
            notes.add(f"images of {answer_set.name} that the benchmark does not have", image)
        else:
            captions[row_of_file[path]] += [text.lower() for text in texts]
    if not any(captions):
        raise UserError(
            f"{answer_set.name}: expected captions of the pictures in {folder}, found none; use the file names in "
            "images.parquet"
        )
    for each, file in zip(captions, benchmark.files, strict=True):
        if not each:
            notes.add("images without a caption, which count as missed", file)
            each.append("")
    exact = [[sample_oracle_caption(scene, row)] for row, scene in enumerate(benchmark.scenes)]
    half = len(captions) // 2
    rows = {answer_set.name: captions, EXACT: exact, OTHERS: [*captions[half:], *captions[:half]]}
    judge = SymbolicJudge(SceneClaims(benchmark.scenes), np.arange(len(captions)))
    galleries = find_galleries_by_key(benchmark.galleries)
    scores = [_score_captions(judge, each, benchmark.scenes, galleries) for each in rows.values()]
    resampled = resample_scores(
        [{ScoreKey("", name): value for name, value in each.items()} for each in scores], len(captions)
    )
    scored = [
        ScoredAnswers(name, each, resamples) for name, each, resamples in zip(rows, scores, resampled, strict=True)
    ]
    return BenchmarkScores(len(captions), benchmark.difficulty, scored, list(notes.lines()))


def _score_captions(
    judge: SymbolicJudge, captions: Sequence[Sequence[str]], scenes: Sequence[Scene], galleries: torch.Tensor
) -> dict[str, ScoreValues]:
    """Return the scores of the captions of M images, by name.

    A score is left out where there is nothing to count: no word, no claim or fact, or none of its kind.
    """
    texts, owners = flatten(captions)
    images = len(captions)
    claims, facts = judge.embed(JudgedCaptions(torch.empty(0), texts), torch.arange(images))
    ranks = rank_embeddings(claims, facts, torch.from_numpy(owners), {HARD_GALLERY: galleries})
    truth = judge_faithfulness(texts, [scenes[owner] for owner in owners])

    def compute_share(part: np.ndarray, whole: np.ndarray, factor: float = 100.0) -> ScoreValues:
        return compute_ratio(
            factor * np.bincount(owners, part, images), np.bincount(owners, whole, images).astype(np.float64)
        )

    ones = np.ones(len(texts))
    scores = {
        RECALL: average_over(owners, 100.0 * (ranks.among[HARD_GALLERY].numpy() == 1), images),
        TRUE_CAPTIONS: compute_share((truth.claims.sum(1) == truth.true.sum(1)) & (truth.claims.sum(1) > 0), ones),
        CLAIMS: compute_share(truth.claims.sum(1), ones, 1.0),
        UNKNOWN: compute_share(truth.unknown, truth.words),
    }
    for title, part, whole in ((TRUE, truth.true, truth.claims), (STATED, truth.told, truth.facts)):
        scores[title] = compute_share(part.sum(1), whole.sum(1))
        for number, name in enumerate(KIND_TITLES[title]):
            scores[name] = compute_share(part[:, number], whole[:, number])
    return {name: each for name, each in scores.items() if each.counts is not None and each.counts.any()}


def _format_cell(row: ScoredAnswers, name: str) -> str:
    if name not in row.scores:
        return "–"
    interval = row.compute_interval(name)
    brackets = f" [{interval[0]:.1f}, {interval[1]:.1f}]" if interval and np.isfinite(interval).all() else ""
    return f"{row.scores[name].value:.1f}{brackets}"
