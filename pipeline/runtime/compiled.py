"""Compilation of numeric loops by numba, and functions that numba can vectorise."""

# mypy: disable-error-code="no-untyped-def"

import functools
import inspect
import math
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import float32, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.serialize import dumps
from numba.extending import overload

from pipeline.runtime import cache
from pipeline.runtime.files import read_checked, write_checked

# part of the identity of cached code: a change of this file must recompile all loops
VERSION = sha256(Path(__file__).read_bytes()).hexdigest()[:12]

# fastmath allows vector instructions: sums in any order, and fused multiplications; infinities and NaN stay exact
NUMBA_OPTIONS: dict[str, Any] = {
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
    "nogil": True,
    "error_model": "numpy",
}


def compile_loop(function: Any) -> Any:
    """Compile the loop `function` at its first call with each combination of array types, cached on disk."""
    return compile_loop_in(_find_folder(), function)


def compile_loop_in(folder: Path | None, function: Callable[..., Any]) -> Any:
    """Compile as `compile_loop` does, with the machine code cached in `folder`; None: not cached."""
    dispatcher = njit(**NUMBA_OPTIONS)(function)
    if folder is not None:
        dispatcher._cache = KernelCache(function, folder)
    return dispatcher


class KernelCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """Cache of one function's machine code in files whose SHA-256 is checked before numba loads the code.

    A damaged file is removed, and the function is compiled again.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._py_func, self._name, self._cache_path = function, repr(function), str(folder)
        self._impl = _CodeConversion(function)
        self._cache_file = _CacheFiles(function, folder)
        self.enable()


class _CodeConversion(CompileResultCacheImpl):  # type: ignore[misc]
    """Conversion of machine code by numba to a form that can be pickled, without numba's own cache folder."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._locator, self._py_file, self._lineno = self, inspect.getfile(function), function.__code__.co_firstlineno

    def ensure_cache_path(self) -> None:
        """Do nothing: the folder exists."""


class _CacheFiles:
    """Cache files of a function, one for each combination of argument types."""

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        source, name = inspect.getfile(function), f"{function.__module__}.{function.__qualname__}"
        self._folder, self._name = folder, function.__name__
        self._identity = (name, _hash_source(source), numba.__version__, sys.version, VERSION)

    def load(self, key: object) -> Any:
        """Return the data saved under this key; None where they are missing or damaged."""
        path, identity = self._locate(key)
        try:
            stored, data = pickle.loads(read_checked(path))
            if stored == identity:
                return data
        except FileNotFoundError:
            return None
        except Exception:  # unpickling content of another form raises errors of any type
            pass
        with suppress(OSError):
            path.unlink()
        return None

    def save(self, key: object, data: object) -> None:
        """Save the data; ignore a full or read-only disk."""
        path, identity = self._locate(key)
        with suppress(OSError):
            write_checked(path, dumps((identity, data)))

    def flush(self) -> None:
        """Do nothing: numba calls this before it recompiles a function, and `save` then replaces the file."""

    def _locate(self, key: object) -> tuple[Path, str]:
        identity = repr((self._identity, key))
        return self._folder / f"{self._name}-{sha256(identity.encode()).hexdigest()[:32]}", identity


@functools.cache
def _find_folder() -> Path | None:
    """Return the folder of compiled loops; None, with a warning, where it is unusable or others can write to it."""
    path = os.environ.get("NUMBA_CACHE_DIR")
    try:
        if not path:  # numba treats an empty variable as unset, too
            return cache.make_private_folder(f"loops-{VERSION}")
        Path(path).mkdir(0o700, parents=True, exist_ok=True)
        cache.check_private(Path(path))
        return Path(path)
    except OSError as error:
        remedy = "correct this, or set NUMBA_CACHE_DIR to a private folder"
        print(f"warning: compiled loops are not kept: {error}; {remedy}", file=sys.stderr)
        return None


@functools.cache
def _hash_source(source: str) -> str:
    return sha256(Path(source).read_bytes()).hexdigest()


def tanh(x):
    """Return the hyperbolic tangent; in single precision by a rational function with an error of at most 3e-7.

    Compiled loops can inline this function.
    """
    return math.tanh(x)


@overload(tanh)
def _tanh(x):
    if x != float32:
        return lambda x: math.tanh(x)

    def evaluate_rational(x):
        # coefficients of Eigen's tanh for single precision (MPL 2.0); beyond ±`bound` the result is ±(1 − 2.4e-7)
        bound = np.float32(7.90531110763549805)
        x = bound if x > bound else (-bound if x < -bound else x)
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

    return evaluate_rational


def exp(x):
    """Return the exponential of `x` ≤ 88; in single precision by Cephes' expf, with a relative error below 2e-7.

    In single precision the result is 0 for `x` below -87.
    """
    return math.exp(x)


@overload(exp)
def _exp(x):
    if x != float32:
        return lambda x: math.exp(x)

    def evaluate_polynomial(x):
        lower = np.float32(-87)
        power = lower if x < lower else x
        exponent_of_2 = np.float32(math.floor(power * np.float32(1.44269504088896341) + np.float32(0.5)))
        remainder = power - exponent_of_2 * np.float32(0.693359375) + exponent_of_2 * np.float32(2.12194440e-4)
        p = np.float32(1.9875691500e-4)
        p = p * remainder + np.float32(1.3981999507e-3)
        p = p * remainder + np.float32(8.3334519073e-3)
        p = p * remainder + np.float32(4.1665795894e-2)
        p = p * remainder + np.float32(1.6666665459e-1)
        p = p * remainder + np.float32(5.0000001201e-1)
        exponent = np.int32((np.int32(exponent_of_2) + np.int32(127)) << np.int32(23))
        power_of_e = (p * remainder * remainder + remainder + np.float32(1)) * exponent.view(np.float32)
        return np.float32(0) if x < lower else power_of_e

    return evaluate_polynomial
