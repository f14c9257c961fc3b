"""Which settings and which image are put side by side: chosen, equally natural, equally well found, along λ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.reporting.compared import Comparison
from pipeline.reporting.gallery import Picture, Said
from pipeline.reporting.results import Point, Results
from pipeline.reporting.selection import Choice
from pipeline.reporting.tradeoff import curves

EXAMPLE = "psst_multinomial"  # whose captions are shown along λ, where it was run


@dataclass(frozen=True)
class View:
    """Some of the settings, to be looked at together; `points` holds the id() of each."""

    name: str
    label: str
    words: str
    points: frozenset[int]


def views(results: Results, choices: Sequence[Choice], comparison: Comparison) -> list[View]:
    """Every setting; the chosen ones; and at each level of the comparison each curve's measured setting nearest to it.

    The last two are the paper's Figure 6: captions that sound alike and differ in what they tell, and the reverse.
    """
    chosen = [choice.point for choice in choices if choice.point]
    found = [
        _view("all", "every λ", "Each method's captions along λ, the smallest first.", results.points),
        _view("chosen", "chosen on validation", "One setting a method: the one chosen on validation.", chosen),
    ]
    slices = [(slice_, f"CIDEr {slice_.level.value:.3f}") for slice_ in comparison.at_cider]
    slices += [(slice_, f"{comparison.recall} {slice_.level.value:g}%") for slice_ in comparison.at_recall]
    for n, (slice_, what) in enumerate(slices):
        words = f"Of each method the measured setting that stands for it at a test {what} (own listener): see its own "
        words += "numbers below its name."
        if n < len(comparison.at_cider):
            words = words.replace(" (own listener)", "")
        far = [reading.curve.label for reading in slice_.readings if not reading.reached]
        words += f" Does not come so far: {', '.join(far)}." if far else ""
        near = [reading.nearest for reading in slice_.readings if reading.nearest]
        found.append(_view(f"equal-{n}", f"at {what}", words, near))
    return found


def example_line(results: Results, choices: Sequence[Choice]) -> str | None:
    """The line whose captions are shown along λ: of EXAMPLE or else of the method with the most settings.

    Where a method has several lines, the one with its chosen setting. None where no line has two settings.
    """
    several = [curve for curve in curves(results) if len(curve.points) > 1]
    wanted = [curve for curve in several if curve.method == EXAMPLE] or several
    chosen = {id(choice.point) for choice in choices if choice.point}
    ranked = [(any(id(point) in chosen for point in curve.points), len(curve.points)) for curve in wanted]
    return wanted[ranked.index(max(ranked))].label if wanted else None


def example_along(pictures: Sequence[Picture], line: str | None) -> tuple[Picture, list[Said]] | None:
    """The picture of the gallery of which `line` says the most different things along λ, and what it says.

    Highest λ first, as in the paper's Figure 5. Of pictures that tie, the first.
    """
    said = [(picture, [words for words in picture.said if words.line == line][::-1]) for picture in pictures]
    said = [(picture, rows) for picture, rows in said if rows]
    if not said:
        return None
    return max(said, key=lambda pair: len({words.caption for words in pair[1]}))


def _view(name: str, label: str, words: str, points: Sequence[Point]) -> View:
    return View(name, label, words, frozenset(map(id, points)))
