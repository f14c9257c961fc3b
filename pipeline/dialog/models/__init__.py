"""Networks of visual dialog."""
