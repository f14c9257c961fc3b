"""Reward hacking: the share of a reward's gain by independent judges, and the change of the captions."""
