"""Tables beside the trade-off: galleries, faithfulness, diversity, sets of captions, drift, crossed listeners."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.analysis.judges import ADAPTED, BEFORE, OWN, described, human_by, recall_by
from pipeline.analysis.results import MISSING, Point, Results
from pipeline.analysis.selection import Choice
from pipeline.errors import UserError
from pipeline.report.tables import Column, Table, measured, number, of_choices, signed

GALLERIES = {"1000": "1,000 images", "random100": "100 random images", "similar100": "100 similar images"}
DIVERSITY = {
    "words_per_caption": ("words", 1),
    "words_used": ("vocabulary", 0),
    "distinct_captions": ("distinct", 3),
    "Div-1": ("Div-1", 3),
    "Div-2": ("Div-2", 3),
    "Self-BLEU": ("Self-BLEU", 3),
    "repetition": ("repeats", 3),
    "unfinished": ("no end", 3),
    "human_log_likelihood": ("log p", 3),
}
EXPLAINED = {
    "Self-BLEU": "Self-BLEU: BLEU-5 of each of the first 1,000 captions against the others; lower is more varied.",
    "human_log_likelihood": "log p: the speaker's, of a word of people's captions.",
}
BEST = ("METEOR", "CIDEr", "SPICE")
SETS = {"samples": "Random sampling", "beams": "Beam search"}
MEASURES = ("CIDEr", "Div-1", "Div-2", "mBLEU-4")
SHADES = 8  # .heat-0 … .heat-8 of page.css


def galleries_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """R@1 and R@10 by each judge in the whole test split and in smaller galleries; None where none was measured."""
    judges = [judge for judge in results.judges if judge != ADAPTED]
    sizes = [size for size in GALLERIES if any(results.has(*recall_by(j, "R@10", "galleries", size)) for j in judges)]
    places = {"Whole split": (), **{GALLERIES[size]: ("galleries", size) for size in sizes}}
    columns = [
        measured(f"{recall} {judge}", recall_by(judge, recall, *where), 1, group)
        for group, where in places.items()
        for judge in judges
        for recall in ("R@1", "R@10")
    ]
    words = "; ".join(f"{judge}: {results.judges[judge].words}" for judge in judges)
    notes = [f"Judges: {words}. Similar images: those nearest to the right one."]
    caption = "The same captions in smaller galleries: recall in %, test split, from caption to image"
    return of_choices("galleries", caption, choices, columns, notes) if sizes else None


def faithfulness_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """How much of what captions claim is true, and how much of what there is they tell; None without known facts."""
    facts = ("test", "faithfulness", "by_kind")
    columns = [
        measured("true", ("faithfulness", "precision"), 3, "All facts"),
        measured("told", ("faithfulness", "told"), 3, "All facts"),
        measured("claims", ("faithfulness", "claims_per_caption"), 2, "All facts"),
    ]
    columns += [
        measured(label, ("faithfulness", "by_kind", kind, key), 3, kind.capitalize())
        for kind in dict.fromkeys(keys[3] for run in results.runs for keys in run.numbers if keys[:3] == facts)
        for label, key in (("true", "precision"), ("told", "told"))
    ]
    notes = [
        "true: share of what the captions claim that holds of their image; told: share of the image's facts that the "
        "caption tells; claims: per caption."
    ]
    found = results.has("faithfulness", "precision")
    return of_choices("faithfulness", "Are the captions true? Test split", choices, columns, notes) if found else None


def diversity_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """How varied the captions are; None where it was not measured."""
    keys = [key for key in DIVERSITY if results.has("diversity", key)]
    columns = [measured(DIVERSITY[key][0], ("diversity", key), DIVERSITY[key][1]) for key in keys]
    notes = [
        "words: per caption; vocabulary: different words; distinct: different captions, per caption; Div-n: different "
        "n-grams, per word, over all captions together; repeats (a content bigram twice, or a word twice in a row) and "
        "no end: shares of the captions.",
        *(note for key, note in EXPLAINED.items() if key in keys),
    ]
    return of_choices("diversity", "Diversity of the captions, test split", choices, columns, notes) if keys else None


def best_of_beam_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """METEOR, CIDEr and SPICE of each image's best caption in a wide beam (Chen and Jin 2020, Table 2)."""
    names = [name for name in BEST if results.has("several", "beams", "best", name)]
    columns = [measured(name, ("several", "beams", "best", name), 3) for name in names]
    notes = [f"Of a beam of {_captions(results, 'beams')}."]
    caption = "The best caption of a wide beam, test split"
    return of_choices("best", caption, choices, columns, notes) if names else None


