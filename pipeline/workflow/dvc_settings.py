"""DVC's settings that depend on the repository's folder: python -m pipeline.workflow.dvc_settings, run by make setup.

The settings are in .dvc/config.local, which git ignores:

- core.site_cache_dir, the folder of DVC's caches, as an absolute path. DVC resolves a relative path in the current
  folder. `dvc exp run --temp`, `--queue` and `--dry` run in another folder, so they would not find DVC's databases.
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
    """Write the template of `dvc plots show`, and set the two local settings of the DVC repository at `root`."""
    from configobj import ConfigObj

    folder = root.resolve() / ".dvc"
    write_atomically(folder / "tmp" / TEMPLATE, make_offline_page())
    config = folder / "config.local"
    # DVC reads UTF-8 and writes ASCII alone, and the path of a repository may have any letters
    settings = ConfigObj(config.read_text(encoding="utf-8").splitlines() if config.is_file() else [])
    settings.setdefault("core", {})["site_cache_dir"] = str(folder / "tmp" / "site")
    settings.setdefault("plots", {})["html_template"] = str(folder / "tmp" / TEMPLATE)
    write_atomically(config, "".join(f"{line}\n" for line in settings.write()))


def make_offline_page() -> str:
    """Return DVC's HTML template of plots with Vega's scripts inline."""
    from dvc_render.html import PAGE_HTML

    assets = files("snakemake") / "assets" / "data"
    scripts = "\n".join(f"<script>{(assets / name).read_text(encoding='utf-8')}</script>" for name in SCRIPTS)
    head, _, tail = PAGE_HTML.partition(PLACEHOLDER)
    return head + scripts + tail


def main() -> int:
    """Write the settings of the repository in the current folder; return the exit status."""
    return run_command("dvc_settings", lambda: write_local_settings(Path()))


if __name__ == "__main__":
    sys.exit(main())
