"""The embedded data set: drawn scenes whose facts are known, with captions like human ones."""
