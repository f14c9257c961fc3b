"""Cheap validation metrics computed during training."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from pipeline.channels.hard import Greedy
from pipeline.composition.method import Method
from pipeline.data.batches import iterate_sequentially
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.evaluation.generate import generate_captions
from pipeline.evaluation.judges import ENCODED_AT_ONCE, JudgedCaptions, ListenerJudge, judge_retrieval
from pipeline.metrics.cider import CiderD
from pipeline.metrics.gallery_names import HARD_GALLERY
from pipeline.metrics.retrieval import compute_recall, rank_gallery
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.models.retriever import Retriever
from pipeline.types import Batch, Message, make_caption_mask

BATCH = 256  # images
MIN_COUNT = 8  # with fewer captions or images, equal captions or embeddings are no sign of collapse
EQUAL = 1e-4  # largest coordinate difference of unit vectors that count as equal


@dataclass(frozen=True)
class Validation:
    """Validation by greedy captions of `batches()`, a whole split in order; without a speaker, by human captions.

    For a speaker it returns CIDEr-D. For a listener it returns recall@1, @5 and @10 from text to image, in percent.
    With `hard_gallery` (M, K), K other images for each image of the split, padded with −1, it adds the listener's
    hard_recall@1. With a speaker, each retriever of `validation_judges` adds NAME_recall@1, @5 and @10. A listener
    alone adds the recalls from image to text and `rsum`, the sum of all six (VSE++'s criterion).
    """

    speaker: Decoder | None
    listener: Listener | None
    cider: CiderD | None
    batches: Callable[[], Iterable[Batch]]
    device: torch.device
    unk: int  # token that is never generated; −1: none
    dtype: torch.dtype | None = None  # type of large matrix products in generation; None: the weights' type
    validation_judges: Mapping[str, Retriever] = field(default_factory=dict)
    hard_gallery: torch.Tensor | None = None

    def __call__(self) -> dict[str, float]:
        if self.speaker is None:
            pairs = [(batch.captions, batch.pooled) for batch in self.batches()]
            human, pooled = (torch.cat(parts) for parts in zip(*pairs, strict=True))
            return self._compute_recall(human, pooled, both_directions=True)
        generated = generate_captions(self.speaker, self.batches(), Greedy(), self.device, self.unk, self.dtype)
        assert self.cider is not None
        tokens = generated.tokens.flatten(0, 1)
        _warn_of_collapse(tokens)
        cider = self.cider(tokens.to(self.device), generated.images.to(self.device))
        metrics = {"cider": float(cider.mean())}
        for prefix, retriever in self.validation_judges.items():
            recalls = self._compute_retriever_recall(retriever, tokens, generated.images)
            metrics |= {f"{prefix}_{name}": value for name, value in recalls.items()}
        if self.listener is None:
            return metrics
        return metrics | self._compute_recall(tokens, generated.pooled, both_directions=False)

    def _compute_retriever_recall(
        self, retriever: Retriever, tokens: torch.Tensor, rows: torch.Tensor
    ) -> dict[str, float]:
        images = torch.arange(len(tokens))
        message = Message(tokens.to(self.device), make_caption_mask(tokens).to(self.device), images.to(self.device), 1)
        vectors = retriever.vectors[rows.to(self.device)]
        ranking = rank_gallery(retriever.encode_text(message), vectors, images.to(self.device))
        recalls = compute_recall(ranking.by_caption.cpu())
        return {f"recall@{k}": recalls[f"R@{k}"] for k in (1, 5, 10)}

    def _compute_recall(self, tokens: torch.Tensor, pooled: torch.Tensor, both_directions: bool) -> dict[str, float]:
        assert self.listener is not None
        images = torch.arange(len(tokens))
        judge = ListenerJudge(self.listener, lambda rows: pooled[rows], self.device)
        galleries = {} if self.hard_gallery is None else {HARD_GALLERY: self.hard_gallery}
        retrieval = judge_retrieval(judge, JudgedCaptions(tokens, ()), images, images, galleries)
        _warn_of_constant_listener(judge, tokens)
        text_to_image = {f"recall@{k}": retrieval.text_to_image[f"R@{k}"] for k in (1, 5, 10)}
        hard_recalls = retrieval.galleries.get(HARD_GALLERY, {})
        hard = {"hard_recall@1": hard_recalls["R@1"]} if "R@1" in hard_recalls else {}
        if not both_directions:
            return text_to_image | hard
        image_to_text = {f"recall@{k}_of_captions": retrieval.image_to_text[f"R@{k}"] for k in (1, 5, 10)}
        rsum = sum(text_to_image.values()) + sum(image_to_text.values())
        return text_to_image | hard | image_to_text | {"rsum": rsum}


def build_validation(
    method: Method,
    scorer: CiderD | None,
    prepared: PreparedData,
    store: FeatureStore,
    device: torch.device,
    hard_gallery: torch.Tensor | None = None,
) -> Validation:
    """Build the validation of the method's agents on the validation split; `scorer` scores the speaker's captions.

    `hard_gallery` holds the split's hard galleries. With SAYWHICH_VALIDATION=bfloat16, captions are generated with
    matrix products in bfloat16. Raises UserError for any value of the variable but float32 and bfloat16.
    """
    precision, rows = os.environ.get("SAYWHICH_VALIDATION", "float32"), prepared.rows("val")
    if precision not in ("float32", "bfloat16"):
        raise UserError(f"SAYWHICH_VALIDATION={precision}: expected float32 or bfloat16; set it to one of them")
    listener = method.agents.get("listener")
    assert listener is None or isinstance(listener, Listener)
    return Validation(
        method.speaker,
        listener,
        scorer,
        lambda: iterate_sequentially(prepared, store, rows, BATCH),
        device,
        prepared.vocabulary.unk,
        torch.bfloat16 if precision == "bfloat16" else None,
        method.validation_judges,
        hard_gallery,
    )


def _warn_of_collapse(tokens: torch.Tensor) -> None:
    """Print a warning if all captions (N, T) are the same, or if most of them do not end.

    Fewer than MIN_COUNT captions give no warning.
    """
    if len(tokens) < MIN_COUNT:
        return
    if not (tokens != tokens[0]).any():
        _warn(
            f"the speaker gives the same caption to all {len(tokens)} images of the validation split: it has collapsed"
            "; if this stays so, lower its learning rate"
        )
    unfinished = int((tokens > 0).all(1).sum())
    if unfinished > len(tokens) // 2:
        _warn(
            f"{unfinished} of {len(tokens)} captions of the validation split do not end before {tokens.shape[1]} words"
            "; if this stays so, train longer, or raise prepare.max_words"
        )


def _warn_of_constant_listener(judge: ListenerJudge, tokens: torch.Tensor) -> None:
    """Print a warning if the listener's embeddings of different captions, or of images, are the same.

    At most ENCODED_AT_ONCE of each are compared, which bounds the work. Fewer than MIN_COUNT give no warning.
    """
    distinct = torch.unique(tokens, dim=0)[:ENCODED_AT_ONCE]
    for vectors, inputs in (
        (judge.encode_text(JudgedCaptions(distinct, ())), "captions"),
        (judge.encode_image(torch.arange(len(tokens))[:ENCODED_AT_ONCE]), "images"),
    ):
        if len(vectors) >= MIN_COUNT and bool((vectors - vectors[0]).abs().amax() < EQUAL):
            _warn(
                f"the listener gives all {len(vectors)} compared {inputs} of the validation split the same embedding: "
                "it has collapsed; if this stays so, lower its learning rate"
            )


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr, flush=True)
