"""Scores of captions: discriminability, naturalness."""
