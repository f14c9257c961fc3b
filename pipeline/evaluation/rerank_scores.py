"""Scores by which a listener chooses one of an image's captions."""

from __future__ import annotations

MARGIN = "margin"  # the similarity of caption and image minus the highest similarity to another image
SIMILARITY = "similarity"  # the similarity alone, which needs no other image
