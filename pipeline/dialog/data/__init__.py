"""Dialogs as annotated, in the prepared form, and in batches."""
