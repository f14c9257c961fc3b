"""The report: one self-contained page, the same as Markdown, CSV and PNG."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.reporting.along import View, example_along, example_line, views
from pipeline.reporting.compared import Comparison, compare
from pipeline.reporting.comparison_tables import (
    at_cider_table,
    at_recall_table,
    compact_comparison,
    rho_table,
    significance_table,
)
from pipeline.reporting.export import comparison_csv, curve_csv, markdown, rho_csv
from pipeline.reporting.figures import curve_panels, drift_panel, rho_panels
from pipeline.reporting.gallery import Picture, Said, Thumbnail, gallery, thumbnails
from pipeline.reporting.observatory import Observatory, claim_panels, observatory_tables, plane_panels, read_observatory
from pipeline.reporting.png import along_png, gallery_png, panels_png
from pipeline.reporting.quality_tables import (
    crossed_means,
    crossed_table,
    diversity_table,
    drift_table,
    faithfulness_table,
    galleries_table,
)
from pipeline.reporting.results import LANGUAGE, SHORT, Results, read_json, read_results, with_frozen_speakers
from pipeline.reporting.selection import Choice, ReportSettings, choose_all, rule
from pipeline.reporting.several_tables import best_of_beam_table, several_table
from pipeline.reporting.svg import drawings
from pipeline.reporting.tables import Table, compact_tables, human_table, results_table, runs_table
from pipeline.runtime.files import sha256, write_atomically

TEMPLATE = Path(__file__).parent / "template"
SHADES = 8  # .heat-0 … .heat-8 of page.css


def write_report(
    sweep: Path,
    evaluations: Sequence[Path],
    prepared: Path,
    images_root: Path | None,
    out: Path,
    settings: ReportSettings,
    *,
    crossed: Path | None = None,
    observatory: Path | None = None,
) -> None:
    """Write the page, its tables, figures and numbers to `out`; equal inputs give equal bytes.

    `sweep` holds cells.json and captions.parquet, each of `evaluations` metrics.json and captions.parquet, `prepared`
    the prepared data set; the files named there lie below `images_root`, without which there is no gallery. `crossed`
    is the file of every speaker before every listener, `observatory` that of the gradient estimators; each is left out
    where there is none. Raises UserError if another one is missing.
    """
    crossed = crossed if crossed and crossed.exists() else None
    observatory = observatory if observatory and observatory.exists() else None
    results = read_results(sweep, evaluations, first=("pretrained", settings.control))
    results = with_frozen_speakers(results, settings.frozen)
    choices = choose_all(results, settings)
    comparison = compare(results, settings)
    seen = views(results, choices, comparison)
    pictures = [] if images_root is None else gallery(results, seen, prepared, images_root, settings)
    manifest = read_json(prepared / "manifest.json")
    files = [*results.files, prepared / "manifest.json", *(path for path in (crossed, observatory) if path)]
    content = Content(
        results=results,
        choices=choices,
        settings=settings,
        comparison=comparison,
        views=seen,
        pictures=pictures,
        thumbnails={} if images_root is None else thumbnails(pictures, prepared, images_root),
        along=example_along(pictures, example_line(results, choices)),
        crossed=read_json(crossed) if crossed else None,
        observatory=read_observatory(observatory) if observatory else None,
        manifest=manifest,
        digests={"/".join(path.parts[-2:]): sha256(path) for path in files},
    )
    tables = content.tables
    short = (*compact_tables(results, choices), *compact_comparison(comparison))
    write_atomically(out / "curve.csv", curve_csv(results))
    write_atomically(out / "comparison.csv", comparison_csv(comparison))
    write_atomically(out / "curve.png", panels_png(curve_panels(results, choices, settings.metric)))
    write_atomically(out / "rho.csv", rho_csv(comparison))
    if rho := rho_panels(results, comparison):
        write_atomically(out / "rho.png", panels_png(rho))
    if content.along:
        write_atomically(out / "along.png", along_png(*content.along))
    write_atomically(out / "gallery.png", gallery_png(pictures))
    write_atomically(out / "table.md", markdown(short, rule(results, settings)))
    write_atomically(
        out / "tables.md", markdown([t for group in tables.values() for t in group], rule(results, settings))
    )
    write_atomically(out / "report.html", page(content))


@dataclass(frozen=True)
class Content:
    """What the page shows."""

    results: Results
    choices: Sequence[Choice]
    settings: ReportSettings
    comparison: Comparison
    views: Sequence[View]
    pictures: Sequence[Picture]
    thumbnails: Mapping[int, Thumbnail]
    along: tuple[Picture, list[Said]] | None
    crossed: Mapping[str, Any] | None
    observatory: Observatory | None
    manifest: Mapping[str, object]
    digests: Mapping[str, str]

    @cached_property
    def tables(self) -> dict[str, list[Table]]:
        """All tables by the section they stand in, in the order of the page; those without numbers are left out."""
        results, choices, comparison = self.results, self.choices, self.comparison
        found: dict[str, list[Table | None]] = {
            "results": [results_table(results, choices)],
            "reverse": [results_table(results, choices, "image_to_text")],
            "cider": [
                table(comparison, slice_)
                for slice_ in comparison.at_cider
                for table in (at_cider_table, significance_table)
            ],
            "recall": [at_recall_table(comparison, slice_) for slice_ in comparison.at_recall],
            "rho": [rho_table(comparison, series) for series in comparison.rho],
            "drift": [drift_table(results, choices)],
            "human": [human_table(results, choices)],
            "crossed": [crossed_table(self.crossed)] if self.crossed else [],
            "galleries": [galleries_table(results, choices)],
            "captions": [
                build(results, choices)
                for build in (faithfulness_table, diversity_table, best_of_beam_table, several_table)
            ],
            "observatory": [*observatory_tables(self.observatory)] if self.observatory else [],
            "runs": [runs_table(results, choices)],
        }
        return {name: [table for table in tables if table is not None] for name, tables in found.items()}


def page(content: Content) -> str:
    """The page as HTML; whatever comes from data is escaped, and its own policy forbids other scripts and fetching."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    results, choices, settings = content.results, content.choices, content.settings
    measured = {
        name for name in LANGUAGE if any(run.value("test", "language", name) is not None for run in results.runs)
    }
    metrics = [settings.metric, *(name for name in LANGUAGE if name in measured and name != settings.metric)]
    curves = {name: drawings(curve_panels(results, choices, name)) for name in metrics}
    judges = dict.fromkeys(drawing.panel.name for each in curves.values() for drawing in each)
    drift, rho, tables = drift_panel(results, choices), rho_panels(results, content.comparison), content.tables
    finds = any(words.found for picture in content.pictures for words in picture.said)
    counts = [run.value("test", "images") for run in results.runs]
    style, script = (TEMPLATE / "page.css").read_text("utf-8"), (TEMPLATE / "page.js").read_text("utf-8")
    contents = [
        ("curve", "Curve"),
        ("results", "Results"),
        *([("equal", "At equal values")] if tables["cider"] or tables["recall"] else []),
        *([("rho", "ρ")] if rho else []),
        ("judges", "Listeners"),
        *([("captions", "Captions")] if tables["captions"] else []),
        *([("along", "Along λ")] if content.along else []),
        ("gallery", "Gallery"),
        *([("observatory", "Estimators")] if content.observatory else []),
        ("runs", "Every run"),
        ("settings", "Settings"),
    ]
    return environment.get_template("page.html").render(
        style=Markup(style),
        style_hash=_hash(style),
        script=Markup(script),
        script_hash=_hash(script),
        contents=contents,
        missing=_missing(content, finds),
        dataset=str(content.manifest.get("dataset") or "unnamed data"),
        images=max((int(count) for count in counts if count is not None), default=None),
        methods=results.methods,
        runs=results.runs,
        seeds=max(len(point.runs) for point in results.points),
        judges=results.judges,
        metric=settings.metric,
        metrics=[(name, name) for name in metrics],
        curves=curves,
        curve_judges=[(judge, SHORT[judge]) for judge in judges],
        rule=rule(results, settings),
        notes=results.notes,
        tables=tables | _once({name: tables[name] for name in ("cider", "recall", "rho")}),
        rho=drawings(rho),
        drift=drawings([drift]) if drift else None,
        crossed_shades=_shades(crossed_means(content.crossed)) if content.crossed else None,
        plane=drawings(plane_panels(content.observatory)) if content.observatory else [],
        claim=drawings(claim_panels(content.observatory)) if content.observatory else [],
        along=content.along,
        pictures=content.pictures,
        views=content.views,
        view_options=[(view.name, view.label) for view in content.views],
        rank_judges=[
            judge
            for judge in results.judges
            if any(words.ranks[judge] is not None for picture in content.pictures for words in picture.said)
        ],
        finds=finds,
        thumbnails={row: asdict(thumbnail) for row, thumbnail in content.thumbnails.items()},
        settings={name: _shown(value) for name, value in asdict(settings).items()},
        manifest=json.dumps(content.manifest, indent=2, sort_keys=True, ensure_ascii=False),
        digests=content.digests,
    )


