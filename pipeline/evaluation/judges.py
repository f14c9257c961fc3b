"""Judges: retrieval models that rank the images given a caption, and the captions given an image.

`JUDGES` lists the core's kinds of judges for `evaluate.judges` of params.yaml. Slices add further kinds, and
`evaluate.judges` may also name pretrained listeners and dual encoders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.data.feature_store import FeatureStore
from pipeline.errors import UserError
from pipeline.evaluation.judge_names import ADAPTED, OWN
from pipeline.metrics.retrieval import (
    compute_recall,
    compute_recall_among,
    draw_distractors,
    find_similar_distractors,
    rank_gallery,
)
from pipeline.models.agent_files import load_agent
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.listener import Listener
from pipeline.types import Message, make_caption_mask
from pipeline.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pipeline.data.prepared import PreparedData

ENCODED_AT_ONCE = 1024  # captions or images
TOP_IMAGES = 5  # top-ranked images kept for inspection
DISTRACTORS_SEED = 0  # the same galleries for all models


@dataclass(frozen=True)
class RetrievalResult:
    """Ranks of a judge for N captions of M images: `by_caption` (N,), 1 is best, and recalls in both directions.

    `by_image` (M,): the rank of an image's best caption among the captions of other images. `retrieved` (N, min(5, M)):
    the indices in the gallery of the images ranked first. `galleries`: text-to-image recalls in smaller galleries.
    `among` (N,): the ranks in those galleries, 0 where a gallery holds no other image.
    """

    by_caption: Tensor
    by_image: Tensor
    retrieved: Tensor
    text_to_image: dict[str, float]
    image_to_text: dict[str, float]
    galleries: dict[str, dict[str, float]]
    among: dict[str, Tensor]

    def recalls(self) -> dict[str, dict[str, float]]:
        """Return the recalls by direction."""
        return {"text_to_image": self.text_to_image, "image_to_text": self.image_to_text}


def sample_galleries(pooled: Tensor) -> dict[str, Tensor]:
    """Return distractors (M, K) of each image of `pooled` (M, P), by gallery name.

    Gallery 1000 has 999 random distractors and needs M > 1,000. Galleries random100, with 99 random distractors, and
    similar100, with the 99 nearest neighbours in feature space, need M > 100.
    """
    images = len(pooled)
    galleries = {}
    if images > 1000:
        galleries["1000"] = draw_distractors(images, 999, DISTRACTORS_SEED)
    if images > 100:
        galleries["random100"] = draw_distractors(images, 99, DISTRACTORS_SEED)
        galleries["similar100"] = find_similar_distractors(pooled, 99)
    return galleries


@dataclass(frozen=True)
class JudgedCaptions:
    """Captions as the speaker's token ids (N, T) and as N texts; a judge encodes either the ids or the texts."""

    tokens: Tensor
    texts: Sequence[str]


def encode_judged_captions(texts: Sequence[str], vocabulary: Vocabulary, max_words: int) -> JudgedCaptions:
    """Return the captions with their token ids (N, max_words); ids are clipped to `max_words` words, texts are not."""
    tokens = torch.zeros(len(texts), max_words, dtype=torch.int64)
    for row, text in zip(tokens, texts, strict=True):
        words = vocabulary.encode(text.split())[:max_words]
        row[: len(words)] = torch.tensor(words)
    return JudgedCaptions(tokens, texts)


