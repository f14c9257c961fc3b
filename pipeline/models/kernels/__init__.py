"""Fast forms of what models compute, each held to the plain form by tests."""
