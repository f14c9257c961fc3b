"""Judging of captions of any origin: readers of caption files, judges, scores with intervals, and comparisons."""
