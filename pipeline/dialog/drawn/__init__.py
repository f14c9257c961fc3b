"""Drawn dialogs: a simulated questioner with one caption asks ten questions, and an answerer knows the facts."""
