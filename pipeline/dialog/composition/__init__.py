"""Scores and agents that the methods of visual dialog share."""
