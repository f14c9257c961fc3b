"""Fixtures shared with tests of other packages."""

from small_corpora import karpathy  # noqa: F401
