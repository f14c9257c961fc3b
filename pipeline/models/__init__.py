"""Speakers, listeners and the other networks of the methods."""
