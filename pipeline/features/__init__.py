"""Image features: a vector and a set of regions per image."""
