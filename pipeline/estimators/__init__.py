"""Estimators of gradients of scores, with baselines, credit assignment and rollouts."""
