"""Name of the hard gallery in metrics.json and in the columns of captions.parquet."""

HARD_GALLERY = "neighbourhood"  # images similar to the target
