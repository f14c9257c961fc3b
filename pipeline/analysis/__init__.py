"""Analysis of the measurements: results, the choice of λ, curves and their comparison; numbers, nothing drawn."""
