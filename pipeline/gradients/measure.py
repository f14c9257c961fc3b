"""Bias and variance of an estimator's gradient compared with the exact gradient, and the time of a step.

Bias is relative to the norm of the exact gradient, variance to its square.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.estimators.relax import RelaxEstimator
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.gradients.gradient_world import GradientWorld
from pipeline.protocols import Estimator, Rollouts, Score

SEED = 7  # seed of the rollouts


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of estimates of a gradient."""

    bias: float  # |mean − truth| / |truth|, corrected for the error of a sampled mean
    bias_error: float  # increase of `bias` for one standard error of its square; 0 if exact
    cosine: float  # between the mean and the truth
    length: float  # |mean| / |truth|; a shorter gradient also has less variance
    variance: float  # trace of the covariance / |truth|²


def compute_accuracy(mean: Tensor, variance: Tensor, truth: Tensor) -> Accuracy:
    """Return the accuracy of an estimator with exact mean (P,) and variance (); the cosine of a mean of 0 is 0."""
    norm = truth.norm()
    length = mean.norm()
    return Accuracy(
        bias=float((mean - truth).norm() / norm),
        bias_error=0.0,
        cosine=float(mean @ truth / (length * norm).clamp(min=1e-30)),
        length=float(length / norm),
        variance=float(variance / norm**2),
    )


def estimate_accuracy(estimates: Tensor, truth: Tensor) -> Accuracy:
    """Return the accuracy of independent `estimates` (R, P); the sampling error is subtracted.

    The cosine of a mean that is 0 is 0. Raises UserError for fewer than two estimates, which have no variance.
    """
    if len(estimates) < 2:
        raise UserError(
            f"rounds: expected 2 or more steps of a sampled estimator, got {len(estimates)}; raise --rounds"
        )
    rounds, norm = len(estimates), truth.norm()
    mean, spread = estimates.mean(0), estimates - estimates.mean(0)
    variance = estimates.var(0).sum()
    error = mean - truth
    squared = float((error.square().sum() - variance / rounds) / norm**2)
    bias = max(squared, 0.0) ** 0.5
    # Σ is the covariance of the mean: |error|² has the variance 4 errorᵀ Σ error + 2 tr Σ²
    linear = (spread @ error).square().sum() / (rounds - 1) / rounds
    quadratic = (spread @ spread.T).square().sum() / ((rounds - 1) * rounds) ** 2
    deviation = float((4 * linear + 2 * quadratic).sqrt() / norm**2)
    length = (mean.square().sum() - variance / rounds).clamp(min=0).sqrt().clamp(min=float((mean @ truth).abs() / norm))
    return Accuracy(
        bias=bias,
        bias_error=(bias**2 + deviation) ** 0.5 - bias,
        cosine=float(mean @ truth / (length * norm).clamp(min=1e-30)),
        length=float(length / norm),
        variance=float(variance / norm**2),
    )


def estimate_gradient(world: GradientWorld, estimator: Estimator, score: Score, rollouts: Rollouts) -> Tensor:
    """Return the estimate (P,) by `estimator` of the gradient of a caption's expected score, from `rollouts`.

    Score-function estimators average over tokens, and the expected score over captions. Their gradient is therefore
    multiplied by the mean number of tokens per caption.
    """
    loss, _ = estimator.surrogate(score, rollouts)
    scale = 1.0
    if isinstance(estimator, ScoreFunction | RelaxEstimator):
        message = rollouts.get_message(estimator.channel)
        scale = float(message.mask.sum()) / len(message)
    return -scale * world.gradient(loss)


def estimate_gradients(world: GradientWorld, estimator: Estimator, score: Score, rounds: int) -> Tensor:
    """Return the gradients (R, P) of `rounds` independent steps."""
    steps = (StepRollouts(world.speaker, replace(world.batch, step=step), SEED) for step in range(rounds))
    return torch.stack([estimate_gradient(world, estimator, score, rollouts) for rollouts in steps])


def measure_step_time(world: GradientWorld, estimator: Estimator, score: Score, repeats: int) -> float:
    """Return the CPU seconds of a step of `estimator` with rollouts: the median of `repeats` after a warm-up."""

    def time_step(number: int) -> float:
        begin = time.process_time()
        estimate_gradient(world, estimator, score, StepRollouts(world.speaker, replace(world.batch, step=number), SEED))
        return time.process_time() - begin

    time_step(0)
    return median(time_step(number) for number in range(1, repeats + 1))
