"""A detector of objects: which cells a box covers, mirrored targets, and a toy world that it learns."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.features.detector_training import train_detector
from pipeline.features.object_detector import AnnotatedImage, ObjectDetection, ObjectDetector

SETTINGS = {"epochs": 6, "width": 8, "learning_rate": 0.01, "batch": 8, "seed": 1}
TRAINED, SEEN = np.arange(100), np.arange(100, 128)


def cells(*objects, height=2, width=4):
    """Return each label's cells, as rows of 0 and 1."""
    lesson = ObjectDetection([AnnotatedImage((), objects)])
    return dict(zip(lesson.labels, lesson.cells(lesson.images[0], height, width).tolist(), strict=True))


def test_a_cell_has_the_labels_of_the_object_that_covers_it():
    whole = cells(((0.25, 0.5, 0.75, 1.0), ("dog", "brown")))
    assert whole == {name: [[0, 0, 0, 0], [0, 1, 1, 0]] for name in ("brown", "dog")}
    # of the second column .32 and .28 of a cell, and .32 × .9 of it
    assert cells(((0.0, 0.0, 0.33, 0.5), ("a",)))["a"] == [[1, 1, 0, 0], [0, 0, 0, 0]]
    assert cells(((0.0, 0.0, 0.32, 0.5), ("a",)))["a"] == [[1, 0, 0, 0], [0, 0, 0, 0]]
    assert cells(((0.0, 0.05, 0.33, 0.5), ("a",)))["a"] == [[1, 0, 0, 0], [0, 0, 0, 0]]
    assert cells(((0.4, 0.4, 0.42, 0.42), ("a",)))["a"] == [[0, 0, 0, 0], [0, 0, 0, 0]]


def test_several_objects_are_in_one_map_and_a_cell_may_have_two():
    left, right, middle = (0.0, 0.0, 0.5, 0.5), (0.5, 0.0, 1.0, 0.5), (0.25, 0.0, 0.75, 0.5)
    found = cells((left, ("a",)), (right, ("b",)), (middle, ("a", "c")))
    assert found == {
        "a": [[1, 1, 1, 0], [0, 0, 0, 0]],
        "b": [[0, 0, 1, 1], [0, 0, 0, 0]],
        "c": [[0, 1, 1, 0], [0, 0, 0, 0]],
    }


def test_labels_are_numbered_by_name_over_all_images():
    one = AnnotatedImage(("night",), (((0, 0, 1, 1), ("red", "ball")),))
    other = AnnotatedImage(("day",), (((0, 0, 1, 1), ("cat",)), ((0, 0, 1, 1), ("red",))))
    lesson = ObjectDetection([one, other])
    assert lesson.labels == {"ball": 0, "cat": 1, "red": 2}
    assert lesson.scene == {"day": 0, "night": 1}
    detector = lesson.network(4)
    objects, scene = detector(torch.zeros(2, 3, 64, 64))
    assert (objects.shape, scene.shape) == ((2, 3, 4, 4), (2, 2))


class Saying(nn.Module):
    """A detector that gives the same logits whatever it is shown."""

    def __init__(self, objects, scene):
        super().__init__()
        self.objects, self.scene = torch.tensor(objects), torch.tensor(scene)

    def forward(self, shown):
        return self.objects.expand(len(shown), -1, -1, -1), self.scene.expand(len(shown), -1)


def test_the_loss_is_summed_and_targets_are_mirrored_with_their_images():
    lesson = ObjectDetection([AnnotatedImage(("day",), (((0, 0, 0.5, 1), ("dog",)),)), AnnotatedImage(("night",), ())])
    detector = Saying([[[2.0, -1.0]]], [3.0, -3.0])  # a dog on the left; day
    miss = [math.log1p(math.exp(x)) for x in (2.0, -1.0, 3.0)]  # of a logit x whose target is 0; −x where it is 1
    hit = math.log1p(math.exp(-2.0))
    day, night = 2 * math.log1p(math.exp(-3.0)), 2 * miss[2]
    shown = torch.zeros(1, 3, 8, 8)
    for image, turned, expected in (
        (0, False, hit + miss[1] + day),
        (0, True, miss[0] + math.log1p(math.exp(1.0)) + day),
        (1, True, miss[0] + miss[1] + night),
    ):
        loss = lesson.loss(detector, shown, np.array([image]), np.array([turned]))
        assert float(loss) == pytest.approx(expected, rel=1e-6), (image, turned)
    both = lesson.loss(detector, shown.expand(3, -1, -1, -1), np.array([0, 0, 1]), np.array([False, True, True]))
    parts = (lesson.loss(detector, shown, np.array([i]), np.array([t])) for i, t in ((0, False), (0, True), (1, True)))
    assert float(both) == pytest.approx(float(sum(parts)), rel=1e-6)


class World:
    """128 images of day or night, each with a bright square on the left, on the right or nowhere."""

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
        names = zip(self.side.tolist(), self.day.tolist(), strict=True)
        self.objects = ObjectDetection(
            [AnnotatedImage(("day" if day else "night",), boxes[side]) for side, day in names]
        )


def train(world: World, **changed) -> ObjectDetector:
    return train_detector(world.pixels, world.objects, TRAINED, **{**SETTINGS, "horizontal_flip": True, **changed})


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_detector_learns_objects_and_scenes_of_held_out_images(mirrored):
    world, losses = World(), []
    detector = train(
        world, epochs=10, horizontal_flip=mirrored, on_epoch=lambda epoch, report: losses.append(report["loss"])
    )
    assert losses[-1] < losses[0] / 4
    with torch.inference_mode():
        objects, scene = detector(torch.from_numpy(world.pixels[SEEN]).float())
    expected = np.stack([world.objects.cells(world.objects.images[row], 2, 2) for row in SEEN])
    assert 0 < expected.sum() < len(SEEN)  # some images have a square, some none
    np.testing.assert_array_equal(objects.numpy() > 0, expected == 1)
    np.testing.assert_array_equal(scene.numpy()[:, 0] > 0, world.day[SEEN])


def test_seed_and_nothing_else_fixes_the_weights_bit_for_bit():
    world = World()
    torch.manual_seed(5)
    one = train(world, epochs=1)
    torch.manual_seed(6)
    other, third = train(world, epochs=1), train(world, epochs=1, seed=2)
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    assert not torch.equal(one.objects.weight, third.objects.weight)
