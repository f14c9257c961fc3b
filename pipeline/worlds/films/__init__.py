"""The embedded data set of moving images: drawn films with known facts, and captions that describe their events."""
