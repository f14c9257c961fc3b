"""The embedded data set of moving pictures: drawn films whose facts are known, with captions that tell what happens."""
