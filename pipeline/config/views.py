"""Handing out parameters: a stage gets those that dvc.yaml lists for it, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.config.reading import did_you_mean
from pipeline.errors import UserError

Keys = tuple[str, ...]


class Node(Mapping[str, Any]):
    """A section of the parameters: `node.key`, `node["key"]`, `dict(node)`; lists come as tuples.

    What is not listed for the stage raises a UserError; what is read is remembered in the view.
    """

    __slots__ = ("_keys", "_view")

    def __init__(self, view: View, keys: Keys) -> None:
        self._view = view
        self._keys = keys

    def __getitem__(self, key: str) -> Any:
        return self._view._get((*self._keys, key))

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):  # copy, pickle and inspect ask for these
            raise AttributeError(key)
        return self[key]

    def __contains__(self, key: object) -> bool:
        return key in self._view._names(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._view._names(self._keys))

    def __len__(self) -> int:
        return len(self._view._names(self._keys))

    def __repr__(self) -> str:
        return f"<parameters {'.'.join(self._keys) or 'of ' + self._view.stage}>"

    def plain(self) -> dict[str, Any]:
        """Everything listed below here as nested dicts and lists that JSON can hold; all of it counts as read."""
        return {key: value.plain() if isinstance(value, Node) else _listed(value) for key, value in self.items()}


class View(Node):
    """The parameters of one stage. `read`: dotted keys read so far; `listed`: keys and prefixes that dvc.yaml names."""

    __slots__ = ("_tree", "listed", "read", "stage")

    def __init__(self, tree: Mapping[str, Any], listed: tuple[str, ...], stage: str) -> None:
        super().__init__(self, ())
        self._tree = tree
        self.listed = listed
        self.stage = stage
        self.read: set[str] = set()
        for key in listed:
            self._find(tuple(key.split(".")))

    def plain(self) -> dict[str, Any]:
        """Everything listed as nested dicts, without counting it as read (for records)."""
        nested: dict[str, Any] = {}
        for key, value in self._leaves(()):
            *sections, last = key.split(".")
            inner = nested
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[last] = value
        return nested

    def flat(self) -> dict[str, Any]:
        """Every listed value by its dotted key, without counting it as read (for digests)."""
        return dict(self._leaves(()))

    def _leaves(self, keys: Keys) -> Iterator[tuple[str, Any]]:
        for name in self._names(keys):
            inner = self._find((*keys, name))
            if isinstance(inner, Mapping):
                yield from self._leaves((*keys, name))
            else:
                yield ".".join((*keys, name)), inner

    def _names(self, keys: Keys) -> list[str]:
        inner = self._find(keys)
        return [name for name in inner if self._allows((*keys, name))] if isinstance(inner, Mapping) else []

    def _allows(self, keys: Keys) -> bool:
        """Whether `keys` lies at, below or on the way to a listed key."""
        for listed in (tuple(key.split(".")) for key in self.listed):
            shared = min(len(keys), len(listed))
            if keys[:shared] == listed[:shared]:
                return True
        return False

    def _find(self, keys: Keys) -> Any:
        inner: Any = self._tree
        for i, key in enumerate(keys):
            if not isinstance(inner, Mapping) or key not in inner:
                names = inner if isinstance(inner, Mapping) else ()
                raise UserError(f"{self.stage}: no parameter {'.'.join(keys[: i + 1])}; {did_you_mean(key, names)}")
            inner = inner[key]
        return inner

    def _get(self, keys: Keys) -> Any:
        value = self._find(keys)
        if not self._allows(keys):
            stage = self.stage.partition("@")[0]
            raise UserError(f"{self.stage} may not read {'.'.join(keys)}: list it under params of {stage} in dvc.yaml")
        if isinstance(value, Mapping):
            return Node(self, keys)
        self.read.add(".".join(keys))
        return tuple(value) if isinstance(value, list) else value


def listed_keys(
    workflow: Mapping[str, Any], stage: str, instance: str | None, tree: Mapping[str, Any]
) -> tuple[str, ...]:
    """The keys of `params:` of a stage, ${key} and ${item} standing for the instance of a `foreach`.

    `workflow` is dvc.yaml as read, `tree` the parameters.
    """
    stages = workflow.get("stages") or {}
    if stage not in stages:
        raise UserError(f"dvc.yaml: no stage {stage}; {did_you_mean(stage, stages)}")
    block = stages[stage]
    instances = _instances(block["foreach"], tree) if "foreach" in block else None
    if (instances is None) != (instance is None):
        expected = f"one of {', '.join(instances)}" if instances else "none"
        raise UserError(f"dvc.yaml: stage {stage} is given {instance or 'no instance'}; it takes {expected}")
    if instances is not None and instance is not None and instance not in instances:
        raise UserError(f"{stage}: unknown instance {instance}; {did_you_mean(instance, instances)}")
    listed = block.get("do", block).get("params") or []
    if not all(isinstance(entry, str) for entry in listed):
        raise UserError(f"dvc.yaml: params of stage {stage} must be keys of params.yaml, no other files")
    name = instance or ""
    return tuple(entry.replace("${key}", name).replace("${item}", name) for entry in listed)


def _instances(foreach: Any, tree: Mapping[str, Any]) -> list[str]:
    if isinstance(foreach, str):  # "${methods}"
        inner: Any = tree
        for part in foreach.strip("${}").split("."):
            inner = inner[part]
        foreach = inner
    return [str(name) for name in foreach]


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple | list) else value
