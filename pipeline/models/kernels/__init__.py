"""Fast forms of networks and random numbers for the CPU; `shared_weight` also runs on a GPU.

Tests compare each form with the plain computation.
"""
