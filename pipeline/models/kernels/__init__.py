"""Fast forms of networks and random numbers, all but `shared_weight` for the CPU alone.

Tests compare each form with the plain computation.
"""
