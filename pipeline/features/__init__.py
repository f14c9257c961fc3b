"""Images → a vector and a set of regions each."""
