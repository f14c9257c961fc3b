"""Estimators at a trained speaker, whose captions are too many to enumerate, compared with a low-variance gradient.

The score is the half of the hinge that compares images for a caption. It depends on that caption alone, so REINFORCE
with leave-one-out baselines is unbiased. Its gradient over many captions serves as the reference for the other
estimators.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.channels.hard import Multinomial
from pipeline.data.batches import iterate_sequentially
from pipeline.data.image_features import load_data
from pipeline.errors import UserError
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.gradients.estimator_candidates import EstimatorCandidate
from pipeline.gradients.gradient_world import GradientWorld
from pipeline.gradients.measure import Accuracy, estimate_gradient
from pipeline.gradients.observe import ImageHinge
from pipeline.models.agent_files import load_agent
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.protocols import Estimator

IMAGES = 32
GROUPS = 20  # parts of all steps whose means are kept, for standard errors
TRUTH, ESTIMATES = 5, 7  # seeds
# parts of the names of candidates that are not measured: an untrained control, and variants
OMITTED = ("learned control", "soft ending", "along samples", "by word", "PSST-Gumbel-Rao")
TRUTH_SAMPLES, ESTIMATE_SAMPLES = 16, 5  # captions per image and step: of the reference gradient, of a candidate


def load_trained_world(root: Path) -> tuple[GradientWorld, str]:
    """Load the pretrained agents below `root`, without dropout, and the first validation images.

    Returns them as a `GradientWorld`, and the data set's name.
    """
    speaker, listener = (
        load_agent(root / "pretrained" / role / "weights.safetensors", role) for role in ("speaker", "listener")
    )
    assert isinstance(speaker, Decoder)
    assert isinstance(listener, Listener)
    listener.requires_grad_(False)
    prepared, store = load_data(root, vectors=listener.features)
    batch = next(iterate_sequentially(prepared, store, prepared.rows("val")[:IMAGES], IMAGES))
    return GradientWorld(speaker.requires_grad_(True), listener, batch), prepared.manifest["dataset"]


@dataclass(frozen=True)
class GradientMeans:
    """Gradients averaged over parts of independent steps, (GROUPS, P), and the number of steps in each part."""

    parts: Tensor
    steps: int

    @property
    def mean(self) -> Tensor:
        """Return the mean gradient over the parts."""
        return self.parts.mean(0)

    @property
    def spread(self) -> Tensor:
        """Return (GROUPS, P): rows whose outer products add up to the estimated covariance of the mean."""
        return (self.parts - self.mean) / (len(self.parts) * (len(self.parts) - 1)) ** 0.5


def measure_trained(
    world: GradientWorld,
    margin: float,
    candidates: Sequence[EstimatorCandidate],
    print_line: Callable[[str], None],
    captions: int = 100_000,
    steps: int = 100,
) -> dict[str, Any]:
    """Return the accuracy of each candidate over at least `steps` steps, for JSON.

    A candidate draws ESTIMATE_SAMPLES captions per image. `captions` is the smallest number of captions for the
    reference gradient. In the result, `error` is the standard error of the reference gradient relative to its norm; it
    is part of each row's `bias_error`. `seconds` is the CPU time of a step. Candidates with a part of `OMITTED` in
    their names are skipped. Candidates with ρ = 0, which equal straight-through, are skipped, too.

    Raises UserError where no candidate remains, and where the reference gradient's norm is within its standard error.
    """
    eligible = [
        candidate
        for candidate in candidates
        if not any(words in candidate.name for words in OMITTED) and candidate.settings.get("rho") != 0
    ]
    if not eligible:
        names = ", ".join(dict.fromkeys(candidate.name for candidate in candidates))
        raise UserError(
            f"--only: expected an estimator that is measured at a trained speaker, got only {names}; choose another "
            "estimator"
        )
    score = ImageHinge(world.listener, margin)

    def average_gradients(estimator: Estimator, steps: int, seed: int) -> GradientMeans:
        group_steps = -(-steps // GROUPS)
        parts: list[Tensor] = []
        for group in range(GROUPS):
            total = torch.zeros(())
            for step in range(group * group_steps, (group + 1) * group_steps):
                rollouts = StepRollouts(world.speaker, replace(world.batch, step=step), seed)
                total = total + estimate_gradient(world, estimator, score, rollouts)
            parts.append(total / group_steps)
        return GradientMeans(torch.stack(parts), group_steps)

    unbiased = ScoreFunction(Multinomial(TRUTH_SAMPLES), LeaveOneOut())
    captions_per_step = TRUTH_SAMPLES * len(world.batch)
    print_line(f"the gradient of {captions:,} captions")
    truth = average_gradients(unbiased, -(-captions // captions_per_step), TRUTH)
    captions_used = GROUPS * truth.steps * captions_per_step
    squared_norm, squared_error = float(truth.mean.square().sum()), float(truth.spread.square().sum())
    if not squared_norm > squared_error:
        raise UserError(
            f"--captions: expected a gradient that differs from 0, got a norm of {squared_norm**0.5:.2g} with a "
            f"standard error of {squared_error**0.5:.2g} from {captions_used:,} captions of {len(world.batch)} images; "
            "raise --captions, or use a run with more validation images"
        )
    rows = []
    for candidate in eligible:
        print_line(candidate.label)
        begin = time.process_time()
        estimates = average_gradients(candidate.build(ESTIMATE_SAMPLES, world.speaker), steps, ESTIMATES)
        seconds = (time.process_time() - begin) / (GROUPS * estimates.steps)
        row = {"name": candidate.name, "settings": dict(candidate.settings), "seconds": seconds}
        rows.append(row | asdict(compare_gradient_means(estimates, truth)))
    return {
        "images": len(world.batch),
        "margin": margin,
        "samples": ESTIMATE_SAMPLES,
        "steps": GROUPS * -(-steps // GROUPS),
        "captions": captions_used,
        "error": (squared_error / (squared_norm - squared_error)) ** 0.5,
        "rows": rows,
    }


def compare_gradient_means(estimates: GradientMeans, truth: GradientMeans) -> Accuracy:
    """Return the accuracy as `estimate_accuracy` does, but with a sampled truth; both sampling errors are subtracted.

    The cosine of a mean that is 0 is 0.
    """
    mean, reference = estimates.mean, truth.mean
    spreads = torch.cat([estimates.spread, truth.spread])
    # squared standard errors of both means
    variance, reference_variance = estimates.spread.square().sum(), truth.spread.square().sum()
    norm = (reference.square().sum() - reference_variance).clamp(min=1e-30).sqrt()
    error = mean - reference
    squared = float((error.square().sum() - variance - reference_variance) / norm**2)
    bias = max(squared, 0.0) ** 0.5
    products = (spreads @ spreads.T).fill_diagonal_(0)  # a part's product with itself would add a share of (tr Σ)²
    deviation = float((4 * (spreads @ error).square().sum() + 2 * products.square().sum()).sqrt() / norm**2)
    length = (mean.square().sum() - variance).clamp(min=0).sqrt().clamp(min=float((mean @ reference).abs() / norm))
    return Accuracy(
        bias=bias,
        bias_error=(bias**2 + deviation) ** 0.5 - bias,
        cosine=float(mean @ reference / (length * norm).clamp(min=1e-30)),
        length=float(length / norm),
        variance=float(variance * len(estimates.parts) * estimates.steps / norm**2),
    )
