"""Images as feature extraction reads them: the first ones are the training split, and all captions are equal."""

from collections.abc import Sequence

import numpy as np

from pipeline.vocabulary import Vocabulary


class CaptionedImages:
    """Captioned images in `files`; the first `training` ones are the training split."""

    def __init__(self, files: Sequence[str], training: int, words: Sequence[str] = ("a", "photo", "UNK")) -> None:
        self.files, self.training, self.vocabulary = files, training, Vocabulary(tuple(words))

    def __len__(self):
        return len(self.files)

    def rows(self, split):
        return np.arange(self.training) if split == "train" else np.arange(self.training, len(self))

    def file(self, image):
        return self.files[image]

    def references(self, images):
        assert max(images) < len(self)
        return np.tile(np.array([[[1, 2, 0]]], np.int32), (len(images), 1, 1))
