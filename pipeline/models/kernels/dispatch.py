"""Selection of the fast forms of a decoder and of its dropout's random numbers."""

from __future__ import annotations

from typing import TypeGuard

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder, StepwiseDecoder
from pipeline.random import BatchRandom
from pipeline.runtime import devices


def accelerate_decoder(decoder: Decoder) -> StepwiseDecoder:
    """Return the fast form of `decoder`, or `decoder` itself."""
    if not has_fast_form(decoder):
        return decoder
    from pipeline.models.kernels.fast_att2in import FastAtt2in  # imported here: importing numba takes 0.3 s

    return FastAtt2in(decoder)


def has_fast_form(decoder: Decoder) -> TypeGuard[Att2in]:
    """Return whether `decoder` has a fast form on its device."""
    return type(decoder) is Att2in and devices.is_synchronous(decoder.logit.weight.device)


def accelerate_random(batch_random: BatchRandom) -> BatchRandom:
    """Return the fast form of the unused stream `batch_random`, or `batch_random` itself if it has none.

    The fast form starts from the generator's seed. A stream on a GPU or without a generator has no fast form.
    """
    if batch_random.rng is None or not devices.is_synchronous(batch_random.batch.device):
        return batch_random
    from pipeline.models.kernels.mersenne_twister import TwisterRandom  # here: importing numba takes 0.3 s

    return TwisterRandom(batch_random.batch, batch_random.rng)
