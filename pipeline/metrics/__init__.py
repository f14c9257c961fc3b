"""Metrics of captions and rankings; they depend on no model and on none of the project's files."""
