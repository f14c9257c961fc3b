"""Training of any method: the loop, optimisation and checkpoints, which depend on Method and on no single method."""
