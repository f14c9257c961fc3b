"""What the measurements say: results, the choice of λ, curves and their comparison; numbers only, nothing drawn."""
