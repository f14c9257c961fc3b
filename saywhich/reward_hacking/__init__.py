"""Reward hacking: the share of a reward's gain that independent judges confirm, and the change of the captions."""
