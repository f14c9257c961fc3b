"""Analysis of measurements: results, selection of λ, trade-off curves and their comparison, without drawing."""
