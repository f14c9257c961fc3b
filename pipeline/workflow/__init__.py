"""From params.yaml and files to runs: stages, the grid, and what they are built of."""
