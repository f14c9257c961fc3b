"""Scores of captions: discriminability, naturalness and others."""
