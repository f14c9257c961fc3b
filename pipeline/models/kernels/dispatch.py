"""Selection of a decoder's fast form."""

from __future__ import annotations

from typing import Any, TypeGuard

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder
from pipeline.runtime import devices


def fast_form(decoder: Decoder) -> Any:
    """Return the fast form that computes `begin`, `step`, `select` and `teacher_force`, or `decoder` without one."""
    if not has_fast_form(decoder):
        return decoder
    from pipeline.models.kernels.fast_att2in import FastAtt2in  # imported here: numba takes a second

    return FastAtt2in(decoder)


def has_fast_form(decoder: Decoder) -> TypeGuard[Att2in]:
    """Return whether `decoder` has a fast form on its device."""
    return type(decoder) is Att2in and devices.is_synchronous(decoder.logit.weight.device)
