"""Evaluation of a method's captions: generation, judges, and the comparison with human captions."""
