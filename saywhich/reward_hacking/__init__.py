"""Reward hacking: how much of a reward's gain independent judges see, and how the captions changed."""
