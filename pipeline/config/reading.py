"""Parsing of YAML text and `--set key=value` to plain mappings, and validation errors as one line."""

from __future__ import annotations

import difflib
import json
import re
import types
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Tag, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent

from pipeline.config.renamed_keys import find_present_name
from pipeline.errors import UserError, summarise_error

KeyPath = tuple[str, ...]
MAX_DEPTH = 64  # nested brackets, or dashes in a row; the parser's time grows with their square
# Upper bounds of this size or more only limit memory. Messages name such a bound only where a value exceeds it.
MEMORY_BOUND = 1000
UNIONS = (Union, types.UnionType)


def parse_yaml(text: str, source: str) -> Any:
    """Parse the YAML 1.2 document `text` as DVC does. Raises UserError for invalid YAML, with line and column if known.

    Raises UserError, too, for aliases, because a few lines of them can stand for gigabytes. Also raises UserError for
    a line `%YAML` with another version, which DVC's parser ignores, for deep nesting, and for unusual keys and numbers.
    """
    if version := re.search(r"^%YAML[ \t]+(?!1\.2\s)(\S*)", text, re.MULTILINE):
        line = text.count("\n", 0, version.start()) + 1
        raise UserError(f"{source}, line {line}: expected YAML 1.2, got %YAML {version[1]}; remove the line")
    try:
        if _measure_depth(text) > MAX_DEPTH:
            raise UserError(f"{source}: expected at most {MAX_DEPTH} levels of nesting, got more; nest less deeply")
        if "&" in text and "*" in text:
            _refuse_aliases(text, source)
        content = deepcopy(_parse_once(text)[1])
        _refuse_unusual_values(content, source)
        return content
    except UserError:
        raise
    except MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, str(error.problem or error.context)
    except YAMLError as error:
        mark, problem = None, str(error)
    except Exception as error:  # deep nesting, or tags, keys and numbers that Python cannot represent
        mark, problem = None, f"{type(error).__name__}: {summarise_error(error)}"
    if duplicate := re.match('found duplicate key "(.*?)" with value', problem):
        problem = f"the key {duplicate[1]} is given twice; keep one of them"
    elif "'\\t'" in problem:
        problem = "a tab; indent with blanks"
    else:
        problem = f"cannot be read as YAML ({problem}); correct it"
    place = f"{source}, line {mark.line + 1}, column {mark.column + 1}" if mark else source
    raise UserError(f"{place}: {' '.join(problem.split())}")


@lru_cache(maxsize=64)
def _parse_once(text: str) -> tuple[Any, Any]:
    """Return ruamel.yaml's node of the document `text` and its value; cached for repeated calls with one text."""
    yaml = YAML(typ="safe", pure=True)
    node = yaml.compose(text)
    return node, None if node is None else yaml.constructor.construct_document(node)


def _refuse_unusual_values(value: Any, source: str) -> None:
    """Refuse keys that are no text, number, boolean or null, and whole numbers of more than 64 bits."""
    if isinstance(value, int) and value.bit_length() > 64:
        digits = value.bit_length() // 3
        raise UserError(f"{source}: a whole number of about {digits} digits is too large: give at most 64 bits")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str | int | float | None):
                raise UserError(f"{source}: the key {show_value(key)} must be a word or a number")
            _refuse_unusual_values(key, source)
        for inner in value.values():
            _refuse_unusual_values(inner, source)
    elif isinstance(value, list):
        for inner in value:
            _refuse_unusual_values(inner, source)


def _measure_depth(text: str) -> int:
    """Return the depth of brackets, or of eight or more dashes or question marks in a row, in `text`, quoted or not."""
    deepest = depth = 0
    for found in re.finditer(r"[\[{]|[\]}]|(?:[-?] ){8,}", text):
        word = found[0]
        depth += (word in "[{") - (word in "]}")
        deepest = max(deepest, depth, len(word) // 2)
    return deepest


def _refuse_aliases(text: str, source: str) -> None:
    for event in YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, AliasEvent):
            line = event.start_mark.line + 1
            raise UserError(f"{source}, line {line}: *{event.anchor} repeats another value; write the value out")


def compose_node(text: str, source: str) -> Any:
    """Return ruamel.yaml's node of the mapping `text`, with line and column; None if there are only comments.

    Raises UserError for other content than a mapping with one key per line.
    """
    content = parse_yaml(text, source)
    tree = _parse_once(text)[0]
    if tree is not None and (not isinstance(content, dict) or tree.flow_style):
        raise UserError(f"{source}: expected a mapping of sections, got {show_value(content)}; write one key per line")
    return tree


def read_yaml_text(path: Path) -> str:
    """Return the text of a file. Raises UserError where the file is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run from the root of the repository or name a file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); make it a readable UTF-8 file or name another") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises UserError for any other content."""
    content = parse_yaml(read_yaml_text(path), str(path))
    if not isinstance(content, dict):
        raise UserError(f"{path}: must be a mapping of sections (seed: 1, …), and is {show_value(content)}")
    return content


def override(raw: dict[str, Any], assignments: Iterable[str]) -> dict[KeyPath, str]:
    """Write each "a.b=value" of `assignments` into `raw`, in their order; return the assignment of each key path.

    Raises UserError for an assignment without a key or "=", for invalid YAML, and for a key below a plain value.
    """
    origins: dict[KeyPath, str] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        parts = tuple(key.strip().split("."))
        if not equals or not all(parts):
            raise UserError(f"--set {assignment}: expected key=value, as in train.optimisation.epochs=2")
        inner = raw
        for i, part in enumerate(parts[:-1]):
            if inner.get(part) is None:
                inner[part] = {}
            inner = inner[part]
            if not isinstance(inner, dict):
                name = ".".join(parts[: i + 1])
                raise UserError(f"--set {assignment}: {name} = {show_value(inner)} has no keys; set {name} itself")
        inner[parts[-1]] = parse_yaml(text, f"--set {assignment}")
        origins[parts] = f"--set {assignment}"
    return origins


