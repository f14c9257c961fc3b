"""Rewards of captions by judges, for trainers of other projects."""
