"""Results that say that a training failed: captions that are all alike, and listeners that find images by chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

from pipeline.analysis.judges import human_by, recall_by
from pipeline.analysis.results import Point, Results
from pipeline.analysis.selection import Choice

ALIKE = 0.02  # share of distinct captions up to which they are called alike; one caption of all always is
MEND = "More photos, longer trainings (optimisation.min_steps) or a pretrained network (features.network) may help."


def failures(results: Results, choices: Sequence[Choice]) -> list[str]:
    """A line for what failed on the test split at the chosen settings; none where nothing did.

    A listener is not clearly better than chance where its mean rank is less than two standard errors below that of
    ranks at random, (n + 1) / 2 of n images.
    """
    points = [choice.point for choice in choices if choice.point]
    alike = [point.method for point in points if _alike(point)]
    found = [f"Nearly all captions of {', '.join(alike)} are the same, whatever the image. {MEND}"] if alike else []
    deaf = []
    for judge in results.judges:
        if (rank := _at_chance(points, human_by(judge, "mean_rank"))) is not None:
            deaf.append(f"{judge} (mean rank {rank:.1f})")
    if deaf:
        images = max(results.values("images"))
        found.append(
            f"By human captions these listeners find the {images:,.0f} test images not clearly better than chance, so "
            f"that their recall says little: {'; '.join(deaf)}. {MEND}"
        )
    lost = [
        f"{point.method} ({', '.join(judges)})"
        for point in points
        if point.method not in alike
        and (judges := [j for j in results.judges if _at_chance([point], recall_by(j, "mean_rank")) is not None])
    ]
    if lost:
        found.append(f"By these captions images are found not clearly better than chance: {'; '.join(lost)}.")
    return found


def _alike(point: Point) -> bool:
    share, images = point.mean("test", "diversity", "distinct_captions"), point.mean("test", "images")
    return share is not None and images is not None and images > 1 and share * images <= max(1.0, ALIKE * images) + 1e-6


def _at_chance(points: Iterable[Point], keys: tuple[str, ...]) -> float | None:
    """The best of the points' mean ranks if not even that is clearly better than chance."""
    known = [
        (rank, n) for p in points if (rank := p.mean("test", *keys)) is not None and (n := p.mean("test", "images"))
    ]
    if not known:
        return None
    rank, images = min(known)
    error = sqrt((images**2 - 1) / 12 / images)  # of the mean of ranks that are uniform on 1 … n
    return rank if rank > (images + 1) / 2 - 2 * error else None
