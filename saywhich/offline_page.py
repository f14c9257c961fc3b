"""HTML pages in one file that need no network and execute nothing: styles and pictures stand in the page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.report import page_security
from saywhich.outputs import open_output

REPORT = Path(page_security.__file__).parent / "template" / "page.css"  # the style of the pipeline's report
PLAIN = "plain.css"  # the style of pages that are one list of photos


def write_offline_page(out: Path, template: str, *, styles: Sequence[str | Path], **content: Any) -> None:
    """Write a page from `template` in saywhich/pages, which extends page.html, to `out`.

    `styles` are names of style sheets in saywhich/pages, or their paths.
    """
    texts = [Markup(each.read_text("utf-8") if isinstance(each, Path) else _source(each)) for each in styles]
    hashes = [*map(page_security.hash_source, texts)]
    with open_output(out) as page:
        page.write(_templates().get_template(template).render(styles=texts, hashes=hashes, **content))


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("saywhich", "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _source(name: str) -> str:
    loader = _templates().loader
    assert loader is not None
    return loader.get_source(_templates(), name)[0]
