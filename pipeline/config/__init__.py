"""params.yaml: read, checked, handed out."""
