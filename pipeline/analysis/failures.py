"""Detection of failed training: captions that are all alike, and listeners whose retrieval is at chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

from pipeline.analysis.judge_titles import make_human_recall_keys, make_recall_keys
from pipeline.analysis.results import Point, Results
from pipeline.analysis.selection import Choice

# largest share of distinct captions that counts as collapse; a single distinct caption always does
MAX_COLLAPSE_SHARE = 0.02
ADVICE = "More photos, longer trainings (optimisation.min_steps) or a pretrained network (features.network) may help."


def list_training_failures(results: Results, choices: Sequence[Choice]) -> list[str]:
    """Return one line per kind of failure on the test split at the selected settings; empty if there is none.

    Random ranks among n images have the mean (n + 1) / 2. A listener is at chance if its mean rank is less than two
    standard errors below that mean.
    """
    points = [choice.point for choice in choices if choice.point]
    collapsed_methods = [point.method for point in points if _has_equal_captions(point)]
    failures = []
    if collapsed_methods:
        failures.append(f"Captions of {', '.join(collapsed_methods)} hardly differ between images. {ADVICE}")
    judges_at_chance = []
    for judge in results.judges:
        if (rank := _find_rank_at_chance(points, make_human_recall_keys(judge, "mean_rank"))) is not None:
            judges_at_chance.append(f"{judge} (mean rank {rank:.1f})")
    if judges_at_chance:
        images = max(results.values("images"))
        failures.append(
            f"Given human captions, these listeners rank the {images:,.0f} test images not clearly better than chance, "
            f"so that their recall is no evidence: {'; '.join(judges_at_chance)}. {ADVICE}"
        )
    methods_at_chance = [
        f"{point.method} ({', '.join(judges)})"
        for point in points
        if point.method not in collapsed_methods
        and (
            judges := [
                j for j in results.judges if _find_rank_at_chance([point], make_recall_keys(j, "mean_rank")) is not None
            ]
        )
    ]
    if methods_at_chance:
        failures.append(
            "Given these captions, listeners rank the images not clearly better than chance: "
            f"{'; '.join(methods_at_chance)}."
        )
    return failures


def _has_equal_captions(point: Point) -> bool:
    share, images = point.mean("test", "diversity", "distinct_captions"), point.mean("test", "images")
    return (
        share is not None
        and images is not None
        and images > 1
        and share * images <= max(1.0, MAX_COLLAPSE_SHARE * images) + 1e-6
    )


def _find_rank_at_chance(points: Iterable[Point], keys: tuple[str, ...]) -> float | None:
    """Return the best mean rank of the points if even that is at chance, else None."""
    ranks: list[tuple[float, float]] = []
    for point in points:
        mean_rank, count = point.mean("test", *keys), point.mean("test", "images")
        if mean_rank is not None and count:
            ranks.append((mean_rank, count))
    if not ranks:
        return None
    rank, images = min(ranks)
    error = sqrt((images**2 - 1) / 12 / images)  # standard error of the mean of uniform ranks 1 … n
    return rank if rank > (images + 1) / 2 - 2 * error else None
