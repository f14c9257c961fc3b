"""Metrics of captions and rankings, independent of models and of the project's files."""
