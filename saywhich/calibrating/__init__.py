"""Calibration of judges and metrics: agreement of their scores with people's ratings and choices of captions."""
