from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.errors import UserError
from pipeline.features.detector_training import WEIGHT_DECAY, compute_one_cycle_rate, train_detector
from pipeline.features.extractor import NetworkSettings
from pipeline.features.word_detector import (
    WordDetector,
    WordDetectorNetwork,
    WordPrediction,
    compute_word_shares,
    resize_square,
)
from pipeline.runtime.adam import Adam

SETTINGS = {"epochs": 6, "width": 8, "learning_rate": 0.01, "batch": 8, "horizontal_flip": False}


class BrightImages:
    """128 images; even rows are bright. All captions have word 1; half the captions of bright images have word 2."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.bright = np.arange(128) % 2 == 0
        base = np.where(self.bright, 200, 50)[:, None, None, None]
        self.pixels = (base + rng.integers(-40, 40, (128, 3, 32, 32))).astype(np.uint8)

    def references(self, images):
        captions = np.array([[[1, 0], [1, 0]], [[1, 2], [1, 0]]], np.int32)
        return captions[self.bright[np.asarray(images)].astype(int)]


def train(**changed):
    data = BrightImages()
    return train_detector(data.pixels, WordPrediction(data, 2), np.arange(100), **{**SETTINGS, "seed": 1, **changed})


@pytest.mark.parametrize("images", [0, 1])
def test_a_detector_of_fewer_than_two_images_is_refused(images):
    data = BrightImages()
    with pytest.raises(UserError, match=f"^detector: expected two training images or more, found {images}; add"):
        train_detector(data.pixels, WordPrediction(data, 2), np.arange(images), **SETTINGS, seed=1)


def test_word_shares_count_captions_not_words():
    references = np.array([[[1, 3, 3], [3, 0, 0], [2, 1, 0], [0, 0, 0]], [[2, 5, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]])
    expected = [[2 / 3, 1 / 3, 2 / 3], [0, 1, 0]]  # word 5 (UNK) is beyond the three requested
    torch.testing.assert_close(compute_word_shares(references, 3), torch.tensor(expected))


def test_a_trained_detector_predicts_visible_words_of_held_out_images():
    losses = {}
    detector = train(on_epoch=lambda epoch, report: losses.__setitem__(epoch, report["loss"]))
    assert sorted(losses) == list(range(6))
    assert losses[5] < losses[0]
    data = BrightImages()
    with torch.inference_mode():
        probabilities = detector(torch.from_numpy(data.pixels[100:]).float()).sigmoid()
    assert (probabilities[:, 0] > 0.9).all()
    torch.testing.assert_close(
        probabilities[:, 1], torch.from_numpy(data.bright[100:] * 0.5).float(), atol=0.15, rtol=0
    )


class HalfBrightImages:
    """128 images: even rows have word 1 and a bright left half; odd rows have word 2 and a bright right half."""

    def __init__(self):
        self.left = np.arange(128) % 2 == 0
        columns = np.where(np.arange(32) < 16, 200, 50)
        sides = np.where(self.left[:, None], columns, columns[::-1])
        noise = np.random.default_rng(0).integers(-40, 40, (128, 3, 32, 32))
        self.pixels = (sides[:, None, None, :] + noise).astype(np.uint8)

    def references(self, images):
        return np.where(self.left[np.asarray(images)], 1, 2).astype(np.int32)[:, None, None]


@pytest.mark.parametrize("mirrored", [False, True])
def test_training_on_mirrored_images_confuses_left_and_right(mirrored):
    data = HalfBrightImages()
    settings = {**SETTINGS, "seed": 1, "horizontal_flip": mirrored}
    detector = train_detector(data.pixels, WordPrediction(data, 2), np.arange(100), **settings)
    with torch.inference_mode():
        left = detector(torch.from_numpy(data.pixels[100:]).float()).sigmoid()[:, 0].numpy()
    if mirrored:
        np.testing.assert_allclose(left, 0.5, atol=0.25)
    else:
        np.testing.assert_allclose(left, data.left[100:], atol=0.25)


def test_seed_and_nothing_else_fixes_the_weights_bit_for_bit():
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    one = train(epochs=2)
    assert torch.equal(torch.random.get_rng_state(), state)  # the global stream does not change
    torch.manual_seed(6)
    other, third = train(epochs=2), train(epochs=2, seed=2)
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    assert not torch.equal(one.words.weight, third.words.weight)


def test_the_optimiser_is_torchs_adamw_with_one_cycle_to_the_bit():
    steps, inputs = 12, torch.randn(12, 6, 4, generator=torch.Generator().manual_seed(0))
    model, other = (torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)) for _ in range(2))
    other.load_state_dict(model.state_dict())
    decaying, rest = ([p for p in other.parameters() if p.dim() == dim] for dim in (2, 1))
    groups = [{"params": decaying, "weight_decay": WEIGHT_DECAY}, {"params": rest, "weight_decay": 0.0}]
    adam, optimiser = torch.optim.AdamW(groups, 0.1, fused=True), Adam(model, WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        adam, 0.1, total_steps=steps, pct_start=0.2, div_factor=10, cycle_momentum=False
    )
    for step in range(steps):
        model(inputs[step]).square().sum().backward()
        assert compute_one_cycle_rate(step, steps, 0.1) == adam.param_groups[0]["lr"]
        optimiser.step(compute_one_cycle_rate(step, steps, 0.1))
        adam.zero_grad()
        other(inputs[step]).square().sum().backward()
        adam.step()
        schedule.step()
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


@pytest.mark.parametrize("steps", [1, 2, 5])  # the rise would end at or before step 0
def test_a_short_training_has_a_learning_rate_at_every_step(steps):
    assert all(0 < compute_one_cycle_rate(step, steps, 1.0) <= 1 for step in range(steps))


def test_the_number_of_threads_changes_nothing_and_is_left_as_it_was():
    threads = torch.get_num_threads()
    states = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            states.append(train(epochs=1).state_dict())
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


def test_features_are_the_map_and_its_standardised_mean_and_maximum():
    detector, data = train(), BrightImages()
    settings = NetworkSettings("word_detector", 32)
    network = WordDetectorNetwork(detector, settings)
    assert (network.pooled_size, network.regions_shape) == (64, (4, 32))
    images = torch.from_numpy(data.pixels[:100])
    pooled, regions, count, boxes = network(list(images))
    assert boxes is None
    assert count.tolist() == [4] * 100
    assert (regions >= 0).all()
    vectors = torch.cat([regions.mean(1), regions.amax(1)], 1)
    norm = detector.standardised
    expected = (vectors - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    torch.testing.assert_close(pooled, expected, atol=1e-3, rtol=1e-3)
    assert WordDetectorNetwork(detector, replace(settings, grid_size=1)).regions_shape == (1, 32)


def test_an_image_is_squashed_to_the_square_not_cropped():
    image = Image.new("RGB", (90, 30), (10, 20, 30))
    image.paste((200, 100, 50), (0, 0, 30, 30))
    pixels = resize_square(image, 12)
    assert pixels.shape == (3, 12, 12)
    assert pixels.dtype == torch.uint8
    assert pixels[:, 6, 1].tolist() == [200, 100, 50]
    assert pixels[:, 6, 10].tolist() == [10, 20, 30]


@pytest.mark.parametrize(("size", "side"), [(32, 2), (64, 4), (40, 3), (100, 7), (35, 2)])
def test_the_map_has_a_sixteenth_of_the_images_side(size, side):
    """The map's side is ⌈⌊S/4⌋/4⌉, also where 16 does not divide the side S."""
    assert WordDetector(5, 4).eval().regions(torch.zeros(1, 3, size, size)).shape == (1, 16, side, side)
