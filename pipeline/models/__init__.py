"""Speakers and listeners."""
