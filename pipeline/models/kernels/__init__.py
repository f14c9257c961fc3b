"""Fast CPU forms of networks and random numbers; tests compare each form with the plain computation."""
