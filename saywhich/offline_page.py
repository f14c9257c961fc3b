"""HTML pages in one file that need no network and execute nothing: styles and pictures are embedded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pipeline.errors import escape_line
from pipeline.report import html_templates
from saywhich.outputs import open_output

PAGES = Path(__file__).with_name("pages")
REPORT_STYLE = Path(html_templates.__file__).parent / "template" / "page.css"  # the style of the pipeline's report
PLAIN_STYLE = PAGES / "plain.css"  # the style of all offline pages without REPORT_STYLE


def write_offline_page(out: Path, template: str, *, styles: Sequence[Path], **content: Any) -> None:
    """Write a page from `template` in saywhich/pages, which extends page.html, to `out`, with the sheets `styles`."""
    texts = [Markup(each.read_text("utf-8")) for each in styles]
    hashes = [*map(html_templates.hash_source, texts)]
    with open_output(out) as page:
        templates = html_templates.open_templates([PAGES])
        templates.filters["line"] = escape_line  # file names and captions may hold control characters
        page.write(templates.get_template(template).render(styles=texts, hashes=hashes, **content))
