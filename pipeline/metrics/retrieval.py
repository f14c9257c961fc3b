"""Retrieval metrics: ranks of the target in a gallery, and recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import UserError

BLOCK_SCORES = 2**22  # scores per block, 32 MiB in double precision


@dataclass(frozen=True)
class RetrievalRanks:
    """Ranks, 1 is best, of N captions and M images."""

    by_caption: Tensor  # (N,) int64: rank of each caption's image among all images
    by_image: Tensor  # (M,) int64: rank of each image's best caption among the captions of other images
    among: dict[str, Tensor]  # gallery → (N,) int64: rank of each caption's image in that gallery
    first: Tensor  # (N, min(shown, M)) int64: the images that score highest for each caption, best first


def rank_gallery(
    captions: Tensor,
    images: Tensor,
    owners: Tensor,
    *,
    among: Mapping[str, Tensor] | None = None,
    shown: int = 0,
) -> RetrievalRanks:
    """Rank images for captions and captions for images, by inner product, in one pass over their scores.

    `captions` (N, D), `images` (M, D), `owners` (N,) int64: the image of each caption; each image needs one. `among`:
    smaller galleries, (M, K) int64 distractors of each image, without the image itself, padded with −1. `shown`: the
    number of top-scoring images to return for each caption.

    A rank is 1 + the number of other candidates that score as much or more. A listener that gives every image the same
    score thus ranks the target last, not first. The best-ranked caption of an image counts; its other captions do not
    worsen the rank. Scores are summed in double precision and compared in single: equal vectors tie at every position,
    and the block size has no effect. Raises UserError for vectors that hold NaN or infinity, and for an image without a
    caption.
    """
    for name, vectors in (("captions", captions), ("images", images)):
        if not bool(torch.isfinite(vectors).all()):
            raise UserError(
                f"ranking: vectors of {name} hold NaN or infinity; the model diverged: lower its learning rate, and "
                "train it again"
            )
    missing = (torch.bincount(owners, minlength=len(images)) == 0).nonzero()
    if len(missing):
        raise UserError(f"ranking: image {int(missing[0])} of {len(images)} has no caption; give every image a caption")
    rows = max(1, BLOCK_SCORES // max(images.shape))  # constant memory besides the vectors
    parts = [slice(start, start + rows) for start in range(0, len(captions), rows)]
    # the threshold for other captions: the highest score of an image's own captions
    highest = torch.full((len(images),), -torch.inf, device=images.device)
    for part in parts:
        own = (captions[part].double() * images[owners[part]].double()).sum(1).float()
        highest.scatter_reduce_(0, owners[part], own, "amax")

    transposed = images.double().T
    # allocated before the first block, since allocation between blocks would fragment the memory
    by_caption = torch.empty_like(owners)
    by_image = torch.ones(len(images), dtype=torch.int64, device=images.device)
    by_gallery = {name: torch.empty_like(owners) for name in among or {}}
    first = owners.new_empty(len(captions), min(shown, len(images)))
    for part in parts:
        targets = owners[part]
        exact = captions[part].double() @ transposed
        first[part] = exact.topk(first.shape[1], dim=1).indices
        scores = exact.float()
        target_scores = scores.gather(1, targets[:, None])
        by_caption[part] = (scores >= target_scores).sum(1)  # counts the image itself
        for name, distractors in (among or {}).items():
            others = distractors[targets]
            no_worse = scores.gather(1, others.clamp(min=0)) >= target_scores
            by_gallery[name][part] = 1 + (no_worse & (others >= 0)).sum(1)
        by_image += (scores >= highest).sum(0)
        # own captions do not count
        by_image.index_add_(0, targets, (target_scores[:, 0] >= highest[targets]).long(), alpha=-1)
    return RetrievalRanks(by_caption, by_image, by_gallery, first)


def rank_captions_among(captions: Tensor, images: Tensor, owners: Tensor, distractors: Tensor) -> Tensor:
    """Return ranks (M,) int64 of each image's best caption among its distractors' captions, by inner product.

    `captions` (N, D), `images` (M, D), `owners` (N,) as for `rank_gallery`; `distractors` (M, K) int64: other images,
    padded with −1. Scores and ties count as in `rank_gallery`. Raises UserError for an image without a caption.
    """
    counts = torch.bincount(owners, minlength=len(images))
    if not bool(counts.all()):
        raise UserError(
            f"ranking: image {int(counts.argmin())} of {len(images)} has no caption; give every image a caption"
        )
    order, ends = owners.argsort(stable=True), counts.cumsum(0)
    slots = torch.arange(int(counts.max()), device=owners.device)
    valid = slots < counts[:, None]  # (M, C)
    own_captions = order[((ends - counts)[:, None] + slots).clamp(max=len(owners) - 1)]  # (M, C) of each image
    ranks = torch.empty_like(counts)
    for image, (image_vector, others) in enumerate(zip(images.double(), distractors, strict=True)):
        members = torch.cat([others.new_tensor([image]), others[others >= 0]])
        scores = (captions[own_captions[members]].double() @ image_vector).float()
        scores.masked_fill_(~valid[members], -torch.inf)
        ranks[image] = 1 + (scores[1:] >= scores[0].max()).sum()
    return ranks


def draw_distractors(image_count: int, count: int, seed: int) -> Tensor:
    """Return (M, count) int64 on the CPU: `count` distinct other images for each of M = `image_count` images.

    A Philox generator draws them. Raises UserError if there are fewer than `count` other images.
    """
    if count >= image_count:
        raise _explain_too_few_images(count, image_count)
    rng = np.random.Generator(np.random.Philox(key=[seed, count]))
    distractors = torch.empty(image_count, count, dtype=torch.int64)
    for image, others in enumerate(distractors.numpy()):
        others[:] = rng.choice(image_count - 1, count, replace=False)
        others += others >= image  # skip the image itself
    return distractors


def find_similar_distractors(features: Tensor, count: int) -> Tensor:
    """Return (M, count) int64: the `count` nearest other images of each image in feature space, nearest first.

    `features` (M, D); similarity is the cosine of mean-centred features. Raises UserError if there are fewer than
    `count` other images.
    """
    if count >= len(features):
        raise _explain_too_few_images(count, len(features))
    unit = torch.nn.functional.normalize(features.double() - features.double().mean(0), dim=1)
    block = min(512, max(1, BLOCK_SCORES // len(unit)))  # constant memory besides the vectors
    # allocated before the first block, since allocation between blocks would fragment the memory
    nearest = torch.empty(len(unit), count, dtype=torch.int64, device=unit.device)
    for start in range(0, len(unit), block):
        cosines = unit[start : start + block] @ unit.T
        cosines.diagonal(start)[: len(cosines)].fill_(-torch.inf)
        nearest[start : start + block] = cosines.topk(count, dim=1).indices
    return nearest


def find_nearest_images(vectors: Tensor, gallery: Tensor, ranks: Sequence[int]) -> Tensor:
    """Return (M, K) int64: nearest neighbours of the unit vectors `vectors` (M, D) among the rows `gallery` (N,).

    `ranks` (K,) selects the neighbours, 1 is the nearest. An image is not its own neighbour. Raises UserError if a rank
    exceeds the number of other images.
    """
    if max(ranks) >= len(gallery):
        raise UserError(
            f"retriever.hard_negative_ranks: expected ranks up to {len(gallery) - 1}, the number of other training "
            f"images; got {max(ranks)}; lower the largest rank"
        )
    gallery_vectors, columns = vectors[gallery], torch.tensor(ranks, device=vectors.device) - 1
    nearest = torch.empty(len(vectors), len(ranks), dtype=torch.int64, device=vectors.device)
    for rows in torch.arange(len(vectors), device=vectors.device).split(max(1, BLOCK_SCORES // len(gallery))):
        cosines = (vectors[rows] @ gallery_vectors.T).masked_fill_(rows.unsqueeze(1) == gallery, -torch.inf)
        nearest[rows] = gallery[cosines.topk(max(ranks), dim=1).indices[:, columns]]
    return nearest


def compute_recall(ranks: Tensor) -> dict[str, float]:
    """Return R@1, R@5, R@10 in percent, median and mean of `ranks` (N,), 1 is best. Raises UserError without ranks."""
    if not len(ranks):
        raise UserError("recall: expected one rank or more, got none; give the split at least one caption")
    values = ranks.double()
    shares = {f"R@{k}": 100 * float((ranks <= k).double().mean()) for k in (1, 5, 10)}
    return {**shares, "median_rank": float(values.quantile(0.5)), "mean_rank": float(values.mean())}


def compute_recall_among(ranks: Tensor, sizes: Tensor) -> dict[str, float]:
    """Return R@1, R@5, R@10 and mean 1 / rank (MRR), in percent, of `ranks` (N,) in galleries of `sizes` (N,) images.

    R@k counts the ranks in galleries of more than k images, where a miss is possible. MRR and `random`, the expected
    R@1 of random ranks, count the ranks in galleries of more than one image. A value without such a gallery is omitted.
    `alone`: the number of ranks in galleries of one image, which count nowhere else.
    """
    recalls = {}
    for k in (1, 5, 10):
        counted = ranks[sizes > k]
        if len(counted):
            recalls[f"R@{k}"] = 100 * float((counted <= k).double().mean())
    if "R@1" in recalls:
        recalls["MRR"] = 100 * float((1 / ranks[sizes > 1].double()).mean())
        recalls["random"] = 100 * float((1 / sizes[sizes > 1].double()).mean())
    return recalls | {"alone": float((sizes == 1).sum())}


def _explain_too_few_images(count: int, images: int) -> UserError:
    """Return the error for galleries of `count` distractors among `images` images."""
    return UserError(
        f"galleries: expected {count + 1} images or more for {count} distractors, got {images}; use a larger split"
    )
