"""A benchmark of freshly drawn scenes, whose facts decide which claims of a caption are true."""
