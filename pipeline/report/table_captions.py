"""Captions of the tables that recorded results are read by."""

RESULTS = "Results at the chosen λ"
BUDGET = "Budget"
CLAIMS = "Claims"
