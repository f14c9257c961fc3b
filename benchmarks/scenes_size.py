"""Speaker, listener and batch with the layer sizes of params.yaml and the caption lengths of drawn scenes."""

from __future__ import annotations

from dataclasses import replace

import torch

from pipeline.composition.joint import Agents, Objective
from pipeline.methods.likelihood import mle
from pipeline.metrics.cider import CiderD, compute_document_frequencies
from pipeline.metrics.text_rewards import TextScorer
from pipeline.models.att2in import Att2in
from pipeline.models.listener import Listener
from pipeline.runtime.adam import Adam
from pipeline.types import Batch
from pipeline.vocabulary import Vocabulary
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_captions import describe_scene

IMAGES, REGIONS, SIZE, LENGTH, BATCH = 800, 36, 128, 16, 64
PRETRAINING = 75  # steps, after which captions are about as long as the references


def make_scenes_agents() -> tuple[Agents, Batch]:
    """Return a pretrained speaker, an untrained listener, and a batch of drawn scenes' captions on random features."""
    captions_by_image = [describe_scene(sample_scene(1, image), 1, image) for image in range(IMAGES)]
    vocabulary = Vocabulary.count((caption.tokens for image in captions_by_image for caption in image), more_than=0)
    references = [[vocabulary.encode(caption.tokens) for caption in image] for image in captions_by_image]
    cider = CiderD.build(references, *compute_document_frequencies(references), IMAGES)
    torch.manual_seed(0)
    speaker = Att2in(len(vocabulary), SIZE, words=128, hidden=192, attention=128, dropout=0.1)
    listener = Listener(len(vocabulary), 2 * SIZE, words=128, hidden=160)
    captions = torch.zeros(IMAGES, LENGTH, dtype=torch.int64)
    for row, image in enumerate(references):
        words = image[0][:LENGTH]
        captions[row, : len(words)] = torch.tensor(words)
    agents = Agents(speaker, listener, cider, TextScorer(str, lambda image: []))
    pooled, regions = torch.randn(BATCH, 2 * SIZE), torch.randn(BATCH, REGIONS, SIZE).relu()
    mask, rows = torch.ones(BATCH, REGIONS, dtype=torch.bool), torch.arange(BATCH)
    example = Batch(rows, pooled, regions, mask, captions[:BATCH])
    pretrain(agents, example, captions)
    return agents, example


def pretrain(agents: Agents, batch: Batch, captions: torch.Tensor) -> None:
    """Train the speaker by maximum likelihood on random rows of `captions` (N, T)."""
    method, adam = mle(agents, Objective(), 0.0), Adam(agents.speaker)
    for step in range(PRETRAINING):
        rows = torch.randint(len(captions), (len(batch),))
        losses, _ = method.step(replace(batch, captions=captions[rows], step=step), seed=0)
        torch.stack(list(losses.values())).sum().backward()
        adam.step(5e-3)
