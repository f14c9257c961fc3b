"""Profiles: parameter files composed of data, methods and a grid, from the files in profiles/.

    python -m pipeline.config.overlays [NAME] [--data DATA] [--methods METHODS] [--grid GRID] [--start START]

writes params.yaml. START is the top-level seed, of drawn data and of all trainings except those of detectors, whose own
seeds change by the same amount. A file `profiles/DATA.yaml` holds the sections that differ from the file that `extends`
names, by default base.yaml. `replace: [section]` drops a section of that file first. Four more keys hold named layers:

    variants       further data sets or speakers, as DATA; a variant may itself extend one of the same file
    method_sets    METHODS: methods, with the sections that they need
    grids          GRID: seeds and values to sweep; by default the grid that is named like METHODS
    profiles       NAME: {data: …, methods: …, grid: …}; a file and a variant are profiles, too

A method set or a grid of base.yaml applies to all data; layers of the same name in extending files override it. The
file base.yaml itself is no profile, and its variants and profiles are not used. Values may be anchored (`&name`) and
repeated (`*name`, `<<: *name`) within a file. Lines are kept as they are written, comments included:
ruamel.yaml gives the position of each key, and no value is reformatted.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from pipeline.config.dvc_rewriting import remove_comment, remove_layout
from pipeline.config.reading import compose_node, parse_yaml, read_yaml_text, show_value, suggest_words
from pipeline.config.renamed_keys import RENAMED
from pipeline.errors import UserError
from pipeline.runtime.command import run_command
from pipeline.runtime.files import compute_sha256, write_atomically

PROFILES, PARAMS = Path("profiles"), Path("params.yaml")
WRITTEN_DIGEST = Path(".dvc/tmp/profile.sha256")  # a digest of the params.yaml that this command wrote last
BASE, NO_PROFILES = "base", ("environment",)
ATOMIC_SECTIONS = (("draw",), ("methods",), ("sweep", "grid"))  # replaced as one value, like mappings in braces
VARIANTS, METHOD_SETS, GRIDS, NAMES = GROUPS = ("variants", "method_sets", "grids", "profiles")
SEED = re.compile(r"^seed: (\d+)", re.MULTILINE)
DETECTOR_SEED = re.compile(r"(^ +detector:\s*\{[^}]*\bseed:\s*)(\d+)", re.MULTILINE)
ANCHOR, ALIAS, MERGE = re.compile(r"(?<=: )&(\w+) "), re.compile(r"(?<=: )\*(\w+)"), re.compile(r"\{<<: \*(\w+)")


@dataclass(frozen=True)
class Composition:
    """Parts of a profile: a file or variant, a method set and a grid.

    Empty `methods` add nothing. An empty `grid` stands for the grid that is named like `methods`, if there is one.
    """

    data: str
    methods: str = ""
    grid: str = ""


@dataclass(frozen=True)
class ProfileLine:
    """Key of a profile with its value and comments, as written, without indentation."""

    above: list[str]  # comments and blank lines
    line: str
    comment: str  # at the end of that line
    rest: list[str]  # further lines of a value that is not a section
    section: dict[str, ProfileLine]  # merged key by key


@dataclass(frozen=True)
class ProfileFile:
    """A file of profiles/: its sections, and its named layers by group."""

    path: Path
    head: list[str]
    sections: ProfileLine
    groups: Mapping[str, dict[str, ProfileLine]] = field(default_factory=dict)


class Profiles:
    """Profiles of a folder, from its files and the named layers in them."""

    def __init__(self, folder: Path = PROFILES) -> None:
        """Read the files of `folder`. Raises UserError for an error in any of them."""
        paths = sorted(path for path in folder.glob("*.yaml") if path.stem not in NO_PROFILES)
        self.files = {path.stem: _read_file(path) for path in paths}
        file_names = [name for name in self.files if name != BASE]
        self.data = {name: name for name in file_names}  # each name of DATA, and the file that defines it
        for file in file_names:
            for name in self.files[file].groups[VARIANTS]:
                if name in self.data:
                    raise UserError(
                        f"{self.files[file].path}: variants: {name} is in {self.data[name]}.yaml, too; rename it"
                    )
                self.data[name] = file
        self.named = {name: Composition(name) for name in self.data}
        for file in file_names:
            for name, entry in self.files[file].groups[NAMES].items():
                if name in self.named and self.data.get(name) != file:
                    raise UserError(f"{self.files[file].path}: profiles: {name} is in another file, too; rename it")
                text = "\n".join([entry.line, *entry.rest])
                (value,) = parse_yaml(text, f"{self.files[file].path}: profiles").values()
                self.named[name] = self._parse_composition(file, name, value)

    def list_names(self) -> list[str]:
        """Return the names of the profiles."""
        return sorted(self.named)

    def compose_named(self, name: str) -> str:
        """Return the text of the parameter file of the profile `name`. Raises UserError for an unknown name."""
        if name not in self.named:
            raise UserError(f"PROFILE={name}: no such profile; {suggest_words(name, self.list_names())}")
        composition = self.named[name]
        entries = self.files[self.data[composition.data]].groups[NAMES]
        return self.compose(composition, [line for line in entries[name].above if line] if name in entries else [])

    def compose(self, composition: Composition, head: Sequence[str] = ()) -> str:
        """Return the text of the parameter file of `composition`, below the comment `head`.

        An empty `head` stands for the comment of the data. Raises UserError for unknown names.
        """
        data, methods, grid = composition.data, composition.methods, composition.grid or composition.methods
        if data not in self.data:
            raise UserError(f"DATA={data}: no such data; {suggest_words(data, sorted(self.data))}")
        chain = self._list_chain(self.data[data])
        top = chain[-1]
        layers = [(str(file.path), file.sections) for file in chain]
        variants = self._list_variants(top, data, ()) if data in top.groups[VARIANTS] else []
        layers += [(f"{top.path}: {data}", layer) for layer in variants]
        for group, word, name in ((METHOD_SETS, "METHODS", methods), (GRIDS, "GRID", grid)):
            group_layers = [file.groups[group][name] for file in chain if name in file.groups[group]]
            if name and not group_layers and (group == METHOD_SETS or composition.grid):
                names = sorted({key for file in chain for key in file.groups[group]})
                raise UserError(f"{word}={name}: DATA={data} has none of that name; {suggest_words(name, names)}")
            layers += [(f"{group}: {name}", layer) for layer in group_layers]
        merged = ProfileLine([], "", "", [], {})
        for source, layer in layers:
            merged = _merge_layer(merged, layer, source)
        comment_lines = head or [line for layer in variants[-1:] for line in layer.above if line] or top.head
        return "\n".join([*comment_lines, *_format_lines(merged.section)]) + "\n"

    def _parse_composition(self, file: str, name: str, parts: Any) -> Composition:
        source = f"{self.files[file].path}: profiles: {name}"
        if (
            not isinstance(parts, dict)
            or parts.keys() - {"data", "methods", "grid"}
            or not all(isinstance(value, str | None) for value in parts.values())
        ):
            raise UserError(
                f"{source}: expected {{data: …, methods: …, grid: …}} with names, all of them optional, got "
                f"{show_value(parts)}; correct it"
            )
        composition = Composition(**{"data": file} | parts)
        if self.data.get(composition.data) != file:
            raise UserError(
                f"{source}: data: {composition.data} is neither {file} nor a variant in this file; name one"
            )
        return composition

    def _list_chain(self, name: str, visited: tuple[str, ...] = ()) -> list[ProfileFile]:
        """Return the files that `name` extends, from base.yaml on, then its own; `visited`: files that extend `name`.

        Raises UserError for an unknown file under `extends`, and for files that extend each other.
        """
        file = self.files[name]
        if name == BASE:
            return [file]
        parent = _read_extended_name(file.sections, str(file.path)) or BASE
        if parent in (name, *visited) or parent not in self.files:
            others = sorted(self.files.keys() - {name, *visited})
            raise UserError(f"{file.path}: extends: {parent} is no other file; {suggest_words(parent, others)}")
        return [*self._list_chain(parent, (name, *visited)), file]

    def _list_variants(self, file: ProfileFile, name: str, visited: tuple[str, ...]) -> list[ProfileLine]:
        """Return the layers of the variant `name` of `file`: the variants that `name` extends, then its own.

        Raises UserError for an unknown variant under `extends`, and for variants that extend each other.
        """
        variants = file.groups[VARIANTS]
        parent = _read_extended_name(variants[name], f"{file.path}: {name}")
        if parent is None:
            return [variants[name]]
        if parent in (name, *visited) or parent not in variants:
            others = sorted(variants.keys() - {name, *visited})
            raise UserError(
                f"{file.path}: {name}: extends: {parent} is no other variant of this file; "
                f"{suggest_words(parent, others)}"
            )
        return [*self._list_variants(file, parent, (name, *visited)), variants[name]]


def compose_profile_text(name: str, folder: Path = PROFILES) -> str:
    """Return the text of the parameter file of the profile `name`. Raises UserError for an error in a profile."""
    return Profiles(folder).compose_named(name)


def identify_profile(text: str, folder: Path = PROFILES) -> str | None:
    """Return the name of the profile whose parameter file is `text`, with any start; None where there is none.

    A file that DVC has rewritten with equal values counts as the profile's. Raises UserError for an error in a profile.
    """
    profiles, given_lines, start = Profiles(folder), remove_layout(text), _read_start(text)
    return next(
        (n for n in profiles.list_names() if remove_layout(set_start(profiles.compose_named(n), start)) == given_lines),
        None,
    )


def find_nearest_profile(text: str, names: Collection[str], profiles: Profiles) -> tuple[str, list[str]]:
    """Return the profile of `names` that lacks the fewest lines of `text`, and these lines, without comments."""
    given_lines, start = _list_values(text), _read_start(text)
    differing = {}
    for name in names:
        profile_lines = _list_values(set_start(profiles.compose_named(name), start))
        lines = list(difflib.unified_diff(profile_lines, given_lines, n=0, lineterm=""))[2:]
        differing[name] = [line[1:].strip() for line in lines if line[0] == "+"]
    nearest = min(differing, key=lambda name: len(differing[name]))
    return nearest, differing[nearest]


def _list_values(text: str) -> list[str]:
    """Return the lines of a parameter file without layout, comments and blank lines."""
    return [line for line in map(remove_comment, remove_layout(text)) if line.strip()]


def set_start(text: str, start: int | None) -> str:
    """Return the parameter file `text` with the seed `start`; the seeds of its detectors change by the same amount.

    If `start` is None or `text` has no top-level seed, `text` is returned unchanged. Other image networks have no
    seed, so that their features are not computed again.
    """
    current_start = _read_start(text)
    if start is None or current_start is None:
        return text
    added = start - current_start
    text = SEED.sub(f"seed: {start}", text, count=1)
    return DETECTOR_SEED.sub(lambda match: f"{match[1]}{int(match[2]) + added}", text)


def _read_start(text: str) -> int | None:
    """Return the top-level seed of the parameter file `text`; None where it has none."""
    seed = SEED.search(text)
    return int(seed[1]) if seed else None


def _read_file(path: Path) -> ProfileFile:
    """Read a file of profiles/. The comment at its head belongs to the file, not to its first section.

    Raises UserError for an unreadable file, invalid YAML, a former name of `extends` or `replace`, and layers whose
    keys are not one per line.
    """
    text = _expand_aliases(read_yaml_text(path), path)
    tree, lines = compose_node(text, str(path)), text.splitlines()
    section = _read_section(lines, tree, 0, ()) if tree else {}
    head = section[next(iter(section))].above if section else lines
    head_comment = [line for line in head if line]
    head.clear()
    for former in ("over", "instead"):
        if former in section:
            raise UserError(f"{path}: {former}: this key is now {RENAMED[former]}; rename it")
    groups: dict[str, dict[str, ProfileLine]] = {}
    for group in GROUPS:
        groups[group] = _require_keys(section.pop(group), f"{path}: {group}") if group in section else {}
        for name, layer in groups[group].items() if group != NAMES else ():
            _require_keys(layer, f"{path}: {group}: {name}")
    return ProfileFile(path, head_comment, ProfileLine([], "", "", [], section), groups)


def _require_keys(entry: ProfileLine, source: str) -> dict[str, ProfileLine]:
    """Return the keys below an entry, one per line. Raises UserError where its value is neither such keys nor empty."""
    if not entry.section and (entry.rest or entry.line.partition(":")[2].strip() not in ("", "{}", "null")):
        raise UserError(f"{source}: expected one key per line below it, got another value; write its keys there")
    return entry.section


def _expand_aliases(text: str, path: Path) -> str:
    """Return `text` with each repeated value written out; `&name` marks a mapping in braces on one line.

    `*name` stands for the whole mapping, `{<<: *name, key: value}` for the mapping with `key` set. Raises UserError
    for an unknown name, and for a name of another value than a mapping in braces on one line.
    """
    values: dict[str, str] = {}

    def look_up(name: str) -> str:
        if name not in values:
            raise UserError(f"{path}: *{name}: no &{name} above; allowed: {', '.join(values) or 'none'}")
        return values[name]

    def expand(line: str) -> str:
        while merge := MERGE.search(line):
            whole = _read_braces(line[merge.start() :], f"{path}: *{merge[1]}")
            overrides = {key: entry for key, entry in _split_entries(whole).items() if key != "<<"}
            line = line.replace(whole, f"{{{', '.join((_split_entries(look_up(merge[1])) | overrides).values())}}}", 1)
        line = ALIAS.sub(lambda alias: look_up(alias[1]), line)
        while anchor := ANCHOR.search(line):
            values[anchor[1]] = _read_braces(line[anchor.end() :], f"{path}: &{anchor[1]}")
            line = line[: anchor.start()] + line[anchor.end() :]
        return line

    lines = [line if line.lstrip().startswith("#") else expand(line) for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def _read_braces(text: str, source: str) -> str:
    """Return the mapping in braces at the beginning of `text`. Raises UserError where there is none."""
    depth = 0
    for n, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if not depth:
            if n:
                return text[: n + 1]
            break
    raise UserError(f"{source}: expected a mapping in braces on one line, got another value; write {{key: value, …}}")


def _split_entries(braces: str) -> dict[str, str]:
    """Return the entries of a mapping in braces by key, each as it is written."""
    entries, depth = [""], 0
    for letter in braces[1:-1]:
        depth += (letter in "{[") - (letter in "}]")
        if letter == "," and not depth:
            entries.append("")
        else:
            entries[-1] += letter
    return {entry.partition(":")[0].strip(): entry.strip() for entry in entries if entry.strip()}


def _merge_layer(base: ProfileLine, layer: ProfileLine, source: str) -> ProfileLine:
    """Merge the sections of `layer` over `base`; `layer` replaces the sections that its key `replace` names.

    Raises UserError for a replaced section that `layer` or `base` lacks, and for a plain value over a section.
    """
    layer_sections = {key: entry for key, entry in layer.section.items() if key not in ("extends", "replace")}
    sections = dict(base.section)
    for name in _list_words(layer, "replace", source):
        if name not in sections or name not in layer_sections:
            raise UserError(
                f"{source}: replace: {name} must be a section of this layer and of an earlier one; "
                f"{suggest_words(name, [key for key in sections if name not in sections or key in layer_sections])}"
            )
        sections[name] = replace(sections[name], section={}, rest=[], line=layer_sections[name].line)
    merged = _merge_keys(replace(base, section=sections), replace(layer, section=layer_sections), source)
    return replace(merged, above=[])


def _list_words(layer: ProfileLine, key: str, source: str) -> list[str]:
    """Return the words in the value of a layer's `key`: one word, or a list in brackets; [] where it is missing.

    Raises UserError where the value stands below its key, and not on the key's line.
    """
    entry = layer.section.get(key)
    if entry is None:
        return []
    if entry.rest or entry.section:
        raise UserError(
            f"{source}: {key}: expected a name, or names in brackets, on the line of the key, got lines below it"
        )
    value = entry.line.partition(":")[2].strip(" []")
    return [word.strip() for word in value.split(",")] if value else []


def _read_extended_name(layer: ProfileLine, source: str) -> str | None:
    """Return the name under the key `extends` of a layer; None where there is none. Raises UserError for several."""
    names = _list_words(layer, "extends", source)
    if len(names) > 1:
        raise UserError(f"{source}: extends: expected one name, got {', '.join(names)}; keep one")
    return names[0] if names else None


def _read_section(lines: Sequence[str], tree: Any, begin: int, keys: tuple[str, ...]) -> dict[str, ProfileLine]:
    """Return the keys of a mapping with one key per line. The comments above the first key start at line `begin`."""
    entries = {}
    for key, value in tree.value:
        first, column, key_path = key.start_mark.line, key.start_mark.column, (*keys, key.value)
        block = isinstance(value.value, list) and not value.flow_style
        layer_keys = key_path[2:] if key_path[0] in GROUPS else key_path  # the keys in the sections of a layer
        section = block and value.id == "mapping" and layer_keys not in ATOMIC_SECTIONS
        stop = len(lines[first]) if value.end_mark.line > first else value.end_mark.column
        stop = key.end_mark.column + 1 if block else stop
        entries[key.value] = ProfileLine(
            above=[line.strip() for line in lines[begin:first]],
            line=lines[first][column:stop].rstrip(),
            comment=lines[first][stop:].strip(),
            rest=[] if section else [_unindent(line, column) for line in lines[first + 1 : _find_end(value)]],
            section=_read_section(lines, value, first + 1, key_path) if section else {},
        )
        begin = _find_end(value)
    return entries


def _unindent(line: str, column: int) -> str:
    """Remove the indentation up to `column`; a comment may be indented less."""
    return line[min(column, len(line) - len(line.lstrip())) :]


def _find_end(tree: Any) -> int:
    """Return the number of the line after a value. Comments after a block belong to the next key."""
    if isinstance(tree.value, list) and tree.value and not tree.flow_style:
        last = tree.value[-1]
        return _find_end(last[1] if isinstance(last, tuple) else last)
    return tree.end_mark.line + bool(tree.end_mark.column)


def _merge_keys(base: ProfileLine, layer: ProfileLine, source: str) -> ProfileLine:
    """Merge `layer` over `base`. A comment of `base` stays where `layer` has none for the same key.

    Raises UserError for a plain value over a section.
    """
    merged = dict(base.section)
    for key, entry in layer.section.items():
        base_entry = merged.get(key, entry)
        if base_entry.section and not entry.section:
            raise UserError(f"{source}: {key} is a section: write its keys one per line, below it")
        merged[key] = _merge_keys(base_entry, entry, source)
    lead = layer.above if any(layer.above) else base.above
    return replace(layer, above=lead, comment=layer.comment or base.comment, section=merged)


def _format_lines(section: dict[str, ProfileLine], depth: int = 0) -> Iterator[str]:
    for entry in section.values():
        for line in (*entry.above, f"{entry.line} {entry.comment}", *entry.rest):
            yield ("  " * depth + line).rstrip()
        yield from _format_lines(entry.section, depth + 1)


def _is_changed_by_hand() -> bool:
    """Return whether params.yaml is neither a profile, nor this command's last output, nor the committed file."""
    if WRITTEN_DIGEST.is_file() and WRITTEN_DIGEST.read_text(encoding="ascii", errors="replace") == compute_sha256(
        PARAMS
    ):
        return False
    content = PARAMS.read_bytes()
    with suppress(FileNotFoundError):  # no git
        if subprocess.run(["git", "show", f"HEAD:./{PARAMS}"], capture_output=True).stdout == content:
            return False
    return identify_profile(content.decode()) is None


