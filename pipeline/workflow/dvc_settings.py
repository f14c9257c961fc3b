"""DVC's settings that depend on the repository's folder: python -m pipeline.workflow.dvc_settings, run by make setup.

They are in .dvc/config.local, which git ignores:

- core.site_cache_dir, DVC's caches, as an absolute path. DVC resolves a relative one in the current folder, which is
  another one in `dvc exp run --temp`, `--queue` and `--dry`, so that these find no database.
- plots.html_template, the page of `dvc plots show`. It holds Vega's scripts, which Snakemake installs for its reports;
  DVC's own page loads them from a content delivery network.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from pipeline.runtime.command import run_command
from pipeline.runtime.files import write_atomically

SCRIPTS = ("vega/vega.js", "vega-lite/vega-lite.js", "vega-embed/vega-embed.js")
PLACEHOLDER = "{scripts}"  # DVC's placeholder of the scripts that it loads
TEMPLATE = "plots.html"


def write_local_settings(root: Path) -> None:
    """Write the page's template and the settings of the DVC repository at `root`."""
    from dvc.config import Config

    folder = root.resolve() / ".dvc"
    write_atomically(folder / "tmp" / TEMPLATE, offline_page())
    with Config(str(folder)).edit("local") as settings:
        settings.setdefault("core", {})["site_cache_dir"] = str(folder / "tmp" / "site")
        settings.setdefault("plots", {})["html_template"] = str(folder / "tmp" / TEMPLATE)


def offline_page() -> str:
    """Return DVC's template of a page of plots, with the scripts in it."""
    from dvc_render.html import PAGE_HTML

    assets = files("snakemake") / "assets" / "data"
    scripts = "\n".join(f"<script>{(assets / name).read_text(encoding='utf-8')}</script>" for name in SCRIPTS)
    before, _, after = PAGE_HTML.partition(PLACEHOLDER)
    return before + scripts + after


def main() -> int:
    """Return the exit status."""
    return run_command("dvc_settings", lambda: write_local_settings(Path()))


if __name__ == "__main__":
    sys.exit(main())
