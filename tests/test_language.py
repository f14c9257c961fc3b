"""Names, docstrings and comments: one name has one meaning; docstrings and comments state their subject."""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("pipeline", "saywhich", "stages")
OPENERS = {"what", "who", "whose", "of", "those", "that", "where", "when", "how", "whether"}
# first words of noun phrases; a function's docstring opens with a verb
ARTICLES = {"a", "an", "the", "all", "both", "each", "every", "its", "no", "one", "our", "some", "this", "two"}
# in tests and benchmarks, a comment that explains a number may begin with "of"
COMMENT_OPENERS = {"what", "who", "whose", "those", "that"}
# first words that only look like participles, or that users know
NO_PARTICIPLES = {
    "bounding", "cached", "embed", "hacked", "hacking", "heading", "hugging", "learning", "pooled", "ranking", "ring",
    "seed", "setting", "succeed", "training", "varying", "working",
}  # fmt: skip
# verbs with which functions' names begin, in addition to the first words of docstrings
VERBS = {
    "accelerate", "adapt", "adjust", "adopt", "allocate", "average", "ban", "block", "broadcast", "cache",
    "calibrate", "choose", "cite", "clear", "collapse", "compose", "confirm", "conjugate", "edit", "embed",
    "enumerate", "estimate", "expand", "explain", "extrapolate", "finish", "flatten", "forbid", "free", "gather",
    "get", "hash", "identify", "interpolate", "intersect", "iterate", "join", "lay", "leave", "look", "mark", "mask",
    "match", "mix", "note", "optimise", "order", "override", "pack", "pad", "pair", "pick", "place", "pretrain",
    "push", "rate", "report", "require", "resample", "resize", "resolve", "restore", "reuse", "reward", "shorten",
    "silence", "stack", "state", "stream", "suggest", "summarise", "sync", "temper", "tokenise", "twist", "view",
}  # fmt: skip
PREDICATES = {"differs", "fetches", "has", "is", "leads"}
CONVERSIONS = {"as", "from", "to", "with", "without"}
# functions named by a noun: terms of the papers, of PyTorch and NumPy, and commands of saywhich
NOUNS = {
    "all_max", "all_reduce_sum", "all_sum", "atomic_folder", "atomic_path", "bags", "discriminator_guided", "exp",
    "hacked", "logsumexp_rows", "main", "nms_by_class", "pathwise", "plain_nms", "relation_holds", "tanh",
    "teacher_force", "top_k", "top_k_rows",
}  # fmt: skip
METHODS = {Path("pipeline/methods"), Path("pipeline/dialog/methods")}  # their functions have the names of params.yaml
ENTRY_POINTS = {"__init__", "__main__"}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
MAX_WORDS = 25  # in a sentence
DOCUMENTS = ("*.md", "docs/**/*.md", "profiles/**/*.md", "results/*.md", "data/*.md")
BLOCKS = re.compile(
    r"""
    ^<!--\ results:.*?<!--\ end\ -->   # written by pipeline.report.documents
    | ^\ *```.*?^\ *```$                # code
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
HEADINGS_AND_TABLES = re.compile(r"^(?:#| *\|)[^\n]*$", re.MULTILINE)
# doctests, indented blocks and columns
NOT_PROSE_IN_DOCSTRINGS = re.compile(r"^>>> .*?(?=\n\n|\Z)|^    [^\n]*$|^[^\n]*\S  [^\n]*$", re.MULTILINE | re.DOTALL)


@cache
def parse_package(package: str) -> list[tuple[Path, ast.Module]]:
    return [
        (path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


def parse_packages(*packages: str) -> Iterator[tuple[Path, ast.Module]]:
    for package in packages:
        yield from parse_package(package)


def test_the_name_of_a_public_class_stands_once():
    paths_by_name = defaultdict(list)
    for path, tree in parse_packages(*PACKAGES):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                paths_by_name[node.name].append(path.as_posix())
    assert len(paths_by_name) > 300
    assert {name: paths for name, paths in paths_by_name.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("packages", [("pipeline",), ("saywhich",)])
def test_the_name_of_a_module_stands_once(packages):
    """Commands and stages are named by the verb that a user types, so they may share a name with a module."""
    stems = [
        path.stem
        for path, _ in parse_packages(*packages)
        if path.stem not in ENTRY_POINTS and path.parent.name != "commands"
    ]
    assert [stem for stem, count in Counter(stems).items() if count > 1] == []


def find_participles(tree: ast.Module) -> list[str]:
    """Return the public functions named by a participle, such as `opened` or `naming_files`, except properties."""
    functions = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]
    return [
        name
        for name in functions
        if re.match(r"[a-z]+ed$|[a-z]+ing(_|$)", name) and name.partition("_")[0] not in NO_PARTICIPLES
    ]


def test_functions_are_not_named_by_participles():
    text = "def opened(): ...\ndef naming_files(): ...\ndef open_file(): ...\n@property\ndef failed(self): ..."
    assert find_participles(ast.parse(text)) == ["opened", "naming_files"]
    assert [
        f"{path}: {name}"
        for path, tree in parse_packages(*PACKAGES, "tests", "benchmarks")
        for name in find_participles(tree)
        if not name.startswith("test_")
    ] == []


def find_nouns(tree: ast.Module, verbs: set[str]) -> list[str]:
    """Return the public functions of a module whose names do not begin with a verb, except the exceptions above."""
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and node.name.partition("_")[0] not in verbs | VERBS | PREDICATES | CONVERSIONS
        and not node.name.endswith(("_forward", "_backward"))
        and node.name not in NOUNS
    ]


def test_names_of_functions_begin_with_a_verb():
    """A docstring opens with a verb, so the openers of all docstrings are verbs that a name may begin with, too."""
    openers = {
        doc.split()[0].lower()
        for _, tree in parse_packages(*PACKAGES)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (doc := ast.get_docstring(node))
    }
    text = "def table(): ...\ndef build_table(): ...\ndef _table(): ...\ndef is_table(): ..."
    assert find_nouns(ast.parse(text), openers) == ["table"]
    assert [
        f"{path}: {name}"
        for path, tree in parse_packages(*PACKAGES)
        if path.parent not in METHODS
        for name in find_nouns(tree, openers)
    ] == []


def find_noun_phrases(tree: ast.Module) -> list[str]:
    """Return the first lines of the functions' docstrings that open with a determiner, except in tests."""
    return [
        doc.splitlines()[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("test_")
        and (doc := ast.get_docstring(node))
        and doc.split()[0].strip(",.:").lower() in ARTICLES
    ]


def test_docstrings_of_functions_open_with_a_verb():
    """The test recognises noun phrases by their determiner alone."""
    text = 'def open_file():\n    """The open file."""\ndef test_x():\n    """The file is open."""\n'
    assert find_noun_phrases(ast.parse(text)) == ["The open file."]
    assert [
        f"{path}: {line}"
        for path, tree in parse_packages(*PACKAGES, "tests", "benchmarks")
        for line in find_noun_phrases(tree)
    ] == []


def test_no_docstring_opens_without_a_verb_or_a_subject():
    found = [
        f"{path}: {doc.splitlines()[0]}"
        for path, tree in parse_packages(*PACKAGES, "tests", "benchmarks")
        for node in ast.walk(tree)
        if isinstance(node, Documented)
        and (doc := ast.get_docstring(node))
        and doc.split()[0].strip(",.:").lower() in OPENERS
    ]
    assert found == []


def find_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the first word of each comment; consecutive comment lines count as one comment."""
    last = 0  # the latest line that is only a comment
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, words, whole = token.start[0], token.string.lstrip("#").split(), token.line.lstrip().startswith("#")
            if words and not (whole and line == last + 1):
                yield line, words[0].strip(",.:").lower()
            last = line if whole else last


def test_no_comment_opens_without_a_verb_or_a_subject():
    assert list(find_comments("x = 1  # Of it\n# one\n# what\n\n# two\n")) == [(1, "of"), (2, "one"), (5, "two")]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for package in (*PACKAGES, "tests", "benchmarks")
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, word in find_comments(path.read_text(encoding="utf-8"))
        if word in COMMENT_OPENERS or (word == "of" and package in PACKAGES)
    ]
    assert found == []


def find_undocumented(tree: ast.Module) -> list[str]:
    """Return the public classes and functions of a module that have no docstring; overloads need none."""
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)
    ]


def test_public_classes_and_functions_have_docstrings():
    text = "class A:\n x = 1\n@overload\ndef f(): ...\ndef g():\n 'Return 1.'\ndef h(): ...\ndef _h(): ..."
    assert find_undocumented(ast.parse(text)) == ["A", "h"]
    assert [f"{path}: {name}" for path, tree in parse_packages(*PACKAGES) for name in find_undocumented(tree)] == []


def find_long_sentences(prose: str) -> list[str]:
    """Return the sentences with more than `MAX_WORDS` words, in paragraphs and items of lists.

    Inline code and quotations count as one word, and addresses of links as none.
    """
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose):
        text = re.sub(r"`+[^`]*`+|“[^”]*?([.!?]?)”", r"code\1", paragraph)
        text = re.sub(r"(?<=\])\([^)]*\)|<!--.*?-->", "", text, flags=re.DOTALL)
        text = re.sub(r"\b(al|e\.g|i\.e)\.", r"\1", text)
        sentences = re.split(r"(?<=[.!?])[\"')\]*]*\s+", text)
        found += [
            " ".join(sentence.split())
            for sentence in sentences
            if sum(bool(re.search(r"\w", word)) for word in sentence.split()) > MAX_WORDS
        ]
    return found


def test_long_sentences_are_found():
    words = "word " * 24
    short, long = f"{words}word.", f"{words}word word."
    assert find_long_sentences(f"{short} {short}\n\n- {words}\n- {words}") == []
    assert find_long_sentences(f"{short} {long} {short}") == [long]
    assert find_long_sentences(f"{words}[`a b c`](a b c) (Luo et al. 2018).") == [f"{words}[code] (Luo et al 2018)."]


def test_sentences_of_docstrings_are_short():
    found = [
        f"{path}: {sentence}"
        for path, tree in parse_packages(*PACKAGES, "tests", "benchmarks")
        for node in ast.walk(tree)
        if isinstance(node, Documented) and (doc := ast.get_docstring(node))
        for sentence in find_long_sentences(NOT_PROSE_IN_DOCSTRINGS.sub("", doc))
    ]
    assert found == []


def iterate_cells(text: str) -> Iterator[str]:
    """Yield the cells of the tables of a document, except those in code and in tables of recorded results."""
    for line in BLOCKS.sub("", text).splitlines():
        if line.lstrip().startswith("|"):
            yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1])


def test_cells_of_tables_are_found():
    table = "| a | b \\| c |\n| --- | --- |\n"
    blocks = f"```\n{table}```\n<!-- results: films | Claims -->\n{table}<!-- end -->\n"
    assert list(iterate_cells(f"# d | e\n{blocks}\n  {table}")) == ["a", "b \\| c", "---", "---"]


def test_sentences_of_documents_are_short():
    """Entries of versions in CHANGELOG.md stay as they were published."""
    paths = [path for pattern in DOCUMENTS for path in sorted(ROOT.glob(pattern))]
    assert len(paths) > 30
    texts = {path: re.split(r"^## \d", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[0] for path in paths}
    assert sum(len(list(iterate_cells(text))) for text in texts.values()) > 1000
    found = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path, text in texts.items()
        for prose in (HEADINGS_AND_TABLES.sub("", BLOCKS.sub("", text)), *iterate_cells(text))
        for sentence in find_long_sentences(prose)
    ]
    assert found == []
