"""Drawn dialogs: a questioner who has read one caption asks ten questions, and an answerer sees the scene's facts."""
