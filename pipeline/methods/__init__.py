"""The methods by name: one file a paper, one function a method."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.methods.luo import luo
from pipeline.methods.method import Method
from pipeline.methods.pretraining import guidance, mle
from pipeline.methods.psst import psst_gumbel, psst_multinomial, reinforce, st_gumbel, st_multinomial
from pipeline.methods.sle import sll, sll_me, sll_sle
from pipeline.methods.spider import mixer, pg_spider
from pipeline.methods.straight_through import psst_gumbel_rao, psst_reinmax, st_gumbel_rao, st_reinmax

METHODS: dict[str, Callable[..., Method]] = {
    "mle": mle,
    "guidance": guidance,
    "psst_multinomial": psst_multinomial,
    "psst_gumbel": psst_gumbel,
    "st_multinomial": st_multinomial,
    "st_gumbel": st_gumbel,
    "st_reinmax": st_reinmax,
    "psst_reinmax": psst_reinmax,
    "st_gumbel_rao": st_gumbel_rao,
    "psst_gumbel_rao": psst_gumbel_rao,
    "reinforce": reinforce,
    "luo": luo,
    "sll": sll,
    "sll_me": sll_me,
    "sll_sle": sll_sle,
    "pg_spider": pg_spider,
    "mixer": mixer,
}
