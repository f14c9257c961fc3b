"""The report: one self-contained page, and its content as Markdown, CSV, PNG and plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pipeline.analysis.caption_files import add_control_overlap
from pipeline.analysis.results import add_frozen_speakers, read_results
from pipeline.analysis.selection import ReportSettings
from pipeline.report.drawing import draw_panels_svg, draw_swatch
from pipeline.report.gallery import make_thumbnails, mark_words
from pipeline.report.headline import compose_headline_sentence
from pipeline.report.html_templates import hash_source, open_templates
from pipeline.report.method_names import replace_method_names
from pipeline.report.number_files import format_markdown
from pipeline.report.plot_elements import PlotPanel
from pipeline.report.report_content import ReportContent
from pipeline.report.report_parts import ReportParts
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent
from pipeline.report.tables import Table, TableColumn, remove_protocol_notes
from pipeline.runtime.files import compute_sha256, write_atomically


@dataclass(frozen=True)
class PageSection:
    """Section of the page with its drawn figures and its subsections."""

    section: ReportSection
    tables: Sequence[Table]
    figures: Mapping[str, Sequence[tuple[PlotPanel, Markup]]]
    values: Mapping[str, Any]
    subsections: list[PageSection] = field(default_factory=list)


def write_report(
    sweep: Path,
    evaluations: Sequence[Path],
    prepared: Path,
    images_root: Path | None,
    out: Path,
    settings: ReportSettings,
    *,
    inputs: Mapping[str, Path | None] | None = None,
    retriever: str | None = None,
    models: Sequence[Path] = (),
    scene_seed: int | None = None,
    parts: ReportParts | None = None,
) -> None:
    """Write the page, its tables, figures and numbers to `out`; equal inputs give equal bytes.

    `sweep` holds cells.json, captions.parquet and history.jsonl; each of `evaluations` holds metrics.json and
    captions.parquet; `prepared` is the prepared data set. Image files are below `images_root`; if it is None, there is
    no gallery. `inputs` are the files and folders of optional stages, by name. `retriever` is the judge that rewards
    captions, if there is one. `models` are the folders of trained methods. `scene_seed` is the seed of drawn scenes.
    `parts` are the sections of the core and of slices (default: the core's). Where the results have the metric of one
    of `parts.kinds`, that kind writes the report. Raises UserError if a required file is missing or damaged.
    """
    parts = parts or ReportParts()
    results = read_results(sweep, evaluations, first=("pretrained", settings.control), score=settings.score)
    if kind := next((kind for kind in parts.kinds if results.has(*kind.metric)), None):
        return kind.write(results, prepared, images_root, out, settings)
    results = add_frozen_speakers(add_control_overlap(results, settings.control), settings.frozen_speakers)
    simulated, options = parts.simulated(prepared), (inputs or {}, retriever, models, scene_seed, parts.scenes)
    content = ReportContent(results, settings, sweep, prepared, images_root, *options, simulated)
    contents = {section: section.build(content) for section in parts.sections}
    tables = [table for each in contents.values() for table in each.tables]
    files = {name: text for each in contents.values() for name, text in each.files.items()}
    files |= {"tables.md": format_markdown(tables, content.rule), "report.html": _render_page(content, contents)}
    for name, text in files.items():
        if text is None:
            (out / name).unlink(missing_ok=True)  # from an earlier report
        else:
            write_atomically(out / name, text)


def _render_page(content: ReportContent, contents: Mapping[ReportSection, SectionContent]) -> str:
    """Return the page as HTML; data are escaped, and the content security policy forbids other scripts and requests."""
    environment = open_templates([TEMPLATE, *{section.template_file.parent: None for section in contents}])
    environment.filters["published"] = replace_method_names
    style, script = (Markup((TEMPLATE / f"page.{kind}").read_text("utf-8")) for kind in ("css", "js"))
    panels = [panel for each in contents.values() for figure in each.panels.values() for panel in figure]
    styles = {line.style.name: line.style for panel in panels for line in panel.series}
    results, root = content.results, content.images_root
    sources = [path for each in contents.values() for path in each.sources]
    measured_files = [path for path in (*results.files, content.prepared / "manifest.json", *sources) if path.exists()]
    return environment.get_template("page.html").render(
        content=content,
        parts=_select_sections(contents),
        zip=zip,
        style=style,
        script=script,
        hashes=[hash_source(style), hash_source(script)],
        mark_words=mark_words,
        sentence=compose_headline_sentence(
            results, content.choices, content.settings.control, content.comparison.samples, content.references
        ),
        swatches={name: draw_swatch(style) for name, style in sorted(styles.items())},
        thumbnails={} if root is None else make_thumbnails(content.pictures, content.prepared, root),
        digests=_make_digest_table(measured_files),
    )


def _select_sections(contents: Mapping[ReportSection, SectionContent]) -> list[PageSection]:
    """Return the sections that the page shows, each with its subsections."""
    numbers, page_sections = count(), dict[str, PageSection]()
    for section, each in contents.items():
        figures = {name: draw_panels_svg(panels, f"f{next(numbers)}") for name, panels in each.panels.items()}
        if each.on_page:
            tables = remove_protocol_notes(each.tables if each.page_tables is None else each.page_tables)
            page_sections[section.name] = PageSection(section, tables, figures, each.values)
    for part in page_sections.values():
        if part.section.parent in page_sections:
            page_sections[part.section.parent].subsections.append(part)
    return [part for part in page_sections.values() if not part.section.parent]


def _make_digest_table(files: Sequence[Path]) -> Table:
    columns = [TableColumn("File", text=True), TableColumn("SHA-256", text=True)]
    rows = [["/".join(path.parts[-2:]), compute_sha256(path)] for path in files]
    return Table("digests", "SHA-256 of the measurements on this page", columns, rows)
