"""World at the start of joint training: agents pretrained on reference captions with the project's pretraining.

Token 1 describes every image, and each other token names one image. Reference captions are the common token, the name,
or both.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import torch

from pipeline.composition.method import Method
from pipeline.composition.pretraining import build_listener_matching, build_teacher_forcing
from pipeline.estimators.relax import RelaxEstimator
from pipeline.estimators.rollouts import StepRollouts
from pipeline.gradients.gradient_world import GradientWorld, draw_world
from pipeline.protocols import Score
from pipeline.scores.discriminability import InfoNCE
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation
from pipeline.types import Batch

COMMON, NAME = 1, -1
TEMPLATES = ((COMMON, 0), (NAME, 0), (COMMON, NAME), (NAME, COMMON))  # per image; NAME stands for the image's own token


@dataclass(frozen=True)
class PretrainingBatches:
    """Batches of an epoch: one for each template, with the template's caption of every image."""

    batch: Batch

    def __len__(self) -> int:
        return len(TEMPLATES)

    def epoch(self, epoch: int, start: int = 0) -> Generator[Batch]:
        """Yield the batches of an epoch from number `start` on."""
        names = torch.arange(len(self.batch)).unsqueeze(1) + COMMON + 1
        for number in range(start, len(TEMPLATES)):
            template = torch.tensor(TEMPLATES[number]).expand(len(names), -1)
            captions = torch.where(template == NAME, names, template)
            yield replace(self.batch, captions=captions, epoch=epoch, step=epoch * len(TEMPLATES) + number)


def pretrain_world(images: int, epochs: int, seed: int) -> GradientWorld:
    """Return a world of agents pretrained on all reference captions; the captions of its batch are the names."""
    world = draw_world(images, images + 1, 2, seed)
    batches = PretrainingBatches(world.batch)
    score = InfoNCE(world.listener, temperature=0.2)
    _pretrain(build_teacher_forcing({"speaker": world.speaker}), batches, epochs, seed)
    _pretrain(build_listener_matching(world.listener, score), batches, epochs, seed)
    world.speaker.requires_grad_(True)
    return replace(world, batch=next(batches.epoch(0, TEMPLATES.index((NAME, 0)))))


def train_control(world: GradientWorld, estimator: RelaxEstimator, score: Score, steps: int) -> None:
    """Train the estimator's control variate for `steps` steps; the speaker is fixed."""
    adam = torch.optim.Adam(estimator.control.parameters(), 0.01)
    for step in range(steps):
        loss, _ = estimator.surrogate(score, StepRollouts(world.speaker, replace(world.batch, step=step), seed=11))
        adam.zero_grad()
        loss.backward(inputs=list(estimator.control.parameters()))
        adam.step()


def _pretrain(method: Method, batches: PretrainingBatches, epochs: int, seed: int) -> None:
    settings = Optimisation(epochs, learning_rate=0.02, clip_value=None, clip_norm=1.0, validate_every=0)
    with torch.random.fork_rng():
        Training(method, batches, settings, seed, torch.device("cpu")).run()
