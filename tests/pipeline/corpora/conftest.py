"""Fixtures shared with tests of other packages."""

from small_corpora import web  # noqa: F401
