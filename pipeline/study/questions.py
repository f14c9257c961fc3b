"""Questions of a study: pairs of similar test images with each method's captions, and easy rounds for qualification.

The design follows Vered et al. 2019, Section 7.3 and Appendix B. For methods of similar CIDEr, raters choose
which of two similar images a caption describes (Table 4). For methods of similar recall, raters choose the better
written of two captions of an image (Table 5). The paper took its 300 pairs from Luo et al. 2018. Here pairs are mined:
each is an image and its nearest image that is in no earlier pair. Nearness is the cosine of mean-centred pooled
features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from pipeline.analysis.caption_files import read_texts
from pipeline.analysis.judge_titles import Keys
from pipeline.analysis.results import CIDER, Point, Results, Run
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.metrics.retrieval import find_similar_distractors
from pipeline.study.design import HUMAN, NATURALNESS, QUALIFICATION, RETRIEVAL, StudyQuestion

PAPER_METHODS = ("luo", "st_multinomial", "psst_multinomial")  # methods of the paper's tables


def choose_methods(results: Results, selection: Sequence[str], control: str) -> list[str]:
    """Return the methods to compare: `selection`, else the paper's methods that were run, else all that were run.

    Without `selection`, the control and `pretrained` are left out. Raises UserError for a method that was not run, for
    a method named HUMAN, and for fewer than two methods.
    """
    trained = [method for method in results.methods if method not in (control, "pretrained")]
    if unknown := [method for method in selection if method not in results.methods]:
        expected = f"expected one of {', '.join(results.methods)}"
        raise UserError(f"--methods {unknown[0]}: no captions of this method; {expected}")
    methods = list(dict.fromkeys(selection)) or [method for method in PAPER_METHODS if method in trained] or trained
    if HUMAN in methods:
        raise UserError(f"a method is named {HUMAN}, the name of the annotators' captions: rename it in params.yaml")
    if len(methods) < 2:
        found = ", ".join(methods) or "none"
        raise UserError(
            f"expected two or more methods to compare, found {found}; run others, or name others by --methods"
        )
    return methods


def match_runs(
    results: Results, methods: Sequence[str], keys: Keys, target: float | None
) -> tuple[dict[str, Run], float]:
    """Return each method's run whose setting has the validation metric at `keys` nearest to `target`, and the target.

    With `target` None, the target is the highest value that all methods reach. Seeds are averaged, and the first seed's
    run is returned. Raises UserError for a method without this metric.
    """
    measured: dict[str, list[tuple[float, Point]]] = {
        method: [
            (value, point) for point in results.get_points(method) if (value := point.mean("val", *keys)) is not None
        ]
        for method in methods
    }
    if unmeasured := [method for method, values in measured.items() if not values]:
        raise UserError(
            f"{unmeasured[0]}: no validation {' '.join(keys)}; add val to evaluate.splits and evaluate the method again"
        )
    level = min(max(value for value, _ in values) for values in measured.values()) if target is None else target
    nearest = {method: min(values, key=lambda pair: abs(pair[0] - level))[1] for method, values in measured.items()}
    return {method: point.runs[0] for method, point in nearest.items()}, level


def match_runs_by_cider(results: Results, methods: Sequence[str], target: float | None) -> tuple[dict[str, Run], float]:
    """Return each method's run of similar CIDEr, and this CIDEr, for the retrieval task; see `match_runs`."""
    return match_runs(results, methods, CIDER, target)


def match_runs_by_score(results: Results, methods: Sequence[str], target: float | None) -> tuple[dict[str, Run], float]:
    """Return each method's run of similar score by the first judge, and this score, for the naturalness task."""
    return match_runs(results, methods, results.score_keys(results.first_judge.name), target)


