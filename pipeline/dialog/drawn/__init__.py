"""Drawn dialogs: a simulated questioner with one caption asks ten questions, and an answerer with the facts answers."""
