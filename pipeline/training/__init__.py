"""Training of any method: the loop, optimisation and checkpoints, which use methods only through `Method`."""
