"""English function words (they describe no image content), words that need a word after them, and colour words."""

from __future__ import annotations

_FUNCTION_WORDS = """
    a an the this that these those some any each every both all another other no
    i he she it we you they him her them us me his hers its their theirs our your my who whom whose which what there
    himself herself itself themselves
    about above across after against along among around as at before behind below beneath beside between beyond by down
    during for from in inside into near next of off on onto out outside over past through to toward towards under up
    upon with within without
    and but if nor not or so than then when where while whilst
    am are be been being can could did do does done had has have having is may might must shall should was were will
    would
    also just only too very
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())

_BAD_ENDINGS = """
    a an the in for at of with before after on upon near to is are am
"""
BAD_ENDINGS = frozenset(_BAD_ENDINGS.split())
"""Words that end an unfinished caption (self-critical.pytorch, captioning/utils/eval_utils.py)."""

_COLOURS = """
    beige black blond blue bronze brown burgundy crimson cyan gold green grey indigo ivory khaki lavender lilac magenta
    maroon mauve navy orange pink purple red scarlet silver tan teal turquoise violet white yellow
"""
COLOURS = {word: word for word in _COLOURS.split()} | {"blonde": "blond", "golden": "gold", "gray": "grey"}
"""Colour words with their colour; spellings and forms of one colour are merged."""
