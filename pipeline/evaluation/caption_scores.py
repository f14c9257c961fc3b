"""The scores by which a listener chooses among several captions of an image."""

MARGIN = "margin"  # the similarity of caption and image minus the highest similarity to another image
SIMILARITY = "similarity"  # the similarity alone, which needs no other image