def select_similar_pairs(pooled: np.ndarray, count: int, seed: int) -> list[tuple[int, int]]:
    """Return at most `count` pairs (target, distractor) of rows of `pooled` (M, P); each row is in at most one pair.

    Targets are drawn at random; each distractor is the most similar image that is in no earlier pair.
    """
    # earlier pairs hold at most 2 · `count` − 2 images, so at least one of these neighbours is in no pair
    neighbours = min(len(pooled), 2 * count) - 1
    order = find_similar_distractors(torch.from_numpy(pooled), neighbours)
    unpaired, pairs = set(range(len(pooled))), list[tuple[int, int]]()
    for target in np.random.default_rng([seed, len(pooled)]).permutation(len(pooled)).tolist():
        if target not in unpaired or len(unpaired) < 2 or len(pairs) == count:
            continue
        distractor = next(other for other in order[target].tolist() if other in unpaired)
        unpaired -= {target, distractor}
        pairs.append((target, distractor))
    return pairs


def generate_retrieval_questions(
    runs: Mapping[str, Run],
    prepared: PreparedData,
    pairs: Sequence[tuple[int, int]],
    files: Mapping[int, str],
    seed: int,
) -> Iterator[StudyQuestion]:
    """Yield a retrieval question for every pair of rows and method, and for one human caption of each target.

    Equal captions of different methods give one question. `files` are the images' names in the pages, by row.
    """
    captions_by_method = _read_captions(runs, [target for target, _ in pairs])
    rng = np.random.default_rng([seed, 1])
    for target, distractor in pairs:
        # written like generated captions: no capitals, no full stop
        human = [" ".join(words) for words in prepared.words(target)]
        captions = {method: texts[target] for method, texts in captions_by_method.items()}
        captions |= {HUMAN: human[rng.integers(len(human))]} if human else {}
        for caption, methods in _group_methods(captions).items():
            yield StudyQuestion("", RETRIEVAL, caption, (files[target], files[distractor]), target, methods)


def generate_naturalness_questions(
    runs: Mapping[str, Run], reference: str, images: Sequence[int], files: Mapping[int, str]
) -> Iterator[StudyQuestion]:
    """Yield a question per image and method that compares its caption with the reference's, unless they are equal.

    Equal captions of different methods give one question. `files` are the images' names in the pages, by row.
    """
    captions_by_method = _read_captions(runs, images)
    for image in images:
        captions = {method: texts[image] for method, texts in captions_by_method.items()}
        reference_caption = captions.pop(reference)
        for caption, methods in _group_methods(captions).items():
            if caption != reference_caption:
                yield StudyQuestion("", NATURALNESS, files[image], (caption, reference_caption), image, methods)


def generate_easy_rounds(prepared: PreparedData, seed: int) -> Iterator[tuple[int, int, str, str]]:
    """Yield the qualification's rounds: a training image, another image, a human caption of the first, a bad caption.

    The human caption is the image's longest. The bad caption has the same words in random order, with the last two
    repeated. Raises UserError for fewer than 2 · QUALIFICATION training images.
    """
    rng = np.random.default_rng([seed, 2])
    rows = rng.permutation(prepared.rows("train"))[: 2 * QUALIFICATION].tolist()
    if len(rows) < 2 * QUALIFICATION:
        raise UserError(
            f"{prepared.folder}: expected {2 * QUALIFICATION} or more training images for the qualification, found "
            f"{len(rows)}; prepare more images"
        )
    for image, other in zip(rows[:QUALIFICATION], rows[QUALIFICATION:], strict=True):
        words = max(prepared.words(image), key=len)
        shuffled = [words[n] for n in rng.permutation(len(words)).tolist()]
        yield image, other, " ".join(words), " ".join([*shuffled, *shuffled[-2:]])


def _read_captions(runs: Mapping[str, Run], images: Sequence[int]) -> dict[str, dict[int, str]]:
    """Return each method's captions of these test images, by image. Raises UserError where a caption is missing."""
    return {method: dict(zip(images, read_texts(run, images), strict=True)) for method, run in runs.items()}


def _group_methods(captions: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the methods that generated each distinct caption, by caption."""
    methods: dict[str, tuple[str, ...]] = {}
    for method, caption in captions.items():
        methods[caption] = (*methods.get(caption, ()), method)
    return methods
