"""Every command in the documents exists: targets of make, profiles, modules, files, stages, commands of saywhich."""

import re
import shlex
from argparse import ArgumentParser, _SubParsersAction
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest
import yaml
from whole_profiles import PROFILES

from pipeline.config.overlays import Composition
from pipeline.errors import UserError
from pipeline.report.recording import COMMANDS

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs/**", "profiles/**", "results", "data")
DOCUMENTS = [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/*.md"))]
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
RULES = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
TARGETS = {target for rule in RULES for target in rule.split()}
STAGES = set(yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"])


def read_commands(path: Path) -> list[list[str]]:
    """Return the words of each command in a document's blocks of shell.

    A bar within brackets separates alternatives, and a line that begins with a bracket continues the line before.
    """
    blocks = "\n".join(BLOCK.findall(path.read_text(encoding="utf-8")))
    lines = re.sub(r"\\\n|\n +(?=\[)", " ", blocks).splitlines()
    parts = [part for line in lines for part in re.split(r"&&|;| \| (?![^\[]*\])", re.sub(r"(^| )#.*", "", line))]
    return [words for part in parts if (words := shlex.split(part))]


def find_unknown_names(command: list[str], document_profiles: set[str]) -> str | None:
    """Return names in a command that do not exist, or None if all exist.

    `document_profiles` are the profiles that the document writes.
    """
    while command and re.fullmatch(r"[A-Z_]+=\S+", command[0]):
        command = command[1:]
    if not command:
        return None
    program, *rest = command
    if program == "make":
        settings = dict(word.split("=", 1) for word in rest if "=" in word)
        unknown = {word for word in rest if "=" not in word} - TARGETS
        profile = settings.get("PROFILE", "scenes").partition("@")[0]
        if profile not in {*COMMANDS, *document_profiles, *PROFILES.list_names()}:
            unknown.add(f"PROFILE={profile}")
        if overlays := {word.lower(): name for word, name in settings.items() if word in ("DATA", "METHODS", "GRID")}:
            try:
                PROFILES.compose(Composition(**{"data": "scenes"} | overlays))
            except UserError as error:
                unknown.add(str(error))
        return ", ".join(unknown) or None
    if program == "python" and rest[0].endswith(".py"):
        return None if (ROOT / rest[0]).exists() else rest[0]
    if program == "python" and rest[0] == "-m" and rest[1] != "pytest":
        return None if find_spec(rest[1]) else rest[1]
    if program == "python" and rest[0] == "-m":
        return next((word for word in rest[2:] if "/" in word and not (ROOT / word.partition("::")[0]).exists()), None)
    if program == "snakemake":
        files = [rest[n + 1] for n, word in enumerate(rest) if word in ("-s", "--workflow-profile", "--profile")]
        return next((file for file in files if not (ROOT / file).exists()), None)
    if command[:2] == ["dvc", "repro"]:
        stages = [word.partition("@")[0] for word in rest[1:] if not word.startswith("-")]
        return next((stage for stage in stages if stage not in STAGES), None)
    if program == "saywhich":
        if not find_spec(f"saywhich.commands.{rest[0]}"):
            return rest[0]
        parser = ArgumentParser()
        import_module(f"saywhich.commands.{rest[0]}").add(parser)
        options = {word for part in rest for word in re.findall(r"--[a-z][a-z-]*", part)}
        return ", ".join(sorted(options - list_options(parser))) or None
    return None


def list_options(parser: ArgumentParser) -> set[str]:
    """Return the options of a parser and of its subcommands."""
    subparsers = [action.choices.values() for action in parser._actions if isinstance(action, _SubParsersAction)]
    return {"--help", *parser._option_string_actions, *chain.from_iterable(map(list_options, chain(*subparsers)))}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_of_the_documents_exists(path):
    text, found = path.read_text(encoding="utf-8"), []
    document_profiles = set(re.findall(r"^# profiles/(\w+)\.yaml$", text, re.MULTILINE))
    for command in read_commands(path):
        if missing := find_unknown_names(command, document_profiles):
            found.append(f"{shlex.join(command)}: {missing}")
    assert found == []


def test_commands_end_at_pipes_and_continue_over_alternatives(tmp_path):
    text = (
        "```sh\nsaywhich find A|B [--x [--y] | --z]\n    [--v | --w] # note\nmake a | tee b && dvc repro \\\n c\n```\n"
    )
    (tmp_path / "page.md").write_text(text)
    assert [" ".join(words) for words in read_commands(tmp_path / "page.md")] == [
        "saywhich find A|B [--x [--y] | --z] [--v | --w]", "make a", "tee b", "dvc repro c",
    ]  # fmt: skip


def test_an_unknown_command_in_a_document_is_detected():
    for line, missing in (
        ("make nothing", "nothing"),
        ("make repro PROFILE=nowhere", "PROFILE=nowhere"),
        ("make repro DATA=films METHODS=nothing", "METHODS=nothing: DATA=films has none of that name; allowed: "),
        ("python -m stages.nothing", "stages.nothing"),
        ("python benchmarks/nothing.py --times 1", "benchmarks/nothing.py"),
        ("python -m pytest tests/nothing.py -k x", "tests/nothing.py"),
        ("SAYWHICH_PROCESSES=4 dvc repro nothing@mle", "nothing"),
        ("snakemake -s nothing.smk --cores 2", "nothing.smk"),
        ("saywhich nothing a.jpg", "nothing"),
        ("saywhich judge a.json --images photos [--metric CIDEr]", "--metric"),
    ):
        found = find_unknown_names(shlex.split(line), set())
        assert found == missing or (missing.endswith(": ") and found.startswith(missing))
    assert sum(len(read_commands(path)) for path in DOCUMENTS) > 50
