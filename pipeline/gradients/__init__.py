"""Bias, variance and cost of gradient estimators, measured on channels small enough to enumerate."""
