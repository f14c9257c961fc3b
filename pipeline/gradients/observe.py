"""Accuracy of every candidate in every world, and the time of a step with captions of realistic length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.estimators.relax import RelaxEstimator
from pipeline.gradients.enumerated import Enumeration, is_enumerable, is_independent
from pipeline.gradients.estimator_candidates import EstimatorCandidate
from pipeline.gradients.gradient_world import draw_world
from pipeline.gradients.measure import (
    Accuracy,
    compute_accuracy,
    estimate_accuracy,
    estimate_gradients,
    measure_step_time,
)
from pipeline.gradients.pretraining_world import pretrain_world, train_control
from pipeline.models.listener import Listener
from pipeline.protocols import Estimator, Score
from pipeline.scores.discriminability import Hinge

MARGIN = 1.0  # PSST's Eq. 4; with 0.2 the listener soon separates two images, and the gradient is 0
LARGE = {"images": 8, "vocabulary": 300, "max_words": 12, "size": 128}  # sizes of the world in which steps are timed


@dataclass(frozen=True)
class ImageHinge(Hinge):
    """The half of the hinge that compares images for a caption, with the hardest image; `negatives` is ignored."""

    def losses(self, cosines: Tensor) -> Tensor:
        """Return losses (S, B) from `cosines` (S, B, B)."""
        own = cosines.diagonal(dim1=1, dim2=2)
        off_diagonal = ~torch.eye(cosines.shape[-1], dtype=torch.bool)
        return (F.relu(self.margin - own.unsqueeze(2) + cosines) * off_diagonal).amax(2)


SCORES: Mapping[str, Callable[[Listener], Score]] = {
    "hinge": lambda listener: Hinge(listener, MARGIN),
    "hinge among images": lambda listener: ImageHinge(listener, MARGIN),
}
BOTH_SCORES = ("REINFORCE, greedy", "ST-Multinomial", "PSST-Multinomial")  # also measured with the second score


@dataclass(frozen=True)
class MeasurementEffort:
    """Numbers of worlds, pretraining epochs, captions per image, steps and timed repetitions."""

    worlds: int = 3  # with seeds 1, 2, …
    epochs: int = 40  # epochs of pretraining, each with four captions per image
    samples: tuple[int, ...] = (1, 4, 16)  # K, captions per image
    rounds: int = 200  # steps of a sampled estimator, and of training its control variate, if any
    repeats: int = 3  # timed steps


def measure_candidates(
    candidates: Sequence[EstimatorCandidate], effort: MeasurementEffort, print_line: Callable[[str], None]
) -> dict[str, Any]:
    """Return all accuracies by world, and times of steps, as JSON values; `print_line` receives progress lines.

    A row is a candidate with a number of samples and a score. For each world it holds the relative `bias`, its standard
    error `bias_error`, `cosine`, `length` and `variance`. `seconds` is the CPU time of a step with the hinge in a
    larger world. Raises UserError for fewer than two `rounds` of a sampled estimator.
    """
    rows: dict[tuple[str, int, int], dict[str, Any]] = {}
    labels = [candidate.label for candidate in candidates]
    for seed in range(1, effort.worlds + 1):
        world = pretrain_world(2, effort.epochs, seed)
        for score_name, build_score in SCORES.items():
            score = build_score(world.listener)
            truth, enumeration = world.exact_gradient(score), Enumeration(world, score)
            for n, candidate in enumerate(candidates):
                if score_name != "hinge" and candidate.name not in BOTH_SCORES:
                    continue
                print_line(f"world {seed} of {effort.worlds}, {score_name}: {labels[n]}")
                for samples, accuracy in _measure_accuracies(enumeration, candidate, truth, effort).items():
                    row: dict[str, Any] = {"score": score_name, "name": candidate.name, "samples": samples}
                    row |= {"settings": dict(candidate.settings), "worlds": []}
                    row |= {"exact": is_enumerable(candidate.build(samples, world.speaker))}
                    rows.setdefault((score_name, n, samples), row)["worlds"].append(asdict(accuracy))
    world = draw_world(**LARGE, seed=0, contrast=1.0, dtype=torch.float32)
    score = SCORES["hinge"](world.listener)
    for (score_name, n, samples), row in rows.items():
        if score_name == "hinge":
            print_line(f"time: {labels[n]}, {samples} captions per image")
            row["seconds"] = measure_step_time(
                world, candidates[n].build(samples, world.speaker), score, effort.repeats
            )
    return {"effort": asdict(effort), "margin": MARGIN, "large": LARGE, "rows": list(rows.values())}


def _measure_accuracies(
    enumeration: Enumeration, candidate: EstimatorCandidate, truth: Tensor, effort: MeasurementEffort
) -> dict[int, Accuracy]:
    """Return the accuracy for each number of samples; one measurement serves all numbers of independent samples."""
    sample_counts = [samples for samples in effort.samples if samples >= candidate.min_samples]
    world, score = enumeration.world, enumeration.score
    estimators = {samples: candidate.build(samples, world.speaker) for samples in sample_counts}
    if all(is_enumerable(estimator) for estimator in estimators.values()):
        return {
            samples: compute_accuracy(*enumeration.moments(estimator), truth)
            for samples, estimator in estimators.items()
        }

    def measure_samples(estimator: Estimator) -> Accuracy:
        if isinstance(estimator, RelaxEstimator):
            train_control(world, estimator, score, effort.rounds)
        return estimate_accuracy(estimate_gradients(world, estimator, score, effort.rounds), truth)

    largest = max(sample_counts)
    if is_independent(estimators[largest]):
        accuracy = measure_samples(estimators[largest])
        return {samples: replace(accuracy, variance=accuracy.variance * largest / samples) for samples in sample_counts}
    return {samples: measure_samples(estimator) for samples, estimator in estimators.items()}
