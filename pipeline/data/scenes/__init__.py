"""The embedded data set: drawn scenes whose facts are known, with captions like human ones."""

from pipeline.data.scenes.write import draw

__all__ = ["draw"]
