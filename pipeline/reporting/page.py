"""The report: one self-contained page, the same as Markdown, CSV and PNG."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pipeline.files import sha256, write_atomically
from pipeline.reporting.export import curve_csv, markdown
from pipeline.reporting.figures import curve_panels, curve_png
from pipeline.reporting.gallery import Picture, gallery, gallery_png
from pipeline.reporting.results import JUDGES, LANGUAGE, Results, read_json, read_results
from pipeline.reporting.selection import Choice, ReportSettings, choose_all, rule
from pipeline.reporting.svg import drawings
from pipeline.reporting.tables import compact_tables, human_table, results_table, runs_table


def write_report(
    sweep: Path, evaluations: Sequence[Path], prepared: Path, images_root: Path, out: Path, settings: ReportSettings
) -> None:
    """Write report.html, table.md, curve.csv, curve.png and gallery.png to `out`; equal inputs give equal bytes.

    `sweep` holds cells.json and captions.parquet, each of `evaluations` metrics.json and captions.parquet, `prepared`
    the prepared data set; the files named there lie below `images_root`. Raises UserError if one is missing.
    """
    results = read_results(sweep, evaluations, first=("pretrained", settings.control))
    choices = choose_all(results, settings)
    pictures = gallery(choices, prepared, images_root, settings)
    manifest = read_json(prepared / "manifest.json")
    digests = {"/".join(path.parts[-2:]): sha256(path) for path in (*results.files, prepared / "manifest.json")}
    write_atomically(out / "curve.csv", curve_csv(results))
    write_atomically(out / "curve.png", curve_png(curve_panels(results, choices, settings.metric)))
    write_atomically(out / "gallery.png", gallery_png(pictures))
    write_atomically(out / "table.md", markdown(compact_tables(results, choices), rule(results, settings)))
    write_atomically(out / "report.html", page(results, choices, pictures, manifest, digests, settings))


def page(
    results: Results,
    choices: Sequence[Choice],
    pictures: Sequence[Picture],
    manifest: dict[str, object],
    digests: dict[str, str],
    settings: ReportSettings,
) -> str:
    """The page as HTML; whatever comes from data is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "template"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    measured = {
        name for name in LANGUAGE if any(run.value("test", "language", name) is not None for run in results.runs)
    }
    others = [name for name in LANGUAGE if name in measured and name != settings.metric]
    counts = [run.value("test", "images") for run in results.runs]
    return environment.get_template("page.html").render(
        dataset=str(manifest.get("dataset") or "unnamed data"),
        images=max((int(count) for count in counts if count is not None), default=None),
        methods=results.methods,
        runs=results.runs,
        seeds=max(len(point.runs) for point in results.points),
        judges=JUDGES,
        metric=settings.metric,
        curve=drawings(curve_panels(results, choices, settings.metric)),
        other_curves={name: drawings(curve_panels(results, choices, name)) for name in others},
        rule=rule(results, settings),
        notes=results.notes,
        results_table=results_table(results, choices),
        reverse_table=results_table(results, choices, "image_to_text"),
        human_table=human_table(results, choices),
        runs_table=runs_table(results, choices),
        pictures=pictures,
        settings=asdict(settings),
        manifest=json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False),
        digests=digests,
    )