class Judge(Protocol):
    """Retrieval model with its own features and vocabulary, which ranks images by caption and captions by image."""

    def embed(self, captions: JudgedCaptions, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return text embeddings (N, D) and image embeddings (M, D) of `rows` (M,), rows of the prepared data set.

        Equal captions have embeddings that are equal to the bit. The inner product of two embeddings scores a caption
        on an image.
        """


@dataclass(frozen=True)
class ListenerJudge:
    """Listener that encodes token ids; `pooled` gives the image vectors (M, P) of its training features.

    `mirrored` gives the vectors of the mirror images, if any. An image embedding is then the normalised sum of the
    embeddings of the image and its mirror image.
    """

    listener: Listener
    pooled: Callable[[Tensor], Tensor]
    device: torch.device
    mirrored: Callable[[Tensor], Tensor] | None = None

    def embed(self, captions: JudgedCaptions, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.encode_text(captions), self.encode_image(rows)

    @torch.no_grad()
    def encode_text(self, captions: JudgedCaptions) -> Tensor:
        """Return text embeddings (N, D), encoding equal captions once.

        Embeddings of equal captions in two rows of a batch, or computed by another number of threads, may differ in
        the last digit. The captions would then not tie.
        """
        listener = self.listener.to(self.device).eval()
        distinct, inverse = torch.unique(captions.tokens, dim=0, return_inverse=True)
        embeddings = [_encode_tokens(listener, part.to(self.device)) for part in distinct.split(ENCODED_AT_ONCE)]
        return torch.cat(embeddings)[inverse.to(self.device)]

    @torch.no_grad()
    def encode_image(self, rows: Tensor) -> Tensor:
        listener = self.listener.to(self.device).eval()
        views = [self.pooled] if self.mirrored is None else [self.pooled, self.mirrored]
        embeddings = [
            torch.cat([listener.encode_image(view(part).to(self.device)) for part in rows.split(ENCODED_AT_ONCE)])
            for view in views
        ]
        return embeddings[0] if len(embeddings) == 1 else F.normalize(embeddings[0] + embeddings[1], dim=-1)


@dataclass(frozen=True)
class TextJudge:
    """Dual encoder that encodes text; `pooled` gives the image vectors (M, D) of its image tower."""

    encoder: DualEncoder
    pooled: Callable[[Tensor], Tensor]
    device: torch.device

    def embed(self, captions: JudgedCaptions, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.encode_text(captions), self.encode_image(rows)

    @torch.no_grad()
    def encode_text(self, captions: JudgedCaptions) -> Tensor:
        encoder, distinct = self.encoder.to(self.device).eval(), sorted(set(captions.texts))
        parts = [distinct[first : first + ENCODED_AT_ONCE] for first in range(0, len(distinct), ENCODED_AT_ONCE)]
        embeddings = torch.cat([encoder.encode_text(part) for part in parts])
        index = {text: i for i, text in enumerate(distinct)}
        return embeddings[torch.tensor([index[text] for text in captions.texts], device=self.device)]

    @torch.no_grad()
    def encode_image(self, rows: Tensor) -> Tensor:
        return self.encoder.encode_image(self.pooled(rows).to(self.device))


def make_judge(agent: Listener | DualEncoder, store: FeatureStore, device: torch.device) -> ListenerJudge | TextJudge:
    """Return a judge that wraps `agent` and reads image vectors from `store`."""

    def read_pooled(rows: Tensor) -> Tensor:
        return torch.from_numpy(store.pooled(rows.numpy()))

    if isinstance(agent, DualEncoder):
        return TextJudge(agent, read_pooled, device)
    read_mirrored = (lambda rows: read_pooled(rows + len(store))) if store.mirrored else None
    return ListenerJudge(agent, read_pooled, device, read_mirrored)


def judge_retrieval(
    judge: Judge,
    captions: JudgedCaptions,
    images: Tensor,
    gallery: Tensor,
    distractors: Mapping[str, Tensor] | None = None,
) -> RetrievalResult:
    """Rank captions against the `gallery` (M,) of images; caption i belongs to the image `gallery[images[i]]`.

    In image-to-text retrieval the best-ranked caption of an image counts (the protocol of PSST and VSE++ for human
    captions). `distractors` are smaller galleries by name: indices (M, K) of the other images for each image, padded
    with −1. Raises UserError for an image without a caption, and for embeddings that are not finite.
    """
    return rank_embeddings(*judge.embed(captions, gallery), images, distractors)


def rank_embeddings(
    texts: Tensor, image_vectors: Tensor, images: Tensor, distractors: Mapping[str, Tensor] | None = None
) -> RetrievalResult:
    """Rank captions with embeddings (N, D) against images with embeddings (M, D), as `judge_retrieval` does."""
    among = {name: rows.to(texts.device) for name, rows in (distractors or {}).items()}
    ranking = rank_gallery(texts, image_vectors, images.to(texts.device), among=among, shown=TOP_IMAGES)
    sizes = {name: 1 + (rows >= 0).sum(1)[images] for name, rows in (distractors or {}).items()}
    ranks = {name: gallery_ranks.cpu() for name, gallery_ranks in ranking.among.items()}
    return RetrievalResult(
        ranking.by_caption.cpu(),
        ranking.by_image.cpu(),
        ranking.first.cpu(),
        compute_recall(ranking.by_caption),
        compute_recall(ranking.by_image),
        {name: compute_recall_among(ranks[name], sizes[name]) for name in ranks},
        {name: gallery_ranks.where(sizes[name] > 1, 0) for name, gallery_ranks in ranks.items()},
    )


def _encode_tokens(listener: Listener, tokens: Tensor) -> Tensor:
    no_image = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device)
    return listener.encode_text(Message(tokens, make_caption_mask(tokens), no_image, samples=1))


@dataclass(frozen=True)
class JudgeSources:
    """Inputs for building a judge.

    `model` is the folder of the evaluated speaker's model; `root` holds the pretrained models and the features.
    """

    model: Path
    root: Path
    prepared: PreparedData
    device: torch.device


@dataclass(frozen=True)
class JudgeKind:
    """Kind of judge: its name in `evaluate.judges`, and its constructor.

    `needs_facts`: the judge exists for drawn data sets only.
    """

    name: str
    build: Callable[[JudgeSources], Judge]
    needs_facts: bool = False


def load_judge(folder: Path, root: Path, prepared: PreparedData, device: torch.device) -> ListenerJudge | TextJudge:
    """Return the judge whose weights are in `folder`, with the features below `root` that it encodes.

    Raises UserError as `load_agent` and `open_features` do, and where the agent is no `Listener` or `DualEncoder`.
    """
    from pipeline.data.image_features import open_features  # imports PyArrow, which captioning does not need

    agent = load_agent(folder / "weights.safetensors", "listener")
    if isinstance(agent, Listener | DualEncoder):
        return make_judge(agent, open_features(root, agent.features, prepared), device)
    raise UserError(
        f"{folder}: expected a Listener or a DualEncoder as judge, found a {type(agent).__name__}; name another judge"
    )


def open_own_judge(sources: JudgeSources) -> ListenerJudge | TextJudge:
    """Return the judge of the listener that was trained with the speaker."""
    return load_judge(sources.model, sources.root, sources.prepared, sources.device)


def open_adapted_judge(sources: JudgeSources) -> ListenerJudge | TextJudge:
    """Return the judge of the pretrained listener that was adapted to the speaker."""
    return load_judge(sources.model / "adapted", sources.root, sources.prepared, sources.device)


def open_pretrained_judge(role: str, sources: JudgeSources) -> ListenerJudge | TextJudge:
    """Return the judge of the pretrained listener or dual encoder `pretrain.<role>`."""
    return load_judge(sources.root / "pretrained" / role, sources.root, sources.prepared, sources.device)


JUDGES = (JudgeKind(OWN, open_own_judge), JudgeKind(ADAPTED, open_adapted_judge))


def build_judges(judges: Mapping[str, str], kinds: Sequence[JudgeKind], sources: JudgeSources) -> dict[str, Judge]:
    """Build the judges of `evaluate.judges` by name; a value that is no name in `kinds` is a pretrained role."""
    builders = {kind.name: kind.build for kind in kinds}
    return {
        name: builders[kind_or_role](sources)
        if kind_or_role in builders
        else open_pretrained_judge(kind_or_role, sources)
        for name, kind_or_role in judges.items()
    }
