"""Readers of VisDial's published files."""
