"""The machinery that trains any method: it knows Method, and no method's name."""
