"""What raters are asked: pairs of similar test images with each method's captions, and easy rounds that qualify.

Vered et al. 2019, Section 7.3 and Appendix B: methods of similar CIDEr are compared by which of two similar images a
caption is of (Table 4), methods of similar recall by which of two captions of an image is better written (Table 5).
The paper took its 300 pairs from Luo et al. 2018; here they are mined: each is an image and the nearest one that is in
no other pair, by the cosine of pooled features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from pipeline.analysis.captions import read_captions
from pipeline.analysis.judges import Keys
from pipeline.analysis.results import CIDER, Point, Results, Run
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.metrics.retrieval import similar_distractors
from pipeline.study.design import NATURALNESS, PEOPLE, QUALIFICATION, RETRIEVAL, Question

CONTESTANTS = ("luo", "st_multinomial", "psst_multinomial")  # of the paper's tables


def contestants(results: Results, wanted: Sequence[str], control: str) -> list[str]:
    """The methods to compare: `wanted`, else those of the paper that were run, else all but the control.

    Raises UserError for a method that was not run, and where there are fewer than two.
    """
    run = [method for method in results.methods if method not in (control, "pretrained")]
    if unknown := [method for method in wanted if method not in results.methods]:
        raise UserError(f"--methods {unknown[0]}: no captions of it; there are {', '.join(results.methods)}")
    found = list(wanted) or [method for method in CONTESTANTS if method in run] or run
    if len(found) < 2:
        raise UserError(f"a comparison needs two methods, there are captions of {', '.join(found) or 'none'}")
    return found


def alike(results: Results, methods: Sequence[str], keys: Keys, at: float | None) -> tuple[dict[str, Run], float]:
    """Of each method the run whose setting has the validation number at `keys` nearest to `at`, and that value.

    `at` None: the highest value that all methods reach. Seeds are averaged, and the first one is taken.
    """
    measured: dict[str, list[tuple[float, Point]]] = {
        method: [(value, point) for point in results.of(method) if (value := point.mean("val", *keys)) is not None]
        for method in methods
    }
    if lacking := [method for method, values in measured.items() if not values]:
        raise UserError(f"{lacking[0]}: no validation {' '.join(keys)}; evaluate it on the split val")
    level = min(max(value for value, _ in values) for values in measured.values()) if at is None else at
    nearest = {method: min(values, key=lambda found: abs(found[0] - level))[1] for method, values in measured.items()}
    return {method: point.runs[0] for method, point in nearest.items()}, level


def by_cider(results: Results, methods: Sequence[str], at: float | None) -> tuple[dict[str, Run], float]:
    """Runs of similar naturalness, for the retrieval task."""
    return alike(results, methods, CIDER, at)


def by_score(results: Results, methods: Sequence[str], at: float | None) -> tuple[dict[str, Run], float]:
    """Runs of similar discriminability by the first judge, for the naturalness task."""
    return alike(results, methods, results.by(results.first.name), at)


def mined(pooled: np.ndarray, count: int, seed: int) -> list[tuple[int, int]]:
    """At most `count` pairs (target, distractor) of places in `pooled` (M, P), no place in two.

    Targets are drawn at random; each one's distractor is the most similar image that is still free.
    """
    near = min(len(pooled), 2 * count) - 1  # among so many one is always free: fewer are in other pairs
    order = similar_distractors(torch.from_numpy(pooled), near)
    free, pairs = set(range(len(pooled))), list[tuple[int, int]]()
    for target in np.random.default_rng([seed, len(pooled)]).permutation(len(pooled)).tolist():
        if target not in free or len(free) < 2 or len(pairs) == count:
            continue
        distractor = next(other for other in order[target].tolist() if other in free)
        free -= {target, distractor}
        pairs.append((target, distractor))
    return pairs


def retrieval_questions(
    runs: Mapping[str, Run], prepared: Prepared, pairs: Sequence[tuple[int, int]], files: Mapping[int, str], seed: int
) -> Iterator[Question]:
    """Which of two images a caption is of, for every pair of rows and method, and for one caption by a person.

    What several methods say is asked once. `files`: what the pages call the images.
    """
    said = _said(runs, [target for target, _ in pairs])
    draw = np.random.default_rng([seed, 1])
    for target, distractor in pairs:
        people = [" ".join(words) for words in prepared.words(target)]  # as speakers write: no capitals, no full stop
        captions = {method: texts[target] for method, texts in said.items()}
        captions |= {PEOPLE: people[draw.integers(len(people))]} if people else {}
        for caption, methods in _together(captions).items():
            yield Question("", RETRIEVAL, caption, (files[target], files[distractor]), target, methods)


def naturalness_questions(
    runs: Mapping[str, Run], reference: str, images: Sequence[int], files: Mapping[int, str]
) -> Iterator[Question]:
    """Which of two captions of an image is better written, a method's or the reference's; not where they are equal."""
    said = _said(runs, images)
    for image in images:
        captions = {method: texts[image] for method, texts in said.items()}
        base = captions.pop(reference)
        for caption, methods in _together(captions).items():
            if caption != base:
                yield Question("", NATURALNESS, files[image], (caption, base), image, methods)


def easy_rounds(prepared: Prepared, seed: int) -> Iterator[tuple[int, int, str, str]]:
    """Of the qualification: a training image, another one, a caption that a person wrote, and its words in disorder.

    Raises UserError where there are too few training images with captions.
    """
    draw = np.random.default_rng([seed, 2])
    rows = draw.permutation(prepared.rows("train"))[: 2 * QUALIFICATION].tolist()
    if len(rows) < 2 * QUALIFICATION:
        raise UserError(f"{prepared.folder}: the qualification needs {2 * QUALIFICATION} training images with captions")
    for image, other in zip(rows[:QUALIFICATION], rows[QUALIFICATION:], strict=True):
        words = max(prepared.words(image), key=len)
        broken = [words[n] for n in draw.permutation(len(words)).tolist()]
        yield image, other, " ".join(words), " ".join([*broken, *broken[-2:]])


def _said(runs: Mapping[str, Run], images: Sequence[int]) -> dict[str, dict[int, str]]:
    """Of each method its captions of these test images, by image."""
    rows = read_captions(list(runs.values()), images, ["caption"])
    said = {}
    for (method, run), found in zip(runs.items(), rows, strict=True):
        missing = next((image for image in images if image not in found), None)
        if missing is not None:
            raise UserError(f"{run.captions}: no caption of image {missing} by {method}; run its evaluation again.")
        said[method] = {image: found[image]["caption"] for image in images}
    return said


def _together(captions: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Who says each of the different captions."""
    methods: dict[str, tuple[str, ...]] = {}
    for method, caption in captions.items():
        methods[caption] = (*methods.get(caption, ()), method)
    return methods
