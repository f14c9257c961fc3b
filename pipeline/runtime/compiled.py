"""How numba compiles loops over numbers here, and functions that it can make vector instructions of."""

# mypy: disable-error-code="no-untyped-def"

import math
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.runtime import cache

# numba looks for changes in the loops' files only: with other functions of this file they are to be compiled again
VERSION = sha256(Path(__file__).read_bytes()).hexdigest()[:12]
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache.folder() / f"loops-{VERSION}"))

from numba import float32, njit  # noqa: E402
from numba.extending import overload  # noqa: E402

# sums in any order, fused multiplications: what vector instructions need; infinities and NaN stay what they are
HOW: dict[str, Any] = {
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
    "nogil": True,
    "error_model": "numpy",
}


def compiled(function: Any) -> Any:
    """Compile the loop `function` at its first call with each kind of arrays; kept in the user's cache folder."""
    try:
        return njit(cache=True, **HOW)(function)
    except RuntimeError:  # it cannot be written
        return njit(**HOW)(function)


def tanh(x):
    """The hyperbolic tangent; in single precision a rational function, at most 3e-7 from it, that loops can inline."""
    return math.tanh(x)


@overload(tanh)
def _tanh(x):
    if x != float32:
        return lambda x: math.tanh(x)

    def rational(x):
        # coefficients of Eigen's tanh for single precision (MPL 2.0); behind `most` it is ±1
        most = np.float32(7.90531110763549805)
        x = most if x > most else (-most if x < -most else x)
        z = x * x
        p = np.float32(-2.76076847742355e-16)
        p = z * p + np.float32(2.00018790482477e-13)
        p = z * p + np.float32(-8.60467152213735e-11)
        p = z * p + np.float32(5.12229709037114e-08)
        p = z * p + np.float32(1.48572235717979e-05)
        p = z * p + np.float32(6.37261928875436e-04)
        p = z * p + np.float32(4.89352455891786e-03)
        q = z * np.float32(1.19825839466702e-06) + np.float32(1.18534705686654e-04)
        q = z * q + np.float32(2.26843463243900e-03)
        q = z * q + np.float32(4.89352518554385e-03)
        return x * p / q

    return rational


def exp(x):
    """The exponential function of `x` ≤ 88; in single precision (Cephes' expf) 2e-7 of it off, and 0 below -87."""
    return math.exp(x)


@overload(exp)
def _exp(x):
    if x != float32:
        return lambda x: math.exp(x)

    def polynomial(x):
        least = np.float32(-87)
        power = least if x < least else x
        twos = np.float32(math.floor(power * np.float32(1.44269504088896341) + np.float32(0.5)))
        rest = power - twos * np.float32(0.693359375) + twos * np.float32(2.12194440e-4)
        p = np.float32(1.9875691500e-4)
        p = p * rest + np.float32(1.3981999507e-3)
        p = p * rest + np.float32(8.3334519073e-3)
        p = p * rest + np.float32(4.1665795894e-2)
        p = p * rest + np.float32(1.6666665459e-1)
        p = p * rest + np.float32(5.0000001201e-1)
        exponent = np.int32((np.int32(twos) + np.int32(127)) << np.int32(23))
        found = (p * rest * rest + rest + np.float32(1)) * exponent.view(np.float32)
        return np.float32(0) if x < least else found

    return polynomial
