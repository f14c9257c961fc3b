"""Captions that identify the tables of recorded results."""

RESULTS = "Results at the chosen λ"
BUDGET = "Budget"
CLAIMS = "Claims"
