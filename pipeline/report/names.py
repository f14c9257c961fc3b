"""What methods are called in their papers, and the colour that each has in all figures."""

from __future__ import annotations

import re
from collections.abc import Iterable

PUBLISHED = {
    "mle": "MLE",
    "pretrained": "MLE, pretrained",
    "psst_multinomial": "PSST-Multinomial",
    "psst_gumbel": "PSST-Gumbel",
    "st_multinomial": "ST-Multinomial",
    "st_gumbel": "ST-Gumbel",
    "reinforce": "REINFORCE",
    "luo": "Luo et al.",
    "psst_rloo": "PSST-Multinomial with RLOO",
    "psst_reinmax": "PSST with ReinMax",
    "psst_gumbel_rao": "PSST with Gumbel-Rao",
    "st_reinmax": "ReinMax",
    "st_gumbel_rao": "Gumbel-Rao",
    "luo_rloo": "RLOO",
    "luo_grpo": "GRPO",
    "luo_relax": "RELAX",
    "pg_spider": "PG-SPIDEr",
    "mixer": "MIXER",
    "sll": "SLL",
    "sll_sle": "SLL + SLE",
    "sll_me": "SLL + ME",
    "guidance": "Guidance",
    "mle_rerank": "MLE, re-ranked",
    "luo_rerank": "Luo et al., re-ranked",
    "psst_rerank": "PSST-Multinomial, re-ranked",
}
_COLOURS = {"mle": 0, "psst_multinomial": 1, "st_multinomial": 2, "luo": 3, "reinforce": 4, "psst_gumbel": 5}
_COLOURS |= {"st_gumbel": 6, "guidance": 7, "psst_rloo": 8}


def published(label: str) -> str:
    """A label that begins with a method's name in params.yaml, with the name that its paper has; others as they are."""
    found = re.match(r"(frozen_)?(\w+)", label)
    if found is None or found[2] not in PUBLISHED or label[found.end() :].startswith("/"):  # a path
        return label
    rest = label[found.end() :]
    return f"{PUBLISHED[found[2]]}{' (frozen)' if found[1] else ''}{rest}"


def colours(methods: Iterable[str]) -> dict[str, int]:
    """The number of each method's colour: of those of the PSST paper always the same, of others the free ones."""
    names = list(dict.fromkeys(methods))
    known = {name: _COLOURS[name] for name in names if name in _COLOURS}
    free = [n for n in range(1, 9) if n not in known.values()] or list(range(1, 9))
    others = [name for name in names if name not in known]
    return known | {name: free[n % len(free)] for n, name in enumerate(others)}
