"""From YAML text and `--set key=value` to plain mappings, and from a validation error to one line."""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import yaml
from pydantic import BaseModel, ValidationError

from pipeline.errors import UserError

Path_ = tuple[str, ...]


class _Yaml(yaml.SafeLoader):
    """YAML 1.2 as DVC reads it (1e-4 is a number, `no` is a word), and no key twice."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 (PyYAML's own way to say it)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _resolve_yaml_1_2() -> None:
    import re

    for tag, pattern, first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?[0-9]+", list("-+0123456789")),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ):
        _Yaml.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})$"), first)
    _Yaml.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))
    _Yaml.add_constructor("tag:yaml.org,2002:float", lambda _, node: float(node.value))


_resolve_yaml_1_2()


def parse_yaml(text: str, where: str) -> Any:
    """What the YAML document `text` says; a mistake in it is a UserError with line and column."""
    try:
        return yaml.load(text, Loader=_Yaml)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}, line {mark.line + 1}, column {mark.column + 1}" if mark else where
        problem = " ".join(str(error.problem or error.context).split())
        if "'\\t'" in problem:
            problem = "a tab; indent with blanks"
        raise UserError(f"{place}: {problem}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{where}: {' '.join(str(error).split())}") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; a file that is missing, unreadable or no mapping is a UserError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run from the root of the repository or name one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    content = parse_yaml(text, str(path))
    if not isinstance(content, dict):
        raise UserError(f"{path}: must be a mapping of sections (seed: 1, …), and is {shown(content)}")
    return content


def override(raw: dict[str, Any], assignments: Iterable[str]) -> dict[Path_, str]:
    """Write each "a.b=value" of `assignments` into `raw`, later ones last; gives where each key was set from."""
    origins: dict[Path_, str] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        parts = tuple(key.strip().split("."))
        if not equals or not all(parts):
            raise UserError(f"--set {assignment}: must read key=value, as in train.optimisation.epochs=2")
        inner = raw
        for i, part in enumerate(parts[:-1]):
            if inner.get(part) is None:
                inner[part] = {}
            inner = inner[part]
            if not isinstance(inner, dict):
                name = ".".join(parts[: i + 1])
                raise UserError(f"--set {assignment}: {name} = {shown(inner)} is a value and has no keys below it")
        inner[parts[-1]] = parse_yaml(text, f"--set {assignment}")
        origins[parts] = f"--set {assignment}"
    return origins


def shown(value: Any) -> str:
    """A value as one short line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """What is allowed, after the closest match to `word` if there is a close one."""
    names = [str(name) for name in allowed]
    close = difflib.get_close_matches(str(word), names, n=1)
    return (f"did you mean {close[0]}? " if close else "") + f"allowed: {', '.join(names) or 'nothing'}"


def one_line(error: ValidationError, model: type[BaseModel], raw: Mapping[str, Any]) -> tuple[Path_, str]:
    """The key path of the first problem of `error`, and "key, value, what is allowed" in one line.

    A misspelt key is both unknown and missing; the unknown one is told, because it holds what the user wrote.
    """
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    path, annotation, metadata = _follow(model, tuple(problem["loc"]))
    name = ".".join(path)
    if problem["type"] == "extra_forbidden":
        fields = getattr(_without_null(_follow(model, path[:-1])[1], ())[0], "model_fields", {})
        value = shown(_at(raw, path))
        return path, f"unknown key {name} = {value}; {did_you_mean(path[-1], fields)}"
    if problem["loc"] and problem["loc"][-1] == "[key]":
        key = _follow(model, path[:-1])[1]
        return path, f"{name} is not allowed: {_allowed(get_args(key)[0], ())}"
    if problem["type"] == "missing":
        return path, f"{name} is missing: {_allowed(annotation, metadata)}"
    if problem["type"] == "value_error":
        return path, f"{name or 'parameters'}: {problem['ctx']['error']}"
    return path, f"{name} = {shown(_at(raw, path))} is not allowed: {_allowed(annotation, metadata)}"


def _at(raw: Any, path: Path_) -> Any:
    for part in path:
        if isinstance(raw, Mapping):
            raw = raw.get(part, raw.get(int(part)) if part.isdigit() else None)
        else:
            raw = raw[int(part)]
    return raw


def _follow(model: type[BaseModel], location: tuple[str | int, ...]) -> tuple[Path_, Any, tuple[Any, ...]]:
    """The keys of `location` that are keys of the file (pydantic adds names of union branches), and what is there."""
    path: list[str] = []
    annotation: Any = model
    metadata: tuple[Any, ...] = ()
    for part in location:
        annotation, metadata = _without_null(annotation, metadata)
        if part == "[key]":
            break
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            field = annotation.model_fields.get(str(part))
            annotation, metadata = (field.annotation, tuple(field.metadata)) if field else (None, ())
        elif get_origin(annotation) is dict:
            annotation, metadata = get_args(annotation)[1], ()
        elif get_origin(annotation) is tuple:
            annotation, metadata = get_args(annotation)[0], ()
        else:
            break
        path.append(str(part))
    return tuple(path), annotation, metadata


def _without_null(annotation: Any, metadata: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(annotation) is Annotated:
        first, *more = get_args(annotation)
        return _without_null(first, (*metadata, *more))
    if get_origin(annotation) in (Union, types.UnionType):
        kept = [part for part in get_args(annotation) if part is not type(None)]
        if len(kept) == 1:
            return _without_null(kept[0], metadata)
    return annotation, metadata


def _allowed(annotation: Any, metadata: tuple[Any, ...]) -> str:
    """What a value of this type may be, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _allowed(arguments[0], (*metadata, *arguments[1:]))
    if origin in (Union, types.UnionType):
        return " or ".join(_allowed(part, metadata) for part in arguments)
    if origin is Literal:
        return " | ".join(str(value) for value in arguments)
    if origin in (tuple, list):
        return f"a list, each {_allowed(arguments[0], ())}{_bounds(metadata)}"
    if origin is dict or annotation is dict:
        return "a mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a mapping with the keys {', '.join(annotation.model_fields)}"
    if annotation is Any:
        return "a value"
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    return words.get(annotation, str(annotation)) + ("" if annotation is type(None) else _bounds(metadata))


def _bounds(metadata: tuple[Any, ...]) -> str:
    low = high = ""
    for item in (part for entry in metadata for part in (getattr(entry, "metadata", None) or [entry])):
        match item:
            case annotated_types.Ge(ge=bound):
                low = f"at least {bound}"
            case annotated_types.Gt(gt=bound):
                low = f"above {bound}"
            case annotated_types.Le(le=bound):
                high = f"at most {bound}"
            case annotated_types.Lt(lt=bound):
                high = f"below {bound}"
            case annotated_types.MinLen(min_length=length):
                low = "not empty" if length == 1 else f"at least {length} long"
            case _ if getattr(item, "pattern", None):
                low = "of letters, digits and underscores, a letter first"
    if low.startswith("at least") and high.startswith("at most"):
        return f" from {low[9:]} to {high[8:]}"
    return "".join(f", {bound}" for bound in (low, high) if bound)
