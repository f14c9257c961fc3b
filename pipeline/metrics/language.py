"""BLEU, METEOR, ROUGE-L, CIDEr and SPICE of generated text, equal to pycocoevalcap's.

If CIDEr and SPICE are computed, so is SPIDEr, their sum (Liu et al. 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

from pipeline.errors import UserError
from pipeline.metrics import java, shared_meteor

BLEU = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
METRICS = (*BLEU, "METEOR", "ROUGE-L", "CIDEr", "SPICE")


@dataclass(frozen=True)
class LanguageScores:
    """Scores of N captions."""

    scores: dict[str, float] = field(default_factory=dict)  # corpus scores: 0 … 1, CIDEr 0 … 10
    per_caption: dict[str, np.ndarray] = field(default_factory=dict)  # (N,) float64, in the order of the captions
    bleu_counts: np.ndarray | None = None  # (N, 10), if BLEU was computed
    not_computed: dict[str, str] = field(default_factory=dict)  # metric → reason and remedy in one line


def bleu_statistics(said: Sequence[str], human: Sequence[Sequence[str]]) -> np.ndarray:
    """Return counts (N, 10) int32 of tokenised texts; pycocoevalcap's corpus BLEU is a function of their sums.

    The counts are: tokens of the caption; tokens of the reference closest in length; n-grams of the caption, n = 1 … 4;
    matching n-grams, n = 1 … 4.
    """
    from pycocoevalcap.bleu.bleu_scorer import cook_refs, cook_test

    rows = []
    for text, references in zip(said, human, strict=True):
        found = cook_test(text, cook_refs(references))
        closest = min((abs(length - found["testlen"]), length) for length in found["reflen"])[1]
        rows.append([found["testlen"], closest, *found["guess"], *found["correct"]])
    return np.array(rows, dtype=np.int32).reshape(-1, 10)


class LanguageScorer:
    """Scorer of several sets of captions with one METEOR process and a cache of tokenised texts; use it in a `with`.

    METEOR is the grid's shared process (pipeline.metrics.shared_meteor), else a process of its own. It takes many
    seconds to load its tables, so it starts on entry; captions may be generated meanwhile. `timeout`: the limit in
    seconds for a Java program on one set of captions; after it, its metric is not computed. Raises UserError for a
    metric that is not in METRICS.
    """

    def __init__(self, metrics: Sequence[str] = METRICS, timeout: float = 900.0) -> None:
        unknown = [metric for metric in metrics if metric not in METRICS]
        if unknown:
            raise UserError(f"metrics: {unknown[0]!r} is not known; choose from {', '.join(METRICS)}")
        self._metrics = tuple(metrics)
        self._timeout = timeout
        self._tokenised: dict[str, str] = {}
        self._meteor: java.Meteor | shared_meteor.SharedMeteor | None = None

    def __enter__(self) -> LanguageScorer:
        if "METEOR" in self._metrics:
            with suppress(java.NotComputedError):  # `score` reports it
                self._meteor = shared_meteor.connect_meteor(self._timeout)
        return self

    def __exit__(self, *error: object) -> None:
        if self._meteor is not None:
            self._meteor.close()
            self._meteor = None

    def score(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], metrics: Sequence[str] | None = None
    ) -> LanguageScores:
        """Score one caption per image against the image's references; `metrics` replaces the scorer's own.

        An empty caption is scored like any other. A metric that cannot run has no score, and `not_computed` holds the
        reason. Raises UserError if captions and images differ in number, or if an image has no reference with a word.
        """
        if len(hypotheses) != len(references) or not len(hypotheses):
            raise UserError(
                f"language metrics: {len(hypotheses)} captions for references of {len(references)} images; "
                "give one caption and its references for every image"
            )
        wanted = self._metrics if metrics is None else tuple(metrics)
        try:
            if "METEOR" in wanted and self._meteor is None:
                self._meteor = shared_meteor.connect_meteor(self._timeout)
            said = self.tokenised(hypotheses)
            flat = iter(self.tokenised(list(chain.from_iterable(references))))
        except java.NotComputedError as reason:
            return LanguageScores(not_computed=dict.fromkeys(wanted, str(reason)))
        human = [list(islice(flat, len(texts))) for texts in references]
        for place, texts in enumerate(human):
            if not any(texts):
                raise UserError(f"references of image {place}: none of {len(texts)} has a word; every image needs one")
        result = LanguageScores(bleu_counts=bleu_statistics(said, human) if set(BLEU) & set(wanted) else None)
        with ThreadPoolExecutor(1) as beside:
            for names, compute in self._scorers(said, human, wanted, beside).items():
                try:
                    for name, (overall, each) in zip(names, compute(), strict=True):
                        if name in wanted:
                            result.scores[name] = float(overall)
                            result.per_caption[name] = np.asarray(each, dtype=np.float64)
                except java.NotComputedError as reason:
                    result.not_computed.update(dict.fromkeys(names, str(reason)))
        if {"CIDEr", "SPICE"} <= result.scores.keys():
            result.scores["SPIDEr"] = result.scores["CIDEr"] + result.scores["SPICE"]
            result.per_caption["SPIDEr"] = result.per_caption["CIDEr"] + result.per_caption["SPICE"]
        return result

    def _scorers(
        self, said: list[str], human: list[list[str]], wanted: Sequence[str], beside: Executor
    ) -> dict[tuple[str, ...], Callable[[], Iterable[tuple[float, Sequence[float]]]]]:
        """Return the functions that compute the wanted metrics: the score of all captions together, and of each."""
        from pycocoevalcap.bleu.bleu import Bleu
        from pycocoevalcap.cider.cider import Cider
        from pycocoevalcap.rouge.rouge import Rouge

        # METEOR runs in its own process while the other metrics are computed
        meteor = beside.submit(self._meteor.score, said, human) if self._meteor and "METEOR" in wanted else Future()
        by_place = dict(enumerate(human)), {i: [text] for i, text in enumerate(said)}
        known = {
            BLEU: lambda: zip(*Bleu(4).compute_score(*by_place, verbose=0), strict=True),
            ("ROUGE-L",): lambda: [Rouge().compute_score(*by_place)],
            ("CIDEr",): lambda: [Cider().compute_score(*by_place)],
            ("SPICE",): lambda: [java.spice(said, human, self._timeout)],
            ("METEOR",): lambda: [meteor.result()],
        }
        return {names: compute for names, compute in known.items() if set(names) & set(wanted)}

    def tokenised(self, texts: Sequence[str]) -> list[str]:
        """Return Penn Treebank tokens of each text, with a cache. Raises NotComputedError if Java fails."""
        new = [text for text in dict.fromkeys(texts) if text not in self._tokenised]
        self._tokenised.update(zip(new, java.tokenise_ptb(new, self._timeout), strict=True))
        return [self._tokenised[text] for text in texts]
