"""The comparison of caption files as text for a terminal of 100 columns, and as values of JSON and rows of CSV."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.runtime.escaping import csv_cell
from saywhich.judging.caption_comparison import OPEN, CaptionComparison, PairComparison, RewardGap, ScoreDifference
from saywhich.judging.caption_scores import HARD, KINDS
from saywhich.judging.score_files import judgement_record
from saywhich.judging.score_tables import (
    LABEL,
    WIDTH,
    heading_lines,
    score_groups,
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


def comparison_lines(found: CaptionComparison) -> Iterator[str]:
    """Yield the lines of a comparison: a table of differences for each pair, and the agreement of judges."""
    yield from heading_lines(found.judgement)
    for pair in found.pairs:
        tests = sum(each.p is not None for each in pair.differences)
        yield ""
        yield f"A = {shorten(pair.first.name, NAME)}, B = {shorten(pair.second.name, NAME)}"
        yield f"p by Holm over {tests} differences; an open one needs about that many images to be decided"
        yield f"{'':{LABEL}}{'A':>8}{'B':>8}{'B − A':>8}{'95 % interval':>17}{'p':>7}  verdict"
        for title, keys in score_groups(found.judgement):
            yield shorten(title, WIDTH)
            for each in pair.differences:
                if each.key in keys:
                    yield _line(each)
        yield from _agreement_lines(pair)


def comparison_record(found: CaptionComparison) -> dict[str, Any]:
    """Return everything that was measured, as values of JSON."""
    return {**judgement_record(found.judgement), "pairs": [_pair_record(pair) for pair in found.pairs]}


def write_differences(path: Path, found: CaptionComparison) -> None:
    """Write a row per difference as CSV."""
    with open_output(path) as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for pair in found.pairs:
            for each in pair.differences:
                low, high = each.interval or ("", "")
                names = (csv_cell(pair.first.name), csv_cell(pair.second.name), csv_cell(each.key.judge), each.key.name)
                p = "" if each.p is None else each.p
                table.writerow((*names, each.first, each.second, each.value, low, high, p, each.verdict))


def show_verdict(each: ScoreDifference) -> str:
    """Return the verdict, with the number of images that would decide an open one."""
    if each.verdict != OPEN:
        return each.verdict
    return OPEN if each.needed is None else f"{OPEN}, {_rounded(each.needed)}"


def state_verdict(each: ScoreDifference) -> str:
    """Return the verdict for a sentence; an open one says how many images would decide it."""
    if each.verdict != OPEN:
        return each.verdict
    if each.needed is None:
        return f"{OPEN}: there is no difference to decide"
    many = "millions of" if each.needed >= MILLION else f"about {_rounded(each.needed)}"
    return f"{OPEN}: {many} images would decide it"


def show_difference(each: ScoreDifference) -> str:
    """Return the signed difference with the decimals of its score."""
    return f"{each.value:+,.{KINDS[each.key.name].digits}f}"


def _line(each: ScoreDifference) -> str:
    name, p = each.key.name, ""
    if each.p is not None:
        p = "<.001" if each.p < 0.001 else f"{each.p:.3f}".lstrip("0")
    numbers = f"{show_number(each.first, name):>8}{show_number(each.second, name):>8}{show_difference(each):>8}"
    within = show_interval(each.interval, name, signed=True)
    return f"{'  ' + name:{LABEL}}{numbers}{within:>17}{p:>7}  {show_verdict(each)}".rstrip()


def _agreement_lines(pair: PairComparison) -> Iterator[str]:
    """Yield the verdicts on the recall, the agreement of each two judges, and the gain by the rewarding judges."""
    hard = [each for each in pair.differences if each.key.name == HARD] or [
        each for each in pair.differences if each.key.name == "R@1"
    ]
    if len(hard) > 1:
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(each.verdict for each in hard).items())
        yield f"{hard[0].key.name} by {len(hard)} judges: {verdicts}"
    for each in pair.agreements:
        if each.images:
            found = f" agree on the better caption of {each.agree:.0f} % of {each.images:,} images"
            one, other = (shorten(name, NAME) for name in each.judges)
            room = WIDTH - len(" and " + found)  # names are shortened further so that the numbers are shown
            one = shorten(one, max(room // 2, room - len(other)))
            yield f"{one} and {shorten(other, room - len(one))}{found}"
    if pair.reward_gap is not None:
        yield from gap_lines(pair.reward_gap)


def gap_lines(gap: RewardGap) -> Iterator[str]:
    """Yield the gains by the rewarding judges and by the others, and whether the two differ."""
    yield f"{gap.score} by the judges that rewarded the training: {gap.rewarded:+.1f}; by the others: {gap.others:+.1f}"
    verdict = "the judges differ" if gap.differs else "whether the judges differ is open"
    yield f"  a difference of {gap.value:+.1f} [{gap.interval[0]:+.1f}, {gap.interval[1]:+.1f}]: {verdict}"


def _pair_record(pair: PairComparison) -> dict[str, Any]:
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


def _rounded(images: int) -> str:
    """Return a number of images with two digits, 13,000 for 12,345."""
    if images >= MILLION:
        return "millions"
    scale = 10 ** max(0, len(str(images)) - 2)
    return f"{-(-images // scale) * scale:,}"