def show_value(value: Any) -> str:
    """Return a value as one line of JSON, shortened to at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def suggest_words(word: str, allowed: Iterable[str]) -> str:
    """Return the allowed words, after the closest match to `word` if there is a close one."""
    names = [str(name) for name in allowed]
    close = difflib.get_close_matches(str(word), names, n=1)
    return (f"did you mean {close[0]}? " if close else "") + f"allowed: {', '.join(names) or 'nothing'}"


def describe_error(error: ValidationError, model: type[BaseModel], prefix: KeyPath = ()) -> tuple[KeyPath, str]:
    """Return the key path of one problem of `error`, and a line with the key, its value and the allowed values.

    `prefix` is the path of `model` in the file. The first unknown key is reported before any other problem,
    since a misspelt key is unknown and leaves the right key missing.
    """
    # pydantic's types of an unknown key of a model, of a dataclass, and of a key that is no text
    unknown_key = ("extra_forbidden", "unexpected_keyword_argument", "invalid_key")
    problem = min(error.errors(), key=lambda problem: problem["type"] not in unknown_key)
    path, allowed, container = _resolve_location(model, tuple(map(str, problem["loc"])))
    value = show_value(problem["input"])
    name = ".".join((*prefix, *path)) or "parameters"
    if problem["type"] in unknown_key:
        assigned = "" if problem["type"] == "invalid_key" else f" = {value}"  # pydantic's input is then the key
        line = f"unknown key {name}{assigned}; {suggest_words(path[-1], list_keys(container))}"
        new = find_present_name((*prefix, *path))
        if new in list_keys(container):
            line = f"{name} = {value}: this key is now {new}; rename it"
    elif problem["loc"] and problem["loc"][-1] == "[key]":
        line = f"{name} is not allowed: {_describe_allowed(get_args(container)[0])}"
    elif problem["type"] == "missing":
        line = f"{name} is missing: {_describe_allowed(allowed)}"
    elif problem["type"] == "value_error":
        line = f"{name}: {problem['ctx']['error']}"
    elif problem["type"] == "less_than_equal" and (limit := problem["ctx"]["le"]) >= MEMORY_BOUND:
        line = f"{name} = {value} is not allowed: a number of at most {int(limit)}"
    else:
        line = f"{name} = {value} is not allowed: {_describe_allowed(allowed)}"
    return (*prefix, *path), line


def list_keys(section: Any) -> dict[str, Any]:
    """Return the keys of a section, a model or a dataclass, and the type of each."""
    if is_dataclass(section):
        hints = get_type_hints(section, include_extras=True)
        return {field.name: hints[field.name] for field in dataclass_fields(section)}
    fields = getattr(section, "model_fields", {})
    return {name: Annotated[field.annotation, None, *field.metadata] for name, field in fields.items()}


def _resolve_location(section: Any, location: KeyPath) -> tuple[KeyPath, Any, Any]:
    """Return the keys of `location` in the file, the type of the last key's value, and the type that contains it.

    `location` is pydantic's, which also has the names of union branches.
    """
    path: list[str] = []
    container = section
    for part in location:
        inner = _strip_range(section)
        if part == "[key]":
            break
        if branches := [each for each in get_args(inner) if Tag(part) in get_args(each)]:
            section = branches[0]
            continue
        if keys := list_keys(inner):
            section = keys.get(part)
        elif get_origin(inner) in (dict, tuple):
            section = get_args(inner)[get_origin(inner) is dict]
        else:
            break
        container = inner
        path.append(part)
    return tuple(path), section, container


def _strip_range(annotation: Any) -> Any:
    """Return a type annotation without its range, and without `| None`."""
    if get_origin(annotation) is Annotated:
        return _strip_range(get_args(annotation)[0])
    branches = [part for part in get_args(annotation) if part is not type(None)]
    return _strip_range(branches[0]) if get_origin(annotation) in UNIONS and len(branches) == 1 else annotation


def _describe_allowed(annotation: Any, *metadata: Any) -> str:
    """Describe the allowed values of a type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _describe_allowed(arguments[0], *metadata, *arguments[1:])
    if origin in UNIONS:
        return " or ".join(_describe_allowed(part, *metadata) for part in arguments)
    if origin is Literal:
        return " | ".join(str(value) for value in arguments)
    if origin in (tuple, list):
        return f"a list, each {_describe_allowed(arguments[0])}{_describe_bounds(metadata)}"
    if origin is dict or annotation is dict:
        return "a mapping"
    if keys := list_keys(annotation):
        return f"a mapping with the keys {', '.join(keys)}"
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Any: "a value"}
    return "null" if annotation is type(None) else words.get(annotation, str(annotation)) + _describe_bounds(metadata)


def _describe_bounds(metadata: Iterable[Any]) -> str:
    words = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}", "min_length": "not empty"}
    words["pattern"] = "of letters, digits and underscores, a letter first"
    items = [item for entry in metadata for item in getattr(entry, "metadata", None) or [entry]]
    bounds = {name: getattr(item, name) for item in items for name in words if getattr(item, name, None) is not None}
    if bounds.get("le", 0) >= MEMORY_BOUND:
        del bounds["le"]
    if bounds.get("min_length", 1) > 1:
        words["min_length"] = "{} of them"
    if "ge" in bounds and "le" in bounds:
        return f" from {bounds['ge']} to {bounds['le']}"
    return "".join(", " + words[name].format(bound) for name, bound in bounds.items())
