"""Examples of reward hacking: captions that improve the rewarding retriever's rank of an image and worsen a judge's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log

from pipeline.analysis.caption_files import read_captions
from pipeline.analysis.results import Results
from pipeline.analysis.selection import Choice
from pipeline.report.gallery import GalleryPicture, select_captions_of_methods

MAX_EXAMPLES = 6

RewardHackingExample = tuple[int, str]  # row of an image, and the method of its caption


def select_reward_hacking_examples(
    results: Results, choices: Sequence[Choice], methods: Iterable[str], retriever: str, control: str
) -> list[RewardHackingExample]:
    """Select captions that improve an image's rank by `retriever` and worsen it by the last judge.

    The reference is the control's caption. A caption's value is the smaller of the two log-ratios of ranks. Each image
    has one caption, by one of `methods` at its chosen setting and first seed. At most MAX_EXAMPLES captions are
    returned, the largest value first. Returns [] where the control has no chosen setting, and where `retriever` is no
    judge or the last judge. Raises UserError as `read_captions` does.
    """
    judge = results.first_and_last_judge[-1]
    first_runs = {choice.method: choice.point.runs[0] for choice in choices if choice.point}
    compared_runs = [first_runs[method] for method in methods if method in first_runs]
    if control not in first_runs or retriever not in results.judges or judge == retriever:
        return []
    runs = [first_runs[control], *compared_runs]
    columns = [(run.column("rank", retriever), run.column("rank", judge)) for run in runs]
    captions = read_captions(runs, None, sorted({name for pair in columns for name in pair}))

    def get_ranks(n: int, image: int) -> tuple[int | None, int | None]:
        row = captions[n].get(image) or {}
        return row.get(columns[n][0]), row.get(columns[n][1])

    best_by_image: dict[int, tuple[float, str]] = {}
    for n, run in enumerate(compared_runs, 1):
        for image in captions[n]:
            change = _compare_ranks(get_ranks(0, image), get_ranks(n, image))
            if change > best_by_image.get(image, (0.0, ""))[0]:
                best_by_image[image] = change, run.method
    best = sorted(best_by_image, key=lambda image: (-best_by_image[image][0], image))[:MAX_EXAMPLES]
    return [(image, best_by_image[image][1]) for image in best]


def build_reward_hacking_pictures(
    examples: Sequence[RewardHackingExample], control: str, load_pictures: Callable[[list[int]], list[GalleryPicture]]
) -> list[GalleryPicture]:
    """Return the pictures of `examples`, each with only the control's chosen caption and the selected caption."""
    by_row = {picture.row: picture for picture in load_pictures([row for row, _ in examples])} if examples else {}
    return [select_captions_of_methods(by_row[row], (control, method)) for row, method in examples]


def _compare_ranks(control_ranks: tuple[int | None, int | None], method_ranks: tuple[int | None, int | None]) -> float:
    """Return the smaller of the log ratios by which the retriever's rank improves and the judge's rank worsens.

    `control_ranks` and `method_ranks` are ranks by the retriever and by the judge; 1 is the best rank. Returns 0 where
    a rank is missing.
    """
    (retriever_before, judge_before), (retriever_after, judge_after) = control_ranks, method_ranks
    if retriever_before is None or judge_before is None or retriever_after is None or judge_after is None:
        return 0.0
    return min(log(retriever_before / retriever_after), log(judge_after / judge_before))
