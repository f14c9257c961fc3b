"""The report: one self-contained page, the same as Markdown, CSV and PNG."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.analysis.captions import with_shares_of_control
from pipeline.analysis.compare import compare
from pipeline.analysis.failures import failures
from pipeline.analysis.judges import TEXT
from pipeline.analysis.results import LANGUAGE, read_json, read_results, with_frozen_speakers
from pipeline.analysis.selection import ReportSettings, choose_all, rule
from pipeline.report import caption_tables, gallery, gradients, hacked, headline, result_tables, rewarded
from pipeline.report.comparison_tables import compact_comparison, comparison_tables
from pipeline.report.dialog_page import write_dialog_report
from pipeline.report.drawing import LARGE, SMALL, Panel, labelled_svg, panels_png, panels_svg, swatch
from pipeline.report.export import comparison_csv, curve_csv, markdown, rho_csv
from pipeline.report.figures import curve_panels, drift_panel, rho_panels
from pipeline.report.names import published
from pipeline.report.pictures import along_png, gallery_png, pair_png
from pipeline.report.study_tables import ANSWERS, study_tables
from pipeline.report.tables import Column, Table, once
from pipeline.runtime.files import sha256, write_atomically

TEMPLATE = Path(__file__).parent / "template"
HISTORY = "history.jsonl"  # of all cells
SIZES = {"wide": LARGE, "narrow": SMALL}  # of the first chart, by the class that shows it


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
    study: Path | None = None,
    retriever: str | None = None,
    models: Sequence[Path] = (),
    drawn_with: int | None = None,
) -> None:
    """Write the page, its tables, figures and numbers to `out`; equal inputs give equal bytes.

    `sweep` holds cells.json, captions.parquet and history.jsonl, each of `evaluations` metrics.json and
    captions.parquet, `prepared` the prepared data set; the files named there lie below `images_root`, without which
    there is no gallery. `crossed` is the file of every speaker with every listener, `observatory` that of the gradient
    estimators, `study` the folder of a study that raters answered; each is left out where there is none. Dialogs have
    a report of their own. Raises UserError if another one is missing. `retriever` is the judge that rewards captions,
    if any, `models` are the folders of trained methods, and `drawn_with` is the seed that scenes were drawn with.
    """
    results = read_results(sweep, evaluations, first=("pretrained", settings.control), score=settings.score)
    if results.of_dialogs:
        return write_dialog_report(results, prepared, images_root, out, settings)
    results = with_frozen_speakers(with_shares_of_control(results, settings.control), settings.frozen)
    choices, comparison = choose_all(results, settings), compare(results, settings)
    samples = comparison.samples
    views = gallery.views(results, choices, comparison)
    pictures = (
        [] if images_root is None else gallery.gallery(results, views, prepared, images_root, settings, drawn_with)
    )
    along = gallery.example_along(pictures, gallery.example_line(results, choices))
    matrix = read_json(crossed) if crossed and crossed.exists() else None
    observed = gradients.read_observatory(observatory) if observatory and observatory.exists() else None
    manifest = read_json(prepared / "manifest.json")
    histories = rewarded.histories(choices, sweep / HISTORY, models) if retriever else {}
    found_worse: list[gallery.Picture] = []
    if retriever and images_root:
        look = partial(
            gallery.pictures_of,
            results=results,
            views=views,
            prepared=prepared,
            images_root=images_root,
            drawn_with=drawn_with,
        )
        chosen_by_reward = hacked.hacked(results, choices, histories, retriever, settings.control)
        found_worse = hacked.beside(chosen_by_reward, settings.control, look)
    read = [*results.files, prepared / "manifest.json", crossed, observatory]
    found: dict[str, list[Table | None]] = {  # by the section they stand in
        "results": [result_tables.results_table(results, choices, TEXT, samples)],
        "reverse": [result_tables.results_table(results, choices, "image_to_text")],
        **comparison_tables(comparison),
        "drift": [result_tables.drift_table(results, choices)],
        "human": [result_tables.human_table(results, choices)],
        "rewarded": [rewarded.rewarded_table(results, choices, retriever, settings.control)] if retriever else [],
        "study": [*study_tables(study, [study / ANSWERS])] if study else [],
        "crossed": [result_tables.crossed_table(matrix)] if matrix is not None else [],
        "galleries": [result_tables.galleries_table(results, choices)],
        "captions": [*caption_tables.caption_tables(results, choices)],
        "observatory": [*gradients.observatory_tables(observed)] if observed else [],
        "runs": [result_tables.runs_table(results, choices)],
    }
    tables = {name: [table for table in group if table] for name, group in found.items()}
    drift = drift_panel(results, choices)
    metrics = dict.fromkeys((settings.metric, *(name for name in LANGUAGE if results.has("language", name))))
    figures = {  # the curves by what is on their x axis
        **{name: curve_panels(results, choices, name) for name in metrics},
        "rho": rho_panels(results, comparison),
        "drift": [drift] if drift else [],
        "training": rewarded.training_panels(results, histories),
        "discriminator": rewarded.discriminator_panels(results, histories),
        "plane": gradients.plane_panels(observed) if observed else [],
        "claim": gradients.claim_panels(observed) if observed else [],
    }
    pair = headline.pair(results, choices, settings.control)
    rewarding = [results.judges[name] for name in (retriever, results.ends[-1]) if name in results.judges]
    words, compact = rule(results, settings), result_tables.compact_tables(results, choices, samples)
    failed = failures(results, choices)
    above = [note for table in tables["equal"] for note in table.notes]
    files = {
        "curve.csv": curve_csv(results),
        "comparison.csv": comparison_csv(comparison),
        "rho.csv": rho_csv(comparison),
        "curve.png": panels_png(figures[settings.metric]),
        "rho.png": panels_png(figures["rho"]) if figures["rho"] else None,
        "training.csv": rewarded.training_csv(histories) if histories else None,
        "training.png": panels_png(figures["training"]) if figures["training"] else None,
        "along.png": along_png(*along, results.first) if along else None,
        "gallery.png": gallery_png(pictures, results.first),
        "pair.png": pair_png(pictures, [c.method for c in pair if c], results.judges[results.ends[-1]])
        if pictures
        else None,
        "hacked.png": gallery_png(found_worse, *rewarding) if found_worse else None,
        "table.md": markdown([*compact, *compact_comparison(comparison)], words, failed),
        "tables.md": markdown([table for group in tables.values() for table in group], words),
        "report.html": _page(
            figures,
            results=results,
            settings=settings,
            rule=words,
            failed=failed,
            sentence=headline.sentence(results, choices, settings.control, samples),
            example=headline.example(pictures, pair, results.ends[-1]),
            summary=headline.headline_table(results, choices),
            tables=without_protocol(
                tables | {"equal": once(tables["equal"]), "rho": once(tables["rho"], above)},
            ),
            metrics=list(metrics),
            along=along,
            pictures=pictures,
            hacked=(found_worse, [judge.name for judge in rewarding]),
            views=views,
            thumbnails={} if images_root is None else gallery.thumbnails(pictures, prepared, images_root),
            manifest=manifest,
            digests=_digests([path for path in read if path and path.exists()]),
        ),
    }
    for name, content in files.items():
        if content is not None:
            write_atomically(out / name, content)


def _page(figures: Mapping[str, Sequence[Panel]], **content: Any) -> str:
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
    results, said = content["results"], [words for picture in content["pictures"] for words in picture.said]
    style, script = (Markup((TEMPLATE / f"page.{kind}").read_text("utf-8")) for kind in ("css", "js"))
    environment.filters["published"] = published
    last = next((p for p in figures[content["settings"].metric] if p.name == results.ends[-1]), None)
    large = last or figures[content["settings"].metric][0]
    large = replace(large, title=f"By the {large.title.lower()}")
    styles = {line.style.name: line.style for figure in figures.values() for panel in figure for line in panel.series}
    return environment.get_template("page.html").render(
        content,
        zip=zip,
        asdict=asdict,
        dumps=json.dumps,
        style=style,
        script=script,
        hashes=[_hash(style), _hash(script)],
        large=[(large, labelled_svg(large, name, size), size, name) for name, size in SIZES.items()],
        spoken=gallery.spoken,
        control_said={p.row: _caption_of(p, content["settings"].control) for p in content["pictures"]},
        protocols=sorted({run.protocol for run in results.runs}),
        figures={name: panels_svg(panels, f"f{n}") for n, (name, panels) in enumerate(figures.items())},
        swatches={name: swatch(style) for name, style in sorted(styles.items())},
        rank_judges=[judge for judge in results.judges if any(words.ranks[judge] is not None for words in said)],
        finders=[(j, results.judges[j].title) for j in results.ends if any(words.found[j] for words in said)],
        judged=any(words.truths for words in said),
        images=int(max(results.values("images"), default=0)),
    )


def without_protocol(tables: Mapping[str, Sequence[Table]]) -> dict[str, list[Table]]:
    """The tables without the notes that name the protocol of all: the page has it once, among the settings."""
    return {
        name: [replace(table, notes=[n for n in table.notes if not n.startswith("Protocol: ")]) for table in group]
        for name, group in tables.items()
    }


def _caption_of(picture: gallery.Picture, method: str) -> str:
    """What the chosen setting of `method` says of the picture."""
    found = (words.caption for words in picture.said if words.method == method and "chosen" in words.views)
    return next(found, None) or ""


def _digests(files: Sequence[Path]) -> Table:
    columns = [Column("File", text=True), Column("SHA-256", text=True)]
    rows = [["/".join(path.parts[-2:]), sha256(path)] for path in files]
    return Table("digests", "SHA-256 of the measurements on this page", columns, rows)


def _hash(text: str) -> str:
    """The name of an inline script or style in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
