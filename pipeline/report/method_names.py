"""Published names and figure colours of methods, from the method cards (`CARDS`) of the modules of methods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module

from pipeline.composition.method_card import MethodCard
from pipeline.composition.method_modules import find_method_modules


@cache
def collect_method_cards() -> dict[str, MethodCard]:
    """Return the cards of all methods by their names in params.yaml; the first call imports torch.

    A module that cannot be imported has no cards; the stages that train its methods report the error.
    """
    cards: dict[str, MethodCard] = {}
    for module in find_method_modules().values():
        with suppress(Exception):
            cards |= getattr(import_module(module), "CARDS", {})
    return cards


def replace_method_names(text: str) -> str:
    """Return `text` with each method's name in params.yaml replaced by its published name.

    A name that is also an ordinary word is replaced only at the beginning of the text. Names in paths and in backticks
    are kept.
    """
    if not collect_method_cards():
        return text
    at_start, inner = _compile_patterns()
    if match := at_start.match(text):
        return _get_title(match) + replace_method_names(text[match.end() :])
    return inner.sub(_get_title, text)


def assign_method_colours(methods: Iterable[str]) -> dict[str, int]:
    """Return the colour index of each method: the index of its card, or an unused index for a method without a card.

    If there are more methods than indices, indices repeat.
    """
    names = list(dict.fromkeys(methods))
    cards = collect_method_cards()
    card_colours = {name: cards[name].colour for name in names if name in cards}
    palette: Sequence[int] = range(1, 1 + max((card.colour for card in cards.values()), default=1))
    free = [n for n in palette if n not in card_colours.values()] or palette
    without_card = [name for name in names if name not in card_colours]
    return card_colours | {name: free[n % len(free)] for n, name in enumerate(without_card)}


def choose_estimator_colour(name: str) -> int:
    """Return the colour index of the method whose title is the longest prefix of the estimator's name, else 0.

    Variants of an estimator, such as REINFORCE with another baseline, therefore have the same colour.
    """
    colours = {card.title: card.colour for card in collect_method_cards().values() if name.startswith(card.title)}
    return colours[max(colours, key=len)] if colours else 0


def cite_papers(methods: Iterable[str]) -> str:
    """Return the titles of the methods with citations, each followed by its citations."""
    cards = (collect_method_cards().get(name) for name in methods)
    return ", ".join(f"{card.title} ({card.citation})" for card in cards if card and card.citation)


@cache
def _compile_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of names at the beginning of a text and within it."""
    cards = {re.escape(name): card for name, card in collect_method_cards().items()}
    inner_names = "|".join(name for name, card in cards.items() if not card.ordinary_word)
    at_start = re.compile(rf"(frozen_)?({'|'.join(cards)})\b(?!/)")  # a name before a slash is part of a path
    return at_start, re.compile(rf"(?<![\w./=`@-])(frozen_)?({inner_names})(?![\w/=`])")


def _get_title(match: re.Match[str]) -> str:
    return collect_method_cards()[match[2]].title + (" (frozen)" if match[1] else "")
