"""The fixture `karpathy`, which tests of other packages use, too."""

from small_corpora import karpathy  # noqa: F401
