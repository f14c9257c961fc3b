"""Estimators before a trained speaker, whose captions are too many to enumerate: compared with a gradient of many more.

The score is the half of the hinge that compares images for a caption: it depends on that caption alone, so that
REINFORCE with leave-one-out baselines is unbiased and can be what the others are compared with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pipeline.channels.words import Multinomial
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.observatory.candidates import Candidate
from pipeline.observatory.measure import Accuracy, estimate
from pipeline.observatory.observe import AmongImages
from pipeline.observatory.world import World
from pipeline.protocols import Estimator

GROUPS = 20  # means of so many parts of all steps are kept, for errors
TRUTH, ESTIMATES = 5, 7  # seeds
LEFT_OUT = (
    "learned control",
    "soft ending",
    "along samples",
    "by word",
    "PSST-Gumbel-Rao",
)  # an untrained control, variants
EACH = 16  # captions per image and step of what others are compared with


@dataclass(frozen=True)
class Means:
    """Gradients averaged over parts of independent steps, (GROUPS, P), and how many steps are in each."""

    parts: Tensor
    steps: int

    @property
    def mean(self) -> Tensor:
        return self.parts.mean(0)

    @property
    def spread(self) -> Tensor:
        """(GROUPS, P): rows whose outer products add up to the estimated covariance of the mean."""
        return (self.parts - self.mean) / (len(self.parts) * (len(self.parts) - 1)) ** 0.5


def observe_trained(
    world: World,
    margin: float,
    candidates: Sequence[Candidate],
    say: Callable[[str], None],
    captions: int = 100_000,
    samples: int = 5,
    steps: int = 100,
) -> dict[str, Any]:
    """The accuracy of each candidate with `samples` captions per image, over `steps` steps or some more; can be JSON.

    `captions`: drawn, at least, for the gradient that they are compared with. Its own standard error is `error`, as a
    share of its norm; it is part of each row's `bias_error`. `seconds`: CPU time of a step.
    """
    score = AmongImages(world.listener, margin)

    def means(estimator: Estimator, steps: int, seed: int) -> Means:
        each = -(-steps // GROUPS)
        parts: list[Tensor] = []
        for group in range(GROUPS):
            total = torch.zeros(())
            for step in range(group * each, (group + 1) * each):
                rollouts = StepRollouts(world.speaker, replace(world.batch, step=step), seed)
                total = total + estimate(world, estimator, score, rollouts)
            parts.append(total / each)
        return Means(torch.stack(parts), each)

    best, whole = ScoreFunction(Multinomial(EACH), LeaveOneOut()), EACH * len(world.batch)
    say(f"the gradient of {captions:,} captions")
    truth = means(best, -(-captions // whole), TRUTH)
    rows = []
    for one in candidates:
        if any(words in one.name for words in LEFT_OUT) or one.settings.get("rho") == 0:  # which is no partial sampling
            continue
        say(", ".join([one.name, *(f"{key} {value:g}" for key, value in one.settings.items())]))
        begin = time.process_time()
        found = means(one.of(samples, world.speaker), steps, ESTIMATES)
        seconds = (time.process_time() - begin) / (GROUPS * found.steps)
        row = {"name": one.name, "settings": dict(one.settings), "seconds": seconds}
        rows.append(row | asdict(against(found, truth)))
    noise = float(truth.spread.square().sum())
    return {
        "images": len(world.batch),
        "margin": margin,
        "samples": samples,
        "steps": GROUPS * -(-steps // GROUPS),
        "captions": GROUPS * truth.steps * whole,
        "error": (noise / max(float(truth.mean.square().sum()) - noise, 1e-30)) ** 0.5,
        "rows": rows,
    }


def against(found: Means, truth: Means) -> Accuracy:
    """As `sampled_accuracy`, where the truth is sampled, too: what either error adds is subtracted."""
    mean, true, a, b = found.mean, truth.mean, found.spread, truth.spread
    own, other = a.square().sum(), b.square().sum()  # squared standard errors
    norm = (true.square().sum() - other).clamp(min=1e-30).sqrt()
    error = mean - true
    squared = float((error.square().sum() - own - other) / norm**2)
    bias = max(squared, 0.0) ** 0.5
    both = torch.cat([a, b])
    products = (both @ both.T).fill_diagonal_(0)  # of a part with itself they would add the square of Σ's trace
    deviation = float((4 * (both @ error).square().sum() + 2 * products.square().sum()).sqrt() / norm**2)
    length = (mean.square().sum() - own).clamp(min=0).sqrt().clamp(min=float((mean @ true).abs() / norm))
    return Accuracy(
        bias=bias,
        bias_error=(bias**2 + deviation) ** 0.5 - bias,
        cosine=float(mean @ true / (length * norm)),
        length=float(length / norm),
        variance=float(own * len(found.parts) * found.steps / norm**2),
    )
