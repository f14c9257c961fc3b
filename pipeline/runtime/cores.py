"""Number of processor cores."""

from __future__ import annotations

import os


def count_cores() -> int:
    """Return the number of cores that this process may use, or of all cores where the system does not report it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
