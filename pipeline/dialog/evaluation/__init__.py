"""Evaluation of answers and of ranked candidates."""
