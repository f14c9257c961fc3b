"""Workflow around the stages: DVC, the grid, training runs, reuse, estimates, and recording and checking of results."""
