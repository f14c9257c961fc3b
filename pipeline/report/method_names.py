"""Published names of methods, and the colour of each in all figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# Name in params.yaml → name in its paper, and the index of its colour (drawing.COLOURS). Variants of a method share its
# colour and differ in markers; other methods share a colour only if no profile has both.
KNOWN: dict[str, tuple[str, int]] = {
    "mle": ("MLE", 0),
    "pretrained": ("MLE, pretrained", 0),
    "psst_multinomial": ("PSST-Multinomial", 1),
    "psst_multinomial_anchored": ("PSST-Multinomial, anchored", 1),
    "psst_normalised": ("PSST-Multinomial, normalised", 1),
    "psst": ("PSST", 1),
    "st_multinomial": ("ST-Multinomial", 2),
    "st_multinomial_anchored": ("ST-Multinomial, anchored", 2),
    "st_normalised": ("ST-Multinomial, normalised", 2),
    "luo": ("Luo et al.", 3),
    "luo_anchored": ("Luo et al., anchored", 3),
    "luo_normalised": ("Luo et al., normalised", 3),
    "luo_scaled": ("Luo et al., scaled", 3),
    "reinforce": ("REINFORCE", 4),
    "reinforce_five": ("REINFORCE, five samples", 4),
    "luo_rloo": ("RLOO", 4),
    "luo_grpo": ("GRPO", 4),
    "luo_relax": ("RELAX", 4),
    "psst_gumbel": ("PSST-Gumbel", 5),
    "st_gumbel": ("ST-Gumbel", 6),
    "st_gumbel_rao": ("Gumbel-Rao", 6),
    "guidance": ("Guidance", 7),
    "psst_rloo": ("PSST-Multinomial with RLOO", 8),
    "st_reinmax": ("ReinMax", 9),
    "psst_reinmax": ("PSST-ReinMax", 9),
    "psst_gumbel_rao": ("PSST-Gumbel-Rao", 10),
    "sll": ("SLL", 11),
    "sll_sle": ("SLL-SLE", 11),
    "sll_me": ("SLL-ME", 11),
    "sll_bcmr": ("SLL, BCMR", 11),
    "pg_spider": ("PG-SPIDEr", 5),
    "pg_cider": ("PG-CIDEr", 5),
    "pg_bcmr": ("PG-BCMR", 5),
    "pg_spice": ("PG-SPICE", 5),
    "mixer": ("MIXER", 5),
    "cider": ("CIDEr alone", 8),
    "transformer_mle": ("MLE, transformer", 0),
    "wide_mle": ("MLE, twice as wide", 0),
    "transformer_psst": ("PSST, transformer", 1),
    "transformer_luo": ("Luo et al., transformer", 3),
    "transformer_rloo": ("RLOO, transformer", 4),
    "transformer_guidance": ("Guidance, transformer", 7),
    "wtf": ("WTF", 9),
    "rl": ("RL", 4),
    "rl_slow": ("RL, a fifth of the learning rate", 4),
    "rl_unidirectional": ("RL, unidirectional", 6),
    "wtf_rl": ("WTF-RL", 10),
    "scst_discriminator": ("SCST with discriminator", 5),
    "scst_grammar": ("SCST with grammar", 11),
    "psst_wtf": ("PSST with WTF-RL's reward", 8),
    "g_mle": ("G-MLE", 0),
    "g_more": ("G-MLE, as many steps", 5),
    "g_dis": ("G-DIS", 1),
    "g_mle_lf": ("G-MLE, LF", 0),
    "g_mle_hre": ("G-MLE, HRE", 0),
    "g_dis_end": ("G-DIS, soft ending", 1),
    "g_psst": ("G-DIS with PSST", 1),
    "g_reinmax": ("G-DIS with ReinMax", 9),
    "g_rloo": ("G-DIS with RLOO", 4),
    "gan1": ("GAN1", 2),
    "gan2": ("GAN2", 3),
    "mle_rerank": ("MLE, re-ranked", 0),
    "psst_rerank": ("PSST-Multinomial, re-ranked", 1),
    "luo_rerank": ("Luo et al., re-ranked", 3),
}
WORDS = {"pretrained", "psst", "guidance", "cider", "wtf", "rl"}  # names that are also ordinary words

_BEGINS = re.compile(rf"(frozen_)?\b({'|'.join(KNOWN)})\b(?!/)")  # a path is not a name
_WITHIN = re.compile(rf"(?<![\w./=`@-])(frozen_)?({'|'.join(KNOWN.keys() - WORDS)})(?![\w/=`])")


def published_name(text: str) -> str:
    """Return `text` with each method's name in params.yaml replaced by its published name.

    Names in WORDS are replaced only at the beginning of the text.
    """
    if begins := _BEGINS.match(text):
        return _name(begins) + published_name(text[begins.end() :])
    return _WITHIN.sub(_name, text)


def method_colours(methods: Iterable[str]) -> dict[str, int]:
    """Return the colour index of each method: fixed for a known method, an unused one for any other."""
    names = list(dict.fromkeys(methods))
    known = {name: KNOWN[name][1] for name in names if name in KNOWN}
    every: Sequence[int] = range(1, 1 + max(colour for _, colour in KNOWN.values()))
    free = [n for n in every if n not in known.values()] or every
    others = [name for name in names if name not in known]
    return known | {name: free[n % len(free)] for n, name in enumerate(others)}


def estimator_colour(name: str) -> int:
    """Return the colour index of the method that an estimator of the observatory belongs to, by the longest prefix.

    REINFORCE has one colour with any baseline, as has a straight-through or partial-sampling method with any suffix.
    """
    known = {called: colour for called, colour in KNOWN.values() if name.startswith(called)}
    return known[max(known, key=len)] if known else 0


def _name(found: re.Match[str]) -> str:
    return KNOWN[found[2]][0] + (" (frozen)" if found[1] else "")
