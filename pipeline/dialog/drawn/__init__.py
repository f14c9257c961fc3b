"""Drawn dialogs: a simulated questioner who knows one caption asks ten questions; an answerer knows the facts."""
