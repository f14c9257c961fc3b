"""params.yaml: reading, checking, and the part of it that each stage gets."""
