"""Choice of the CPU library for float32 matrix products: oneDNN if it is faster and about as exact as torch's own."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.errors import UserError
from pipeline.runtime import cache
from pipeline.runtime.files import read_checked, write_checked

# torch's names for its own library, for TF32 on a GPU, and for oneDNN on a CPU (in bfloat16 where bfloat16 is fast)
OWN, TF32, ONEDNN = "highest", "high", "medium"
REPEATS, ROWS, WEIGHTS = 5, 128, 3  # measurements of each product, rows of its input, and number of weights
MAX_TIME_SHARE = 0.92  # oneDNN's share of the own library's time; a smaller gain does not justify other rounding
MAX_ERROR_RATIO = 4.0  # ratio to the own library's largest error; bfloat16 has about 100
SMALL_MODEL = 2_000_000  # parameters


def is_small(modules: Iterable[nn.Module]) -> bool:
    """Return whether `modules` have too few parameters for threads or another library to save time."""
    return sum(p.numel() for module in modules for p in module.parameters()) < SMALL_MODEL


def choose_precision(modules: Collection[nn.Module], device: torch.device) -> None:
    """Select oneDNN if it is faster for the largest weights of `modules` with similar errors, else torch's own library.

    The libraries are measured once for each machine, version of torch, number of threads and set of weights' shapes.
    The choice is kept in the user's cache folder, so that equal seeds give equal bits. Small models and GPUs keep
    torch's own library. A GPU's GRUs compute in single precision, too: TF32, cuDNN's default, differs in the fourth
    digit. SAYWHICH_MATMUL_PRECISION sets the precision without a measurement: highest, high or medium. On a GPU, high
    and medium are TF32, for GRUs, too; on a CPU, medium is oneDNN. Raises UserError for any other value.
    """
    requested = os.environ.get("SAYWHICH_MATMUL_PRECISION")
    if requested and requested not in (OWN, TF32, ONEDNN):
        raise UserError(
            f"SAYWHICH_MATMUL_PRECISION={requested}: expected {OWN}, {TF32} or {ONEDNN}; set it to one of them"
        )
    if device.type == "cuda":
        recurrent: Any = torch.backends.cudnn.rnn
        recurrent.fp32_precision = "ieee" if (requested or OWN) == OWN else "tf32"
    if requested or device.type != "cpu" or is_small(modules):
        return torch.set_float32_matmul_precision(requested or OWN)
    shapes = {tuple(p.shape) for module in modules for p in module.parameters() if p.dim() == 2}
    largest = sorted(shapes, key=lambda shape: (-shape[0] * shape[1], shape))[:WEIGHTS]
    torch.set_float32_matmul_precision(_load_or_measure(largest))


def get_current_precision() -> str:
    """Return torch's name of the current precision: "highest" is its own library in single precision."""
    return torch.get_float32_matmul_precision()


def _load_or_measure(shapes: Sequence[tuple[int, ...]]) -> str:
    """Return the cached choice for this kind of machine, or measure it. The first process to write the file decides."""
    context = {"cpu": _read_cpu(), "torch": torch.__version__, "threads": torch.get_num_threads(), "weights": shapes}
    key = json.dumps(context, sort_keys=True)
    try:
        file = cache.make_private_folder("products") / hashlib.sha256(key.encode()).hexdigest()[:16]
    except OSError as error:
        problem = f"the choice of a library for matrix products is not kept: {error}"
        print(f"warning: {problem}; correct this, or set XDG_CACHE_HOME to a private folder", file=sys.stderr)
        return str(_measure(shapes)["precision"])
    if known := _read_choice(file, key):
        return known
    measured = _measure(shapes)
    with suppress(OSError):  # without a writable cache, the next process measures again
        if not _read_choice(file, key):
            file.unlink(missing_ok=True)  # the file is damaged
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            temporary = Path(folder, "choice")
            write_checked(temporary, json.dumps(context | measured, indent=2).encode())
            os.link(temporary, file)
    return _read_choice(file, key) or str(measured["precision"])


def _read_choice(file: Path, key: str) -> str | None:
    """Return the choice in `file`; None where it is missing, damaged, or of another `key`."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        choice = json.loads(read_checked(file))
        same = json.dumps({name: choice[name] for name in json.loads(key)}, sort_keys=True) == key
        return choice["precision"] if same and choice["precision"] in (OWN, ONEDNN) else None
    return None


def _measure(shapes: Sequence[tuple[int, ...]]) -> dict[str, object]:
    seconds, errors = {OWN: 0.0, ONEDNN: 0.0}, {OWN: 0.0, ONEDNN: 0.0}
    rng = torch.Generator().manual_seed(0)
    for shape in shapes:
        weight, x = torch.randn(shape, generator=rng), torch.randn(ROWS, shape[1], generator=rng)
        exact = x[:4].double() @ weight.double().T
        for name in seconds:
            torch.set_float32_matmul_precision(name)
            errors[name] = max(errors[name], float((_multiply(x, weight)[:4] - exact).abs().max()))
            seconds[name] += min(_time_product(x, weight) for _ in range(REPEATS))
    faster, as_exact = seconds[ONEDNN] < MAX_TIME_SHARE * seconds[OWN], errors[ONEDNN] < MAX_ERROR_RATIO * errors[OWN]
    return {"precision": ONEDNN if faster and as_exact else OWN, "seconds": seconds, "errors": errors}


def _time_product(x: Tensor, weight: Tensor) -> float:
    start = time.perf_counter()
    _multiply(x, weight)
    return time.perf_counter() - start


def _multiply(x: Tensor, weight: Tensor) -> Tensor:
    return nn.functional.linear(x, weight)


def _read_cpu() -> str:
    """Return the model and the features of the CPU."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine()
    lines = info.read_text(encoding="utf-8").splitlines()
    return "\n".join(sorted({line for line in lines if line.startswith(("model", "vendor", "flags", "Features"))}))
