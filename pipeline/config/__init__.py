"""The parameters of params.yaml: reading, checking, and the part that each stage gets."""
