"""The report's first screen: one sentence, one picture, one chart and one small table, by the last judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.analysis.bootstrap import Resamples, interval
from pipeline.analysis.judges import NEAREST
from pipeline.analysis.results import Results
from pipeline.analysis.selection import Choice
from pipeline.report.gallery import Picture, ShownCaption
from pipeline.report.names import published
from pipeline.report.tables import Table, chosen, filled, measured, number, signed

FOUND = {
    NEAREST: "picks the right image out of those most like it",
    "R@1": "picks the right image out of {images:,}",
    "R@5": "has the right image among its first five of {images:,}",
    "R@10": "has the right image among its first ten of {images:,}",
}


def pair(results: Results, choices: Sequence[Choice], control: str) -> tuple[Choice | None, Choice | None]:
    """The control's choice and the best other one: by the last judge on validation, without frozen speakers."""
    keys = results.by(results.ends[-1])
    own = next((choice for choice in choices if choice.method == control and choice.point), None)
    others = [c for c in choices if c.method != control and c.point and c.point.runs[0].frozen is None]
    scored = [(value, c) for c in others if c.point and (value := c.point.mean("val", *keys)) is not None]
    return own, max(scored, key=lambda each: each[0])[1] if scored else None


def sentence(results: Results, choices: Sequence[Choice], control: str, samples: Resamples | None) -> str:
    """What the run shows, in one sentence with its numbers on test; nothing where a number is missing."""
    own, best = pair(results, choices, control)
    judge = results.judges[results.ends[-1]]
    keys, images = results.by(judge.name), int(max(results.values("images"), default=0))
    if own is None or best is None or own.point is None or best.point is None:
        return ""
    mine, theirs = best.point.mean("test", *keys), own.point.mean("test", *keys)
    if mine is None or theirs is None:
        return ""
    found = FOUND[results.score].format(images=images)
    drawn = samples.mean([best.point, own.point], *keys) if samples else None
    sure = ""
    if drawn is not None:
        low, high = interval(drawn[:, 0] - drawn[:, 1])
        sure = f", 95 % interval {signed(f'{low:+.1f}')} to {signed(f'{high:+.1f}')}"
        sure += ", so it may be chance" if low <= 0 <= high else ""
    ciders = [number(choice.point.mean("test", "language", "CIDEr"), 3) for choice in (best, own) if choice.point]
    return (
        f"From captions by {published(best.method)} the {judge.title.lower()} {found} in {mine:.1f} % of cases, from "
        f"captions by {published(own.method)} in {theirs:.1f} % (difference {signed(f'{mine - theirs:+.1f}')} points"
        f"{sure}); their likeness to people's captions, CIDEr, is {ciders[0]} and {ciders[1]}."
    )


def example(
    pictures: Sequence[Picture], choices: tuple[Choice | None, Choice | None], judge: str
) -> tuple[Picture, list[ShownCaption]] | None:
    """The picture on which the two chosen captions differ most in the judge's rank, in favour of the second; both.

    An example, not evidence: it is picked for its difference. None where no picture has both with their ranks.
    """
    methods = [choice.method for choice in choices if choice]

    def two(picture: Picture) -> list[ShownCaption]:
        shown = [
            words for words in picture.said if "chosen" in words.views and words.caption and words.ranks.get(judge)
        ]
        return [words for method in methods for words in shown if words.method == method]

    pairs = [(picture, said) for picture in pictures if len(said := two(picture)) == 2]
    gains = [(said[0].ranks[judge] or 1) / (said[1].ranks[judge] or 1) for _, said in pairs]
    return pairs[gains.index(max(gains))] if pairs else None


def headline_table(results: Results, choices: Sequence[Choice]) -> Table:
    """Method, CIDEr, and the score by the own listener and by the last judge: four columns."""
    columns = [measured("CIDEr", ("language", "CIDEr"), 3)]
    columns += [measured(f"{results.score}, {results.judges[j].title.lower()}", results.by(j)) for j in results.ends]
    caption = "At the λ chosen on validation, test split; recall in %"
    table = filled("headline-table", caption, chosen(choices), columns)
    return replace(table, notes=[note for note in table.notes if not note.startswith("Protocol: ")])
