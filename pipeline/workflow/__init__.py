"""Workflow around the stages: DVC, the grid, construction of training runs, and recording and checking of results."""
