"""The path from params.yaml and files to runs: stages, the grid, and the constructors of their parts."""
