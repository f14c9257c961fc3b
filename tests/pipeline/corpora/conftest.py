"""Fixtures shared with other rooms."""

from small_corpora import web  # noqa: F401