def _shown(value: object) -> object:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "chosen from the curves" if value is None else value


def _missing(content: Content, finds: bool) -> list[str]:
    """One note on what files of an older version lack."""
    lacks = []
    if "adapted" not in content.results.judges:
        lacks.append("an adapted listener")
    if content.pictures and not finds:
        lacks.append("the images that each listener put first")
    if not lacks:
        return []
    return [f"These evaluations are of an older form, without {' and '.join(lacks)}; evaluate again to see them."]


def _once(tables: Mapping[str, Sequence[Table]]) -> dict[str, list[Table]]:
    """The tables without notes that stand under one before them, except the protocol."""
    said: set[str] = set()
    found: dict[str, list[Table]] = {}
    for name, group in tables.items():
        found[name] = []
        for table in group:
            fresh = [note for note in table.notes if note not in said or note.startswith("Protocol")]
            said.update(fresh)
            found[name].append(replace(table, notes=fresh))
    return found


def _shades(values: Sequence[Sequence[float | None]]) -> list[list[int | None]]:
    """How dark each cell is, from 0 to SHADES between the lowest and the highest number; None for no number."""
    known = [value for row in values for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return [[None if v is None else round(SHADES * (v - low) / (high - low or 1.0)) for v in row] for row in values]


def _hash(text: str) -> str:
    """As a content security policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
