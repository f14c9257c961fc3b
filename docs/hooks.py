"""Hooks of MkDocs that keep the repository's paths on the site, so that relative links hold there, too.

Pages outside docs/ are those that mkdocs.yml names, and files to which pages link. The reference has a page for
saywhich, for each package of pipeline/, and for each module directly in pipeline/, from docstrings.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>(?!\w+:)[^)#\s]+)(?P<rest>#[^)\s]*)?\)")
CODE = re.compile(r"^(```.*?^```|    .*?$)", re.MULTILINE | re.DOTALL)
log = logging.getLogger("mkdocs.hooks.documents")


def on_config(config):
    """Add the pages of results and of the reference to the navigation."""
    result_pages = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/results/*.md"))
    for entry in config.nav:
        if "Results" in entry:
            entry["Results"][1:1] = result_pages
    config.nav.insert(-1, {"Reference": [{title: page} for page, title, _ in _list_reference()]})
    return config


def on_files(files, config):
    """Return the theme's files, pages and PNG files of docs/ under docs/, other pages, and the reference."""
    site_files = Files([])
    for file in files:
        in_docs = file.abs_src_path and Path(file.abs_src_path).is_relative_to(config.docs_dir)
        if not in_docs:
            site_files.append(file)
        elif file.src_uri.endswith((".md", ".png")):
            site_files.append(_make_file(config, f"docs/{file.src_uri}"))
    for page in _list_pages(config.nav):
        if site_files.get_file_from_path(page) is None and not page.startswith("reference/"):
            site_files.append(_make_file(config, page))
    for page, title, module in _list_reference():
        site_files.append(File.generated(config, page, content=f"# {title}\n\n::: {module}\n"))
    return site_files


def on_page_markdown(markdown, page, config, files):
    """Link folders to their page README.md, unlink other folders, add linked files, and log missing ones."""

    def update_link(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), match["path"]))
        if files.get_file_from_path(target):
            return match[0]
        path, readme = ROOT / target, posixpath.join(target, "README.md")
        if path.is_dir():
            has_page = files.get_file_from_path(readme)
            return f"[{match['text']}]({posixpath.join(match['path'], 'README.md')})" if has_page else match["text"]
        if path.is_file():
            files.append(_make_file(config, target))
        else:
            log.warning("%s: no such file: %s; correct the link", page.file.src_uri, match["path"])
        return match[0]

    parts = CODE.split(markdown)  # code stays as it is
    return "".join(part if n % 2 else LINK.sub(update_link, part) for n, part in enumerate(parts))


def _make_file(config, path):
    return File.generated(config, path, abs_src_path=str(ROOT / path))


def _list_pages(nav):
    """Yield all paths of the navigation."""
    for entry in nav.values() if isinstance(nav, dict) else nav:
        yield from [entry] if isinstance(entry, str) else _list_pages(entry)


def _list_reference():
    """Yield page, title and name of each package and module directly in pipeline/; the package saywhich comes first."""
    packages = [path.parent for path in sorted(ROOT.glob("pipeline/*/__init__.py"))]
    if (ROOT / "saywhich" / "__init__.py").exists():
        packages.insert(0, ROOT / "saywhich")
    files = [path for path in sorted(ROOT.glob("pipeline/*.py")) if path.stem != "__init__"]
    for path in (*packages, *files):
        module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        yield f"reference/{path.stem}.md", module, module
