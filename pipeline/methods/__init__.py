"""The methods by name: one file a paper, one function a method."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.methods.luo import luo
from pipeline.methods.method import Method
from pipeline.methods.pretraining import mle
from pipeline.methods.psst import psst_multinomial, st_multinomial

METHODS: dict[str, Callable[..., Method]] = {
    "mle": mle,
    "psst_multinomial": psst_multinomial,
    "st_multinomial": st_multinomial,
    "luo": luo,
}
