"""The comparison of caption files as text for a terminal of 100 columns, and as values of JSON and rows of CSV."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.runtime.escaping import escape_csv_cell
from saywhich.judging.caption_comparison import OPEN, CaptionComparison, PairComparison, RewardGap, ScoreDifference
from saywhich.judging.caption_scores import HARD_RECALL, KINDS
from saywhich.judging.score_files import make_judgement_record
from saywhich.judging.score_tables import (
    LABEL,
    WIDTH,
    format_heading_lines,
    group_scores,
    shorten,
    show_interval,
    show_number,
)
from saywhich.outputs import open_output

COLUMNS = (
    "first",
    "second",
    "judge",
    "score",
    "first value",
    "second value",
    "difference",
    "low",
    "high",
    "p",
    "verdict",
)
NAME = 40  # characters of a file's name in a heading
MILLION = 10**6


def format_comparison_lines(comparison: CaptionComparison) -> Iterator[str]:
    """Yield the lines of a comparison: a table of differences for each pair, and the agreement of judges."""
    yield from format_heading_lines(comparison.judgement)
    for pair in comparison.pairs:
        tests = sum(each.p is not None for each in pair.differences)
        yield ""
        yield f"A = {shorten(pair.first.name, NAME)}, B = {shorten(pair.second.name, NAME)}"
        yield f"p by Holm over {tests} differences; beside an open verdict: images that would decide it"
        yield f"{'':{LABEL}}{'A':>8}{'B':>8}{'B − A':>8}{'95 % interval':>17}{'p':>7}  verdict"
        for title, keys in group_scores(comparison.judgement):
            yield shorten(title, WIDTH)
            for each in pair.differences:
                if each.key in keys:
                    yield _format_difference_line(each)
        yield from _format_agreement(pair)


def make_comparison_record(comparison: CaptionComparison) -> dict[str, Any]:
    """Return the scores and differences of a comparison as values of JSON."""
    return {
        **make_judgement_record(comparison.judgement),
        "pairs": [_make_pair_record(pair) for pair in comparison.pairs],
    }


def write_differences(path: Path, comparison: CaptionComparison) -> None:
    """Write a row per difference as CSV."""
    with open_output(path) as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for pair in comparison.pairs:
            for each in pair.differences:
                low, high = each.interval or ("", "")
                names = (
                    escape_csv_cell(pair.first.name),
                    escape_csv_cell(pair.second.name),
                    escape_csv_cell(each.key.judge),
                    each.key.name,
                )
                p = "" if each.p is None else each.p
                table.writerow((*names, each.first, each.second, each.value, low, high, p, each.verdict))


def show_verdict(difference: ScoreDifference) -> str:
    """Return the verdict; an open verdict has the number of images that would decide it."""
    if difference.verdict != OPEN:
        return difference.verdict
    return OPEN if difference.needed is None else f"{OPEN}, {_round_up(difference.needed)}"


def state_verdict(difference: ScoreDifference) -> str:
    """Return the verdict for a sentence; an open verdict states how many images would decide it."""
    if difference.verdict != OPEN:
        return difference.verdict
    if difference.needed is None:
        return f"{OPEN}: the difference is too small to decide"
    number = "millions of" if difference.needed >= MILLION else f"about {_round_up(difference.needed)}"
    return f"{OPEN}: {number} images would decide it"


def show_difference(difference: ScoreDifference) -> str:
    """Return the signed difference with the decimals of its score."""
    return f"{difference.value:+,.{KINDS[difference.key.name].digits}f}"


def _format_difference_line(difference: ScoreDifference) -> str:
    name, p = difference.key.name, ""
    if difference.p is not None:
        p = "<.001" if difference.p < 0.001 else f"{difference.p:.3f}".lstrip("0")
    first, second = (show_number(value, name) for value in (difference.first, difference.second))
    numbers = f"{first:>8}{second:>8}{show_difference(difference):>8}"
    interval = show_interval(difference.interval, name, signed=True)
    return f"{'  ' + name:{LABEL}}{numbers}{interval:>17}{p:>7}  {show_verdict(difference)}".rstrip()


def _format_agreement(pair: PairComparison) -> Iterator[str]:
    """Yield the verdicts on the recall, the agreement of each pair of judges, and the gain by the rewarding judges."""
    hard = [each for each in pair.differences if each.key.name == HARD_RECALL] or [
        each for each in pair.differences if each.key.name == "R@1"
    ]
    if len(hard) > 1:
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(each.verdict for each in hard).items())
        yield f"{hard[0].key.name} by {len(hard)} judges: {verdicts}"
    for each in pair.agreements:
        if each.images:
            sentence = f" agree on the better caption of {each.agree:.0f} % of {each.images:,} images"
            first, second = (shorten(name, NAME) for name in each.judges)
            width = WIDTH - len(" and " + sentence)  # names are shortened further so that the numbers are shown
            first = shorten(first, max(width // 2, width - len(second)))
            yield f"{first} and {shorten(second, width - len(first))}{sentence}"
    if pair.reward_gap is not None:
        yield from format_gap_lines(pair.reward_gap)


def format_gap_lines(gap: RewardGap) -> Iterator[str]:
    """Yield the gains by the rewarding judges and by the other judges, and whether the two differ."""
    yield f"{gap.score} by the judges that rewarded the training: {gap.rewarded:+.1f}; by the others: {gap.others:+.1f}"
    verdict = "the judges differ" if gap.differs else "whether the judges differ is open"
    yield f"  a difference of {gap.value:+.1f} [{gap.interval[0]:+.1f}, {gap.interval[1]:+.1f}]: {verdict}"


def _make_pair_record(pair: PairComparison) -> dict[str, Any]:
    differences = [
        {
            "judge": each.key.judge,
            "score": each.key.name,
            "first": each.first,
            "second": each.second,
            "difference": each.value,
            **({} if each.interval is None else {"low": each.interval[0], "high": each.interval[1], "p": each.p}),
            **({"verdict": each.verdict} if each.verdict else {}),
            **({} if each.needed is None else {"decisive_images": each.needed}),
        }
        for each in pair.differences
    ]
    agreements = [
        {"judges": list(each.judges), "agree": each.agree if each.images else None, "images": each.images}
        for each in pair.agreements
    ]
    gap = pair.reward_gap
    return {
        "first": pair.first.name,
        "second": pair.second.name,
        "differences": differences,
        "agreement": agreements,
        **({} if gap is None else {"reward_gap": vars(gap) | {"interval": list(gap.interval)}}),
    }


def _round_up(images: int) -> str:
    """Round a number of images up to two significant digits, 13,000 for 12,345; return "millions" from a million on."""
    if images >= MILLION:
        return "millions"
    scale = 10 ** max(0, len(str(images)) - 2)
    return f"{-(-images // scale) * scale:,}"
