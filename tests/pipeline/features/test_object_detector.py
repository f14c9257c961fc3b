"""The object detector: labels of cells and of scenes, the loss of mirrored images, and training on toy images."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.features.detector_training import train_detector
from pipeline.features.object_detector import AnnotatedImage, ObjectDetection, ObjectDetector

SETTINGS = {"epochs": 6, "width": 8, "learning_rate": 0.01, "batch": 8, "seed": 1}
TRAINING_ROWS, HELD_OUT_ROWS = np.arange(100), np.arange(100, 128)


def compute_cells(*objects, height=2, width=4):
    """Return each label's cells, as rows of 0 and 1."""
    detection = ObjectDetection([AnnotatedImage((), objects)])
    return dict(zip(detection.labels, detection.cells(detection.images[0], height, width).tolist(), strict=True))


def test_a_cell_has_the_labels_of_an_object_that_covers_three_tenths_of_it():
    whole = compute_cells(((0.25, 0.5, 0.75, 1.0), ("dog", "brown")))
    assert whole == {name: [[0, 0, 0, 0], [0, 1, 1, 0]] for name in ("brown", "dog")}
    # the boxes cover .32, .28 and .32 × .9 of a cell in the second column
    assert compute_cells(((0.0, 0.0, 0.33, 0.5), ("a",)))["a"] == [[1, 1, 0, 0], [0, 0, 0, 0]]
    assert compute_cells(((0.0, 0.0, 0.32, 0.5), ("a",)))["a"] == [[1, 0, 0, 0], [0, 0, 0, 0]]
    assert compute_cells(((0.0, 0.05, 0.33, 0.5), ("a",)))["a"] == [[1, 0, 0, 0], [0, 0, 0, 0]]
    assert compute_cells(((0.4, 0.4, 0.42, 0.42), ("a",)))["a"] == [[0, 0, 0, 0], [0, 0, 0, 0]]


def test_objects_of_one_label_share_a_map_and_a_cell_may_have_labels_of_two_objects():
    left, right, middle = (0.0, 0.0, 0.5, 0.5), (0.5, 0.0, 1.0, 0.5), (0.25, 0.0, 0.75, 0.5)
    found = compute_cells((left, ("a",)), (right, ("b",)), (middle, ("a", "c")))
    assert found == {
        "a": [[1, 1, 1, 0], [0, 0, 0, 0]],
        "b": [[0, 0, 1, 1], [0, 0, 0, 0]],
        "c": [[0, 1, 1, 0], [0, 0, 0, 0]],
    }


def test_labels_of_all_images_are_numbered_in_alphabetical_order():
    one = AnnotatedImage(("night",), (((0, 0, 1, 1), ("red", "ball")),))
    other = AnnotatedImage(("day",), (((0, 0, 1, 1), ("cat",)), ((0, 0, 1, 1), ("red",))))
    detection = ObjectDetection([one, other])
    assert detection.labels == {"ball": 0, "cat": 1, "red": 2}
    assert detection.scene == {"day": 0, "night": 1}
    detector = detection.build_network(4)
    objects, scene = detector(torch.zeros(2, 3, 64, 64))
    assert (objects.shape, scene.shape) == ((2, 3, 4, 4), (2, 2))


class ConstantDetector(nn.Module):
    """A detector with the same logits for all images."""

    def __init__(self, objects, scene):
        super().__init__()
        self.objects, self.scene = torch.tensor(objects), torch.tensor(scene)

    def forward(self, images):
        return self.objects.expand(len(images), -1, -1, -1), self.scene.expand(len(images), -1)


def test_the_loss_is_summed_and_targets_of_mirrored_images_are_mirrored():
    detection = ObjectDetection(
        [AnnotatedImage(("day",), (((0, 0, 0.5, 1), ("dog",)),)), AnnotatedImage(("night",), ())]
    )
    detector = ConstantDetector([[[2.0, -1.0]]], [3.0, -3.0])  # a dog on the left; day
    miss = [math.log1p(math.exp(x)) for x in (2.0, -1.0, 3.0)]  # loss of a logit x with the target 0
    hit = math.log1p(math.exp(-2.0))
    day, night = 2 * math.log1p(math.exp(-3.0)), 2 * miss[2]
    images = torch.zeros(1, 3, 8, 8)
    for image, mirrored, expected in (
        (0, False, hit + miss[1] + day),
        (0, True, miss[0] + math.log1p(math.exp(1.0)) + day),
        (1, True, miss[0] + miss[1] + night),
    ):
        loss = detection.loss(detector, images, np.array([image]), np.array([mirrored]))
        assert float(loss) == pytest.approx(expected, rel=1e-6), (image, mirrored)
    both = detection.loss(detector, images.expand(3, -1, -1, -1), np.array([0, 0, 1]), np.array([False, True, True]))
    parts = (
        detection.loss(detector, images, np.array([i]), np.array([t])) for i, t in ((0, False), (0, True), (1, True))
    )
    assert float(both) == pytest.approx(float(sum(parts)), rel=1e-6)


class SquareImages:
    """128 images of day or night, each with a bright square at the top left, at the top right, or without a square."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.side, self.day = rng.integers(-1, 2, 128), np.arange(128) % 2 == 0
        base = np.where(self.day, 110, 20)[:, None, None, None]
        pixels = base + rng.integers(-15, 15, (128, 3, 32, 32))
        left, right = (0.0, 0.0, 0.5, 0.5), (0.5, 0.0, 1.0, 0.5)
        pixels[self.side < 0, :, :16, :16] += 120
        pixels[self.side > 0, :, :16, 16:] += 120
        self.pixels = pixels.clip(0, 255).astype(np.uint8)
        boxes = {-1: ((left, ("square",)),), 0: (), 1: ((right, ("square",)),)}
        kinds = zip(self.side.tolist(), self.day.tolist(), strict=True)
        self.objects = ObjectDetection(
            [AnnotatedImage(("day" if day else "night",), boxes[side]) for side, day in kinds]
        )


def train(data: SquareImages, **changed) -> ObjectDetector:
    return train_detector(data.pixels, data.objects, TRAINING_ROWS, **{**SETTINGS, "horizontal_flip": True, **changed})


@pytest.mark.parametrize("horizontal_flip", [False, True])
def test_a_trained_detector_predicts_objects_and_scenes_of_held_out_images(horizontal_flip):
    data, losses = SquareImages(), []
    detector = train(
        data, epochs=10, horizontal_flip=horizontal_flip, on_epoch=lambda epoch, report: losses.append(report["loss"])
    )
    assert losses[-1] < losses[0] / 4
    with torch.inference_mode():
        objects, scene = detector(torch.from_numpy(data.pixels[HELD_OUT_ROWS]).float())
    expected = np.stack([data.objects.cells(data.objects.images[row], 2, 2) for row in HELD_OUT_ROWS])
    assert 0 < expected.sum() < len(HELD_OUT_ROWS)  # some images have no square
    np.testing.assert_array_equal(objects.numpy() > 0, expected == 1)
    np.testing.assert_array_equal(scene.numpy()[:, 0] > 0, data.day[HELD_OUT_ROWS])


def test_the_setting_seed_fixes_the_weights_whatever_the_global_seed():
    data = SquareImages()
    torch.manual_seed(5)
    one = train(data, epochs=1)
    torch.manual_seed(6)
    other, third = train(data, epochs=1), train(data, epochs=1, seed=2)
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    assert not torch.equal(one.objects.weight, third.objects.weight)
