"""Bias, variance and cost of gradient estimators, measured in enumerable worlds or at a trained speaker."""
