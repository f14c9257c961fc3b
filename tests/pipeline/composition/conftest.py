"""Fixtures shared with other rooms."""

from small_corpora import karpathy  # noqa: F401
