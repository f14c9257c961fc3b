"""Features of films from a network for images: regions of all frames with their time, and vectors of all frames."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from captioned_images import CaptionedImages
from feature_checksums import verify
from PIL import Image
from safetensors.numpy import load_file

from pipeline.data.feature_store import FeatureStore
from pipeline.features.extract import extract
from pipeline.features.extractor import ImageFeatures, NetworkSettings
from pipeline.features.film_extractor import COLUMNS, FilmExtractor, FrameCaptions, compute_time_features, open_film
from pipeline.features.object_detector import AnnotatedImage

WORDS = NetworkSettings("word_detector", 32)
FILMS = replace(WORDS, frames=4, vector="times")
DETECTOR = {"epochs": 1, "width": 4, "learning_rate": 0.01, "batch": 4, "seed": 0, "horizontal_flip": False}


@pytest.fixture(scope="module")
def drawn_films(tmp_path_factory):
    """Write twelve films of four frames, and each frame as an image of its own."""
    folder = tmp_path_factory.mktemp("films")
    for film in range(12):
        pixels = np.random.default_rng(film).integers(0, 256, (4, 10, 12, 1), dtype=np.uint8).repeat(3, 3)
        frames = [Image.fromarray(each).resize((48, 40), Image.Resampling.NEAREST) for each in pixels]
        frames[0].save(folder / f"{film}.gif", save_all=True, append_images=frames[1:], duration=100)
        for number, frame in enumerate(frames):
            frame.save(folder / f"{film}-{number}.png")
    return CaptionedImages([f"{film}.gif" for film in range(12)], 9), folder


class GreyExtractor:
    """An extractor for images of one grey value g: the vector is (g, 1), and g % 3 + 1 regions are (g, number)."""

    pooled_size, regions_shape, has_boxes = 2, (3, 2), True

    def __init__(self):
        self.description = {"network": "known"}
        self.batches, self.prepared = [], 0

    def prepare(self, image):
        self.prepared += 1
        return torch.full((3, 2, 2), float(np.asarray(image)[0, 0, 0]))

    def __call__(self, images):
        self.batches.append(len(images))
        grey = torch.stack([image[0, 0, 0] for image in images])
        count = (grey.long() % 3) + 1
        exist = (torch.arange(3) < count[:, None])[..., None]
        regions = torch.stack([grey[:, None].expand(-1, 3), torch.arange(3.0).expand(len(grey), -1)], 2) * exist
        boxes = regions[..., :1].expand(-1, -1, 4)
        return ImageFeatures(torch.stack([grey, torch.ones_like(grey)], 1), regions, count, boxes)


def make_grey(value):
    return Image.new("RGB", (2, 2), (value,) * 3)


def test_regions_of_all_frames_are_in_order_with_their_time():
    network = GreyExtractor()
    films = FilmExtractor(network, replace(WORDS, frames=3))
    assert (films.pooled_size, films.regions_shape, films.has_boxes) == (2, (9, 2 + COLUMNS), True)
    first = films.prepare([make_grey(1), make_grey(3), make_grey(5)])  # frames of 2, 1 and 3 regions
    second = films.prepare([make_grey(2)])  # one frame of 3 regions
    features = films([first, second])
    assert network.batches == [4], "expected one batch of the frames of all films"
    assert features.region_count.tolist() == [6, 3]
    assert features.regions[0, :, :2].tolist() == [
        [1, 0],
        [1, 1],
        [3, 0],
        [5, 0],
        [5, 1],
        [5, 2],
        [0, 0],
        [0, 0],
        [0, 0],
    ]
    assert features.boxes[0, :6, 0].tolist() == [1, 1, 3, 5, 5, 5]
    thirds = [np.cos(np.arange(1, 9) * np.pi * t) for t in (1 / 6, 1 / 6, 3 / 6, 5 / 6, 5 / 6, 5 / 6)]
    np.testing.assert_allclose(features.regions[0, :6, 2:], thirds, atol=1e-6)
    np.testing.assert_allclose(features.regions[1, :3, 2:], [np.cos(np.arange(1, 9) * np.pi / 2)] * 3, atol=1e-6)
    assert not features.regions[0, 6:].any()
    assert not features.regions[1, 3:].any()
    assert features.pooled.tolist() == [[3, 1], [2, 1]], "expected the mean over time"


def test_concatenated_vectors_keep_the_order_of_frames():
    forward = [make_grey(1), make_grey(3), make_grey(5)]
    backward = forward[::-1]
    mean, times = (
        FilmExtractor(GreyExtractor(), replace(WORDS, frames=3, vector=vector)) for vector in (None, "times")
    )
    assert times.pooled_size == 6
    assert times([times.prepare(forward)]).pooled.tolist() == [[1, 1, 3, 1, 5, 1]]
    assert times([times.prepare(backward)]).pooled.tolist() == [[5, 1, 3, 1, 1, 1]]
    assert torch.equal(mean([mean.prepare(forward)]).pooled, mean([mean.prepare(backward)]).pooled)


def test_a_linear_map_of_time_features_distinguishes_eight_frames():
    assert torch.linalg.matrix_rank(torch.cat([compute_time_features(8), torch.ones(8, 1)], 1)) == 8


def test_a_still_image_is_a_film_of_equal_frames_that_is_prepared_once(tmp_path):
    make_grey(7).save(tmp_path / "a.png")
    network = GreyExtractor()
    films = FilmExtractor(network, replace(WORDS, frames=3))
    for film in (make_grey(7), open_film(tmp_path / "a.png", 3)):
        network.prepared = 0
        assert torch.equal(films.prepare(film), torch.full((3, 3, 2, 2), 7.0))
        assert network.prepared == 1


@pytest.mark.parametrize(("rate", "frames"), [(2.0, 1), (20.0, 2), (100.0, 3)])
def test_a_still_image_has_as_many_frames_as_its_file(tmp_path, rate, frames):
    """A still image lasts 100 ms, from a file and from memory."""
    make_grey(7).save(tmp_path / "a.png")
    films = FilmExtractor(GreyExtractor(), replace(WORDS, frames=3, frames_per_second=rate))
    for film in (make_grey(7), open_film(tmp_path / "a.png", 3, rate)):
        assert len(films.prepare(film)) == frames


def test_features_of_films_are_those_of_their_frames_and_the_manifest_states_the_sampling(drawn_films, tmp_path):
    photos, folder = drawn_films
    settings = {"batch": 12, "detector": DETECTOR}
    one = replace(FILMS, vector=None)
    extract(photos, folder, tmp_path / "films", tmp_path / "work", one, **settings)
    store = FeatureStore(tmp_path / "films")
    assert (store.pooled_size, store.regions_shape) == (32, (4 * 4, 16 + COLUMNS))
    assert (store.manifest["frames"], store.manifest["rate"], store.manifest["vector"]) == (4, None, None)
    verify(store)

    # the detector is trained on each frame of a training film as on an image: the weights are equal to the bit
    images = CaptionedImages([f"{film}-{number}.png" for film in range(12) for number in range(4)], 36)
    extract(images, folder, tmp_path / "frames", tmp_path / "work", WORDS, **settings)
    frames = FeatureStore(tmp_path / "frames")
    assert "frames" not in frames.manifest
    assert frames.manifest["weights"]["sha256"] == store.manifest["weights"]["sha256"]
    pooled, regions, _ = frames.read(np.arange(48))
    np.testing.assert_allclose(store.pooled(np.arange(12)), pooled.reshape(12, 4, 32).mean(1), atol=2e-3)
    features = store.read(np.arange(12))[1].reshape(12, 4, 4, 24)
    np.testing.assert_allclose(features[..., :16], regions.reshape(12, 4, 4, 16), atol=2e-3)
    np.testing.assert_allclose(
        features[..., 16:], np.broadcast_to(compute_time_features(4)[None, :, None], (12, 4, 4, 8)), atol=1e-3
    )


def test_vectors_of_times_are_standardised_and_time_features_are_not_projected(drawn_films, tmp_path):
    settings = {"batch": 8, "detector": DETECTOR}
    extract(*drawn_films, tmp_path / "whole", tmp_path / "work", FILMS, **settings)
    extract(*drawn_films, tmp_path / "projected", tmp_path / "work", FILMS, **settings, pca_dim=3)
    whole, projected = FeatureStore(tmp_path / "whole"), FeatureStore(tmp_path / "projected")
    assert (projected.pooled_size, projected.regions_shape) == (4 * 32, (16, 3 + COLUMNS))
    assert projected.manifest["scale"]["file"] == "scale.safetensors"
    vectors = projected.pooled(np.arange(9)).astype(float)
    np.testing.assert_allclose(vectors.mean(0), 0, atol=1e-2)
    varies = vectors.std(0) > 0  # deviation over films; small networks have dead units
    assert varies.mean() > 0.5
    np.testing.assert_allclose(vectors.std(0)[varies], 1, atol=2e-2)
    saved = load_file(tmp_path / "projected" / "projection.safetensors")
    assert saved["components"].shape == (3, 16)
    regions, reduced = (store.read(np.arange(12))[1].astype(float) for store in (whole, projected))
    np.testing.assert_allclose(reduced[..., :3], (regions[..., :16] - saved["mean"]) @ saved["components"].T, atol=2e-2)
    np.testing.assert_array_equal(reduced[..., 3:], regions[..., 16:])


def test_films_of_different_lengths_have_as_many_frames_as_their_rate_gives(drawn_films, tmp_path):
    photos, folder = drawn_films
    films = tmp_path / "films"
    films.mkdir()
    for film in range(12):
        (films / f"{film}.gif").write_bytes((folder / f"{film}.gif").read_bytes())
    with Image.open(folder / "11.gif") as image:
        image.save(films / "11.gif")  # its first frame alone
    with Image.open(folder / "10-0.png") as one, Image.open(folder / "10-1.png") as two:
        one.save(films / "10.gif", save_all=True, append_images=[two], duration=100)
    settings = replace(WORDS, frames=3, frames_per_second=10.0)
    extract(photos, films, tmp_path / "out", tmp_path / "work", settings, batch=5, detector=DETECTOR)
    store = FeatureStore(tmp_path / "out")
    assert store.region_count.tolist() == [3 * 4] * 10 + [2 * 4, 1 * 4]
    assert (store.manifest["frames"], store.manifest["rate"]) == (3, 10.0)


def test_an_object_detector_is_trained_on_the_annotations_of_frames(drawn_films, tmp_path):
    requested = set()

    class RecordingList(list):
        def __getitem__(self, row):
            requested.add(row)
            return super().__getitem__(row)

    annotations = RecordingList(
        [AnnotatedImage((f"frame {i % 4}",), (((0, 0, 0.5, 1), ("a thing",)),)) for i in range(48)]
    )
    settings = replace(FILMS, network="object_detector")
    detector = DETECTOR | {"epochs": 3}
    extract(
        *drawn_films, tmp_path / "out", tmp_path / "work", settings, batch=8, detector=detector, objects=annotations
    )
    assert requested == set(range(36)), "expected each frame of the training split"
    assert FeatureStore(tmp_path / "out").manifest["network"] == "object_detector"


def test_captions_of_frames_are_those_of_their_film():
    class RowNumbers:
        def references(self, images):
            return images

    assert FrameCaptions(RowNumbers(), 4).references(np.array([0, 3, 4, 11])).tolist() == [0, 0, 1, 2]
