"""Names, docstrings and comments: one name has one meaning; docstrings and comments state their subject."""

import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("pipeline", "saywhich", "stages")
OPENERS = {"what", "who", "whose", "of", "those", "that", "where", "when", "how", "whether"}
# "of" alone opens the comments of tests that explain a number
COMMENT_OPENERS = {"what", "who", "whose", "those", "that"}
ENTRY_POINTS = {"__init__", "__main__"}


@cache
def package_trees(package: str) -> list[tuple[Path, ast.Module]]:
    return [
        (path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


def trees(*packages: str) -> Iterator[tuple[Path, ast.Module]]:
    for package in packages:
        yield from package_trees(package)


def test_the_name_of_a_public_class_stands_once():
    where = defaultdict(list)
    for path, tree in trees(*PACKAGES):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(path.as_posix())
    assert len(where) > 300
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("packages", [("pipeline",), ("saywhich",)])
def test_the_name_of_a_module_stands_once(packages):
    """Commands and stages are named by the verb that a user types, so they may share a name with a module."""
    stems = [
        path.stem for path, _ in trees(*packages) if path.stem not in ENTRY_POINTS and path.parent.name != "commands"
    ]
    assert [stem for stem, count in Counter(stems).items() if count > 1] == []


def test_no_docstring_opens_without_a_verb_or_a_subject():
    found = [
        f"{path}: {doc.splitlines()[0]}"
        for path, tree in trees(*PACKAGES, "tests", "benchmarks")
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (doc := ast.get_docstring(node))
        and doc.split()[0].strip(",.:").lower() in OPENERS
    ]
    assert found == []


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and first word of each comment; a line of a longer comment counts with the line above it."""
    last = 0  # the latest line that is only a comment
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, words, alone = token.start[0], token.string.lstrip("#").split(), token.line.lstrip().startswith("#")
            if words and not (alone and line == last + 1):
                yield line, words[0].strip(",.:").lower()
            last = line if alone else last


def test_no_comment_opens_without_a_verb_or_a_subject():
    assert list(comments("x = 1  # Of it\n# one\n# what\n\n# two\n")) == [(1, "of"), (2, "one"), (5, "two")]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for package in (*PACKAGES, "tests", "benchmarks")
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, word in comments(path.read_text(encoding="utf-8"))
        if word in COMMENT_OPENERS or (word == "of" and package in PACKAGES)
    ]
    assert found == []
