"""Estimators of a score's gradient for the speaker, with baselines, credit and rollouts."""
