"""Random captions are those of other images."""

from types import SimpleNamespace

import numpy as np

from pipeline.evaluation.baseline_captions import build_random_captioner

ROWS = np.arange(150, 170)
PREPARED = SimpleNamespace(words=lambda row: [["caption", "of", str(row)], ["another"]])


def test_random_captions_are_those_of_other_images():
    captions = build_random_captioner(PREPARED, None)(ROWS, [""] * len(ROWS))
    images = [int(caption.removeprefix("caption of ")) for caption in captions]
    assert set(images) <= set(ROWS.tolist())
    assert all(image != row for image, row in zip(images, ROWS, strict=True))
    assert len(set(images)) > 5