def main(arguments: Sequence[str]) -> int:
    """Write a profile to params.yaml; return the exit status. A file changed by hand is kept under another name."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.config.overlays", allow_abbrev=False)
    parser.add_argument("name", nargs="?", default="", help="a profile")
    for word in ("data", "methods", "grid"):
        parser.add_argument(f"--{word}", default="")
    parser.add_argument("--start", type=int, default=None, help="the top-level seed; default: the profile's")
    options = parser.parse_args(arguments)

    def write_profile() -> None:
        profiles, data = Profiles(), options.data or "scenes"
        if options.start is not None and options.start < 0:
            raise UserError(f"START={options.start}: expected a seed of 0 or more; give another number")
        if options.name and (options.data or options.methods or options.grid):
            raise UserError("PROFILE: names data, methods and grid itself; leave it out, or DATA, METHODS and GRID")
        if options.name:
            text, title = profiles.compose_named(options.name), f"the profile {options.name}"
        elif not (options.methods or options.grid) and data in profiles.named:
            text, title = profiles.compose_named(data), f"the profile {data}"
        else:
            composition = Composition(data, options.methods, options.grid)
            text = profiles.compose(composition)
            title = "composed of " + ", ".join(filter(None, vars(composition).values()))
        text = set_start(text, options.start)
        title += "" if options.start is None else f", start {options.start}"
        current = read_yaml_text(PARAMS) if PARAMS.exists() else None
        if current not in (None, text) and _is_changed_by_hand():
            copies = (Path(f"{PARAMS}.bak{n if n > 1 else ''}") for n in count(1))
            backup = next(path for path in copies if not path.exists() or path.read_bytes() == PARAMS.read_bytes())
            write_atomically(backup, PARAMS.read_bytes())
            print(f"{PARAMS} was changed by hand: it is kept as {backup}")
        if current != text:
            write_atomically(PARAMS, text)
            print(f"{PARAMS} is now {title}")
        write_atomically(WRITTEN_DIGEST, compute_sha256(PARAMS))

    return run_command("profile", write_profile)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
