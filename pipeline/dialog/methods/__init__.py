"""Methods of visual dialog: one module per paper, registered like those of pipeline/methods."""
