"""Fast forms of the models' computations; tests compare each with its plain form."""
