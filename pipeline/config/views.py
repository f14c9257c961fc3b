"""The parameters of a stage: those that dvc.yaml lists for it, and no others."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from functools import reduce
from operator import getitem
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel

from pipeline.config.reading import suggest_words
from pipeline.errors import UserError

Keys = tuple[str, ...]
P = TypeVar("P", bound=BaseModel)
_ITEM = re.compile(r"\$\{item\.(\w+)\}")


class StageParameters(Generic[P]):
    """Parameters of one stage. `listed`: keys and prefixes that dvc.yaml names; `read`: the listed keys read so far.

    `settings` has the attributes of the parameters; a stage can read only the listed attributes.
    """

    def __init__(self, params: P, listed: tuple[str, ...], stage: str) -> None:
        self._tree, self.listed, self.stage = params.model_dump(mode="json"), listed, stage
        self.read: set[str] = set()
        self.settings = cast(P, ListedSettings(self.is_listed, (), params))
        self._paths = [tuple(key.split(".")) for key in listed]
        for keys in self._paths:
            self._check_exists(keys)

    def as_dict(self) -> dict[str, Any]:
        """Return the listed parameters as nested dicts and lists for JSON; they do not count as read (for records)."""
        return copy.deepcopy(dict(_select_part(self._tree, self._paths)))

    def flatten(self) -> dict[str, Any]:
        """Return the listed values by their dotted keys; they do not count as read (for digests).

        An empty mapping has no entry.
        """
        return _flatten(_select_part(self._tree, self._paths))

    def is_listed(self, keys: Keys) -> bool:
        """Return True if the whole value at `keys` is listed, False if only a part of it is.

        Raises UserError if no part of the value is listed.
        """
        if listed := [path for path in self._paths if keys[: len(path)] == path]:
            self.read.update(".".join(path) for path in listed)
        elif not any(path[: len(keys)] == keys for path in self._paths):
            self._check_exists(keys)
            stage = self.stage.partition("@")[0]
            raise UserError(f"{self.stage} may not read {'.'.join(keys)}: list it under params of {stage} in dvc.yaml")
        return bool(listed)

    def _check_exists(self, keys: Keys) -> None:
        inner: Any = self._tree
        for i, key in enumerate(keys):
            names = inner if isinstance(inner, Mapping) else ()
            if key not in names:
                raise UserError(f"{self.stage}: no parameter {'.'.join(keys[: i + 1])}; {suggest_words(key, names)}")
            inner = inner[key]


class ListedSettings:
    """Settings restricted to the attributes and keys that dvc.yaml lists for the stage."""

    def __init__(self, is_listed: Callable[[Keys], bool], keys: Keys, settings: object) -> None:
        """Restrict `settings` at `keys`; `is_listed` is `StageParameters.is_listed`."""
        self._is_listed, self._keys, self._settings = is_listed, keys, settings

    def __getattr__(self, key: str) -> object:
        if key.startswith("_"):  # copy, pickle and inspect look up such names
            raise AttributeError(key)
        return self._read_key(key, getattr)

    def __getitem__(self, key: str) -> object:
        return self._read_key(key, getitem)

    def _read_key(self, key: str, get: Callable[[Any, str], object]) -> object:
        keys = (*self._keys, key)
        whole = self._is_listed(keys)
        value = get(self._settings, key)
        return value if whole else ListedSettings(self._is_listed, keys, value)


def _select_part(tree: Any, keys: list[Keys]) -> Any:
    """Return the part of `tree` at or below `keys`."""
    if () in keys:
        return tree
    inner = {name: [key[1:] for key in keys if key[0] == name] for name in tree}
    return {name: _select_part(tree[name], subkeys) for name, subkeys in inner.items() if subkeys}


def _flatten(tree: Mapping[str, Any], prefix: Keys = ()) -> dict[str, Any]:
    """Return the values of a nested mapping by their dotted keys; an empty mapping has none."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        keys = (*prefix, name)
        flat |= _flatten(value, keys) if isinstance(value, Mapping) else {".".join(keys): value}
    return flat


def list_stage_keys(
    workflow: Mapping[str, Any], stage: str, instance: str | None, tree: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the keys under `params:` of a stage, with ${key} and ${item} replaced by the instance of its `foreach`.

    `workflow` is dvc.yaml as read, `tree` the parameters. Raises UserError for an unknown stage or instance, for a
    `foreach` that is no mapping or list of parameters, and for parameters of other files.
    """
    stages = workflow.get("stages") or {}
    if stage not in stages:
        raise UserError(f"dvc.yaml: no stage {stage}; {suggest_words(stage, stages)}")
    block = stages[stage]
    foreach = block.get("foreach", ())
    if isinstance(foreach, str):  # "${methods}"
        try:
            foreach = [*reduce(getitem, foreach.strip("${}").split("."), tree)]
        except (KeyError, TypeError):
            problem = f"expected foreach to name a mapping or list of params.yaml, got {foreach}"
            raise UserError(f"dvc.yaml: stage {stage}: {problem}; correct it") from None
    instances = [str(name) for name in foreach]
    if bool(instances) != (instance is not None):
        expected = f"one of {', '.join(instances)}" if instances else "none"
        raise UserError(f"dvc.yaml: stage {stage} is given {instance or 'no instance'}; it takes {expected}")
    if instance is not None and instance not in instances:
        raise UserError(f"{stage}: unknown instance {instance}; {suggest_words(instance, instances)}")
    listed = block.get("do", block).get("params") or []
    if not all(isinstance(entry, str) for entry in listed):
        raise UserError(f"dvc.yaml: params of stage {stage} must be keys of params.yaml; remove those of other files")
    name = instance or ""
    return tuple(entry.replace("${key}", name).replace("${item}", name) for entry in listed)


def list_deps(workflow: Mapping[str, Any], stage: str, item: Mapping[str, Any]) -> list[str]:
    """Return the paths under `deps:` of a stage, without those that name ${key} or a parameter.

    The values of `item` replace ${item.…}, and "" replaces a missing one. `workflow` is dvc.yaml as read, `item` the
    entry of its foreach for the instance, such as a method's block.
    """
    block = workflow["stages"][stage]
    listed = [_ITEM.sub(lambda match: str(item.get(match[1], "")), path) for path in block.get("do", block)["deps"]]
    return [path for path in listed if "${" not in path]
