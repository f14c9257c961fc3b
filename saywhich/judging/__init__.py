"""Judging of anybody's captions: readers of caption files, judges, scores with intervals, and comparisons."""
