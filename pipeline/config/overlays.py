"""Profiles: profiles/NAME.yaml holds the differences from the profile that `extends` names, by default base.yaml.

Sections listed in brackets under its key `replace` replace those of the lower profile as a whole.

python -m pipeline.config.overlays NAME writes params.yaml. Its lines are those of the profiles, comments
included: ruamel.yaml gives the position of each key, and no value is reformatted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from pipeline.config.reading import compose, did_you_mean, read_yaml_text
from pipeline.config.renamed_keys import RENAMED
from pipeline.errors import UserError
from pipeline.runtime.command import run_command
from pipeline.runtime.files import write_atomically

PROFILES, PARAMS = Path("profiles"), Path("params.yaml")
NO_PROFILES = ("base", "environment")
WHOLE = (("draw",), ("methods",), ("sweep", "grid"))  # replaced as one value, like mappings in braces


@dataclass(frozen=True)
class ProfileLine:
    """A key as it is written, without its indentation."""

    above: list[str]  # comments and blank lines
    line: str
    comment: str  # at the end of that line
    rest: list[str]  # further lines of a value that is not a section
    section: dict[str, ProfileLine]  # merged key by key


def profile_names(folder: Path = PROFILES) -> list[str]:
    """Return the names of the profiles in `folder`."""
    return sorted(path.stem for path in folder.glob("*.yaml") if path.stem not in NO_PROFILES)


def profile_text(name: str, folder: Path = PROFILES) -> str:
    """Return the text of the parameter file of the profile `name`. Raises UserError for an error in a profile."""
    if name not in profile_names(folder):
        raise UserError(f"PROFILE={name}: no such profile; {did_you_mean(name, profile_names(folder))}")
    profile = _profile(folder / f"{name}.yaml", ())
    return "\n".join([*profile.above, *_written(profile.section)]) + "\n"


def _profile(path: Path, above: tuple[str, ...]) -> ProfileLine:
    """Return a profile merged with those below it; `above` names the profiles over it. The head comment is its own."""
    text = read_yaml_text(path)
    tree, lines = compose(text, str(path)), text.splitlines()
    section = _section(lines, tree, 0, ()) if tree else {}
    head = section[next(iter(section))].above if section else lines
    own = ProfileLine([line for line in head if line], "", "", [], section)
    head.clear()
    for former in ("over", "instead"):
        if former in section:
            raise UserError(f"{path}: {former}: this key is now {RENAMED[former]}; rename it")
    replaced = _words(section.pop("replace", None))
    if path.stem == "base":
        return own
    (over,) = _words(section.pop("extends", None)) or ["base"]
    if over in (path.stem, *above) or over not in ("base", *profile_names(path.parent)):
        raise UserError(
            f"{path}: extends: {over} is no other profile; {did_you_mean(over, profile_names(path.parent))}"
        )
    below = _profile(path.with_name(f"{over}.yaml"), (path.stem, *above))
    for name in replaced:
        if name not in below.section:
            raise UserError(f"{path}: replace: {name} is no section of {over}; {did_you_mean(name, below.section)}")
        below.section[name] = replace(below.section[name], section={}, rest=[], line=own.section[name].line)
    return _laid(below, own, str(path))


def _words(entry: ProfileLine | None) -> list[str]:
    """Return the value of a key as it is written: a word, or several in brackets."""
    value = "" if entry is None else entry.line.partition(":")[2].strip(" []")
    return [word.strip() for word in value.split(",")] if value else []


def _section(lines: Sequence[str], tree: Any, begin: int, keys: tuple[str, ...]) -> dict[str, ProfileLine]:
    """Return the keys of a mapping with one key per line. The comments above the first key start at line `begin`."""
    found = {}
    for key, value in tree.value:
        first, column, place = key.start_mark.line, key.start_mark.column, (*keys, key.value)
        block = isinstance(value.value, list) and not value.flow_style
        section = block and value.id == "mapping" and place not in WHOLE
        stop = len(lines[first]) if value.end_mark.line > first else value.end_mark.column
        stop = key.end_mark.column + 1 if block else stop
        found[key.value] = ProfileLine(
            above=[line.strip() for line in lines[begin:first]],
            line=lines[first][column:stop].rstrip(),
            comment=lines[first][stop:].strip(),
            rest=[] if section else [line[column:] for line in lines[first + 1 : _end(value)]],
            section=_section(lines, value, first + 1, place) if section else {},
        )
        begin = _end(value)
    return found


def _end(tree: Any) -> int:
    """Return the number of the line after a value. Comments after a block belong to the next key."""
    if isinstance(tree.value, list) and tree.value and not tree.flow_style:
        last = tree.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return tree.end_mark.line + bool(tree.end_mark.column)


def _laid(below: ProfileLine, above: ProfileLine, place: str) -> ProfileLine:
    """Merge `above` over `below`. A comment of `below` stays where `above` has none in its place."""
    merged = dict(below.section)
    for key, entry in above.section.items():
        under = merged.get(key, entry)
        if under.section and not entry.section:
            raise UserError(f"{place}: {key} is a section: write its keys one per line, below it")
        merged[key] = _laid(under, entry, place)
    lead = above.above if any(above.above) else below.above
    return replace(above, above=lead, comment=above.comment or below.comment, section=merged)


def _written(section: dict[str, ProfileLine], depth: int = 0) -> Iterator[str]:
    for entry in section.values():
        for line in (*entry.above, f"{entry.line} {entry.comment}", *entry.rest):
            yield ("  " * depth + line).rstrip()
        yield from _written(entry.section, depth + 1)


def main(arguments: Sequence[str]) -> int:
    """Write the profile NAME to params.yaml. A params.yaml that equals no profile is kept under another name."""

    def work() -> None:
        if len(arguments) != 1:
            raise UserError(f"usage: python -m pipeline.config.overlays NAME; there are {', '.join(profile_names())}")
        text, there = profile_text(arguments[0]), read_yaml_text(PARAMS) if PARAMS.exists() else None
        if there not in (None, text) and there not in map(profile_text, profile_names()):
            kept = next(path for n in count(1) if not (path := Path(f"{PARAMS}.bak{n if n > 1 else ''}")).exists())
            PARAMS.rename(kept)
            print(f"{PARAMS} was changed by hand: it is kept as {kept}")
        if there != text:
            write_atomically(PARAMS, text)
            print(f"{PARAMS} is now the profile {arguments[0]}")

    return run_command("profile", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
