"""Fast forms of the models' computations, each compared with the plain form by tests."""
