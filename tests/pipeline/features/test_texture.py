"""The distance of an image's texture from the textures of a training split."""

import random

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.features.images import open_image
from pipeline.features.texture import FALSE_ALARMS, SIZE, TrainingTexture, compute_texture_statistics
from pipeline.features.word_detector import resize_square
from pipeline.worlds.scenes.drawing.draw_scene import draw_scene
from pipeline.worlds.scenes.sample_scenes import sample_scene


def test_uint8_and_float_images_and_a_films_first_frame_have_the_same_statistics():
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 80, 120), np.uint8))
    found = compute_texture_statistics(image)
    assert found.shape == (SIZE,)
    torch.testing.assert_close(compute_texture_statistics(image / 255), found)
    torch.testing.assert_close(compute_texture_statistics(torch.stack([image, image.flip(-1)])), found)


def test_a_plain_image_has_no_differences_and_noise_has_large_ones():
    plain, noise = torch.full((3, 96, 96), 0.5), torch.rand(3, 96, 96, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(compute_texture_statistics(plain), torch.full((SIZE,), 1 / 255).log())
    assert (compute_texture_statistics(noise) > compute_texture_statistics(plain)).all()


def test_distances_are_mahalanobis_and_false_alarms_have_the_stated_rate():
    mix = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(0))

    def draw_statistics(number: int, seed: int) -> torch.Tensor:
        return torch.randn(number, SIZE, generator=torch.Generator().manual_seed(seed)) @ mix + 3

    fitted = TrainingTexture.fit(draw_statistics(20_000, 1), draw_statistics(20_000, 2))
    covariance = mix.T @ mix
    fresh = draw_statistics(20_000, 3)
    expected = (((fresh - 3) @ torch.linalg.inv(covariance)) * (fresh - 3)).sum(1).sqrt()
    # with shrinkage, directions of small variance count a little less
    assert ((fitted.distances(fresh) / expected).median() - 1).abs() < 0.03
    rate = (fitted.distances(fresh) > fitted.limit).float().mean()
    assert 0.5 * FALSE_ALARMS < rate < 1.5 * FALSE_ALARMS


def test_the_limit_needs_199_held_out_images_and_is_then_the_largest_distance():
    statistics = torch.randn(300, SIZE, generator=torch.Generator().manual_seed(0))
    assert TrainingTexture.fit(statistics, statistics[:198]) is None
    fitted = TrainingTexture.fit(statistics, statistics[:199])
    assert fitted.limit == fitted.distances(statistics[:199]).max()


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_equal_training_images_have_no_distribution(value):
    plain = compute_texture_statistics(torch.full((3, 96, 96), value))
    assert TrainingTexture.fit(plain.expand(7, -1), torch.randn(300, SIZE)) is None


@pytest.mark.slow
def test_photos_are_unlike_drawn_scenes_and_other_scenes_are_not(real_data):
    def compute_scene_statistics(number: int) -> torch.Tensor:
        return compute_texture_statistics(resize_square(draw_scene(sample_scene(1, number), 1, number, 128), 96))

    files = random.Random(0).sample(sorted((real_data / "flickr8k/images").glob("*.jpg")), 60)
    photos = torch.stack([compute_texture_statistics(resize_square(open_image(file), 96)) for file in files])
    scenes = torch.stack([compute_scene_statistics(number) for number in range(800)])
    fitted = TrainingTexture.fit(scenes[:400], scenes[400:600])
    assert (fitted.distances(scenes[600:]) > fitted.limit).float().mean() <= 0.02
    assert (fitted.distances(photos) > fitted.limit).float().mean() >= 0.95


@pytest.mark.parametrize("side", [16, 500])
def test_images_of_any_size_have_statistics(side):
    noise = np.random.default_rng(1).integers(0, 256, (side, side, 3), np.uint8)
    assert compute_texture_statistics(resize_square(Image.fromarray(noise), side)).isfinite().all()
