"""An embedded data set: drawn scenes with known facts, and captions in the style of human ones."""
