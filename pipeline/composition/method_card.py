"""Cards of methods: how reports name, colour and cite them. A module of pipeline/methods lists its own in `CARDS`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodCard:
    """The presentation of a method, under its name in params.yaml.

    `colour` is an index of the report's colours. Variants of a method share a colour and differ in markers; other
    methods share a colour only if no profile has both. `citation` names papers of PAPERS.md by authors and year, or is
    empty.
    Reports replace the name by `title` wherever it occurs; with `ordinary_word`, only at the beginning of a text.
    """

    title: str
    colour: int
    citation: str = ""
    ordinary_word: bool = False
