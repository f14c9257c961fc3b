"""Slices that draw data sets with known facts: scenes and films."""
