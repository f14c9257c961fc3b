"""Methods of visual dialog: one module per paper, found like those of pipeline/methods."""