def several_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """Quality and variety of several captions of one image (Chen and Jin 2020, Table 4); None if not measured."""
    columns = [
        measured(name, ("several", kind, name), 3, group)
        for kind, group in SETS.items()
        for name in MEASURES
        if results.has("several", kind, name)
    ]
    notes = [
        f"{_captions(results, 'samples')} drawn at random, and the {_captions(results, 'beams')} best of a beam of "
        "that width. CIDEr: mean over them; Div-n: different n-grams, per word, of an image's captions; mBLEU-4: of "
        "each against the image's others, lower is more varied."
    ]
    caption = "Several captions of each image, test split"
    return of_choices("several", caption, choices, columns, notes) if columns else None


def drift_table(results: Results, choices: Sequence[Choice]) -> Table | None:
    """How well each listener still understands people after joint training; None where that was not measured."""
    columns = [
        measured("before", human_by(BEFORE)),
        measured("after", human_by(OWN)),
        Column("drift", show=lambda point: signed(_summary(drift(point)))),
    ]
    notes = [
        "before and after joint training. Below 0: the listener has become attuned to its speaker, at people's cost."
    ]
    caption = "Drift of the listener: R@10 of human captions in %, test split"
    known = [choice for choice in choices if choice.point]
    found = results.has(*human_by(OWN)) and results.has(*human_by(BEFORE))
    return of_choices("drift", caption, known, columns, notes, "Listener of") if found else None


def drift(point: Point) -> list[float | None]:
    """One number a seed: human captions' R@10 by the own listener minus that by the listener before."""
    pairs = [[run.value("test", *human_by(judge)) for judge in (OWN, BEFORE)] for run in point.runs]
    return [None if own is None or before is None else own - before for own, before in pairs]


def crossed_table(crossed: Mapping[str, Any]) -> Table:
    """Each method's captions (rows) through every listener (columns), shaded from the lowest mean to the highest.

    Raises UserError if it is not of that form.
    """
    try:
        listeners, seeds = crossed["listeners"], crossed["seeds"]
        cells = {
            name: [list(cell) for _, cell in zip(listeners, row, strict=True)]
            for name, row in zip(crossed["captions"], crossed["matrix"], strict=True)
        }
        caption = f"Who understands whom: {crossed['recall']} in %, {crossed['split']} split, from caption to image"
    except (KeyError, TypeError, ValueError):
        raise UserError(
            "crossed.json: not captions × listeners with a list of seeds each; delete it and make it again."
        ) from None
    means = [[None if _lacking(cell) else statistics.fmean(cell) for cell in row] for row in cells.values()]
    known = [value for row in means for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    shades = [[None if v is None else round(SHADES * (v - low) / (high - low or 1.0)) for v in row] for row in means]
    others = [name for name in listeners if name not in cells]
    columns = [Column("Captions of", text=True)]
    columns += [Column(name, "Listener" if name in others else "Own listener of") for name in listeners]
    notes = [f"± is the standard deviation over {len(seeds)} seeds."] if len(seeds) > 1 else []
    notes += ["; ".join(f"{name}: {described(name).words}" for name in others) + "."] if others else []
    notes += ["Where captions and listener are of one method and seed, the two learned together."]
    if signature := crossed.get("signature"):
        notes.append("Protocol: " + " | ".join(part.strip() for part in str(signature).split("|")))
    rows = [[name, *map(_summary, row)] for name, row in cells.items()]
    return Table("crossed", caption, columns, rows, notes, shades=shades)


def _lacking(values: Sequence[float | None]) -> bool:
    """There is no value, or not of every seed: then there is no mean, so that no seed drops out unseen."""
    return not values or not all(isinstance(value, int | float) and math.isfinite(value) for value in values)


def _summary(values: Sequence[Any]) -> str:
    """Mean ± deviation."""
    if _lacking(values):
        return MISSING
    return number(statistics.fmean(values), 1, statistics.stdev(values) if len(values) > 1 else None)


def _captions(results: Results, kind: str) -> str:
    """How many captions per image there are; several numbers where runs differ."""
    found = [run.value("test", "several", kind, "captions") for run in results.runs]
    return " or ".join(map(str, sorted({int(count) for count in found if count is not None})))
