"""The methods by name: one file a paper, one function a method."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.methods.luo import luo
from pipeline.methods.method import Method
from pipeline.methods.pretraining import mle
from pipeline.methods.psst import psst_gumbel, psst_multinomial, reinforce, st_gumbel, st_multinomial

METHODS: dict[str, Callable[..., Method]] = {
    "mle": mle,
    "psst_multinomial": psst_multinomial,
    "psst_gumbel": psst_gumbel,
    "st_multinomial": st_multinomial,
    "st_gumbel": st_gumbel,
    "reinforce": reinforce,
    "luo": luo,
}
