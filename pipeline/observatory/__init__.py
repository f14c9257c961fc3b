"""Gradient estimators before a channel small enough to enumerate: how biased, how noisy, how dear each of them is."""
