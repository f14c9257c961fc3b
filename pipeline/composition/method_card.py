"""Method cards: name, colour and citation of a method in reports. Modules of methods list their cards in `CARDS`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodCard:
    """Presentation of a method in reports; the keys of `CARDS` are the methods' names in params.yaml.

    `colour` is an index of the report's colours. Variants of a method share a colour and differ in markers; other
    methods share a colour only if no profile has both. `citation` names papers of PAPERS.md by authors and year, or is
    empty. Reports replace the name by `title` throughout a text; with `ordinary_word`, only at the text's beginning.
    """

    title: str
    colour: int
    citation: str = ""
    ordinary_word: bool = False
