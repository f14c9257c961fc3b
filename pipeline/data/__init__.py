"""Data sets: annotations → prepared tables → features and batches."""
