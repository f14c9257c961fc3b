"""The report: one self-contained page, and its content as Markdown, CSV and PNG."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pipeline.analysis.caption_files import with_control_overlap
from pipeline.analysis.comparison import compare_methods
from pipeline.analysis.failures import training_failures
from pipeline.analysis.judge_titles import TEXT
from pipeline.analysis.results import LANGUAGE, read_results, read_results_json, with_frozen_speakers
from pipeline.analysis.selection import ReportSettings, choose_all, describe_rule
from pipeline.report import caption_tables, gallery, gradient_tables, hacked, headline, result_tables, reward_tables
from pipeline.report.comparison_tables import compact_comparison, comparison_tables
from pipeline.report.drawing import LARGE, SMALL, PlotPanel, labelled_svg, panels_png, panels_svg, swatch
from pipeline.report.figures import curve_panels, drift_panel, rho_panels
from pipeline.report.method_names import published_name
from pipeline.report.number_files import comparison_csv, curve_csv, markdown, rho_csv
from pipeline.report.pictures import along_png, gallery_png, pair_png
from pipeline.report.report_kind import ReportKind
from pipeline.report.study_tables import ANSWERS, study_tables
from pipeline.report.tables import Table, TableColumn, notes_once
from pipeline.runtime.files import sha256, write_atomically

TEMPLATE = Path(__file__).parent / "template"
HISTORY = "history.jsonl"  # of all cells
SIZES = {"wide": LARGE, "narrow": SMALL}  # sizes of the first chart, by its CSS class


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
    kinds: Sequence[ReportKind] = (),
) -> None:
    """Write the page, its tables, figures and numbers to `out`; equal inputs give equal bytes.

    `sweep` holds cells.json, captions.parquet and history.jsonl; each of `evaluations` holds metrics.json and
    captions.parquet; `prepared` is the prepared data set. Image files lie below `images_root`; without it there is no
    gallery. `crossed` is the file of cross-play, `observatory` that of the gradient estimators, `study` the folder of
    an answered study; each is optional. `retriever` is the judge that rewards captions, if any. `models` are the
    folders of trained methods, and `drawn_with` is the seed of drawn scenes. Results with the metric
    of one of `kinds` have a report of their own. Raises UserError if a required file is missing.
    """
    results = read_results(sweep, evaluations, first=("pretrained", settings.control), score=settings.score)
    if kind := next((kind for kind in kinds if results.has(*kind.metric)), None):
        return kind.write(results, prepared, images_root, out, settings)
    results = with_frozen_speakers(with_control_overlap(results, settings.control), settings.frozen_speakers)
    choices, comparison = choose_all(results, settings), compare_methods(results, settings)
    samples = comparison.samples
    views = gallery.gallery_views(results, choices, comparison)
    pictures = (
        [] if images_root is None else gallery.make_gallery(results, views, prepared, images_root, settings, drawn_with)
    )
    along = gallery.example_along(pictures, gallery.example_line(results, choices))
    matrix = read_results_json(crossed) if crossed and crossed.exists() else None
    observed = gradient_tables.read_observatory(observatory) if observatory and observatory.exists() else None
    manifest = read_results_json(prepared / "manifest.json")
    histories = reward_tables.training_histories(choices, sweep / HISTORY, models) if retriever else {}
    found_worse: list[gallery.GalleryPicture] = []
    if retriever and images_root:
        look = partial(
            gallery.pictures_of,
            results=results,
            views=views,
            prepared=prepared,
            images_root=images_root,
            drawn_with=drawn_with,
        )
        chosen_by_reward = hacked.hacked_captions(results, choices, histories, retriever, settings.control)
        found_worse = hacked.hacked_pictures(chosen_by_reward, settings.control, look)
    read = [*results.files, prepared / "manifest.json", crossed, observatory]
    found: dict[str, list[Table | None]] = {  # by section of the page
        "results": [result_tables.results_table(results, choices, TEXT, samples)],
        "reverse": [result_tables.results_table(results, choices, "image_to_text")],
        **comparison_tables(comparison),
        "drift": [result_tables.drift_table(results, choices)],
        "human": [result_tables.human_table(results, choices)],
        "rewarded": [reward_tables.rewarded_table(results, choices, retriever, settings.control)] if retriever else [],
        "study": [*study_tables(study, [study / ANSWERS])] if study else [],
        "crossed": [result_tables.crossed_table(matrix)] if matrix is not None else [],
        "galleries": [result_tables.galleries_table(results, choices)],
        "captions": [*caption_tables.caption_tables(results, choices)],
        "observatory": [*gradient_tables.observatory_tables(observed)] if observed else [],
        "runs": [result_tables.runs_table(results, choices)],
    }
    tables = {name: [table for table in group if table] for name, group in found.items()}
    drift = drift_panel(results, choices)
    metrics = dict.fromkeys((settings.metric, *(name for name in LANGUAGE if results.has("language", name))))
    figures = {  # curves by the metric on their x axis
        **{name: curve_panels(results, choices, name) for name in metrics},
        "rho": rho_panels(results, comparison),
        "drift": [drift] if drift else [],
        "training": reward_tables.training_panels(results, histories),
        "discriminator": reward_tables.discriminator_panels(results, histories),
        "plane": gradient_tables.plane_panels(observed) if observed else [],
        "claim": gradient_tables.claim_panels(observed) if observed else [],
    }
    pair = headline.headline_pair(results, choices, settings.control)
    rewarding = [results.judges[name] for name in (retriever, results.ends[-1]) if name in results.judges]
    words, compact = describe_rule(results, settings), result_tables.compact_tables(results, choices, samples)
    failed = training_failures(results, choices)
    above = [note for table in tables["equal"] for note in table.notes]
    files = {
        "curve.csv": curve_csv(results),
        "comparison.csv": comparison_csv(comparison),
        "rho.csv": rho_csv(comparison),
        "curve.png": panels_png(figures[settings.metric]),
        "rho.png": panels_png(figures["rho"]) if figures["rho"] else None,
        "training.csv": reward_tables.training_csv(histories) if histories else None,
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
            sentence=headline.headline_sentence(results, choices, settings.control, samples),
            example=headline.headline_example(pictures, pair, results.ends[-1]),
            summary=headline.headline_table(results, choices),
            tables=without_protocol(
                tables | {"equal": notes_once(tables["equal"]), "rho": notes_once(tables["rho"], above)},
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


def _page(figures: Mapping[str, Sequence[PlotPanel]], **content: Any) -> str:
    """Return the page as HTML: data are escaped, and its content security policy forbids other scripts and requests."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    results, said = content["results"], [words for picture in content["pictures"] for words in picture.said]
    style, script = (Markup((TEMPLATE / f"page.{kind}").read_text("utf-8")) for kind in ("css", "js"))
    environment.filters["published"] = published_name
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
        spoken=gallery.mark_words,
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
    """Remove the notes that name the common protocol: the page shows it once, among the settings."""
    return {
        name: [replace(table, notes=[n for n in table.notes if not n.startswith("Protocol: ")]) for table in group]
        for name, group in tables.items()
    }


def _caption_of(picture: gallery.GalleryPicture, method: str) -> str:
    """Return the caption of the picture by the chosen setting of `method`, or ""."""
    found = (words.caption for words in picture.said if words.method == method and "chosen" in words.views)
    return next(found, None) or ""


def _digests(files: Sequence[Path]) -> Table:
    columns = [TableColumn("File", text=True), TableColumn("SHA-256", text=True)]
    rows = [["/".join(path.parts[-2:]), sha256(path)] for path in files]
    return Table("digests", "SHA-256 of the measurements on this page", columns, rows)


def _hash(text: str) -> str:
    """Return the source expression of an inline script or style for a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
