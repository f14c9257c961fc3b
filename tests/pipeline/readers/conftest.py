"""A fixture that tests of other packages use too."""

from small_corpora import karpathy  # noqa: F401
