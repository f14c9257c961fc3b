"""Which fast form serves a decoder."""

from __future__ import annotations

from typing import Any, TypeGuard

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder
from pipeline.runtime import devices


def fitting(decoder: Decoder) -> Any:
    """What computes `begin`, `step`, `select` and `read` of `decoder`: itself where nothing is faster."""
    if not fits(decoder):
        return decoder
    from pipeline.models.kernels.att2in import FastAtt2in  # here: numba takes a second to import

    return FastAtt2in(decoder)


def fits(decoder: Decoder) -> TypeGuard[Att2in]:
    """Whether `decoder` has a fast form where it is."""
    return type(decoder) is Att2in and devices.synchronous(decoder.logit.weight.device)
