import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from captioned_images import CaptionedImages
from feature_checksums import verify
from PIL import Image
from safetensors.numpy import load_file
from safetensors.torch import save_file

from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.errors import UserError
from pipeline.features.extract import extract, open_network
from pipeline.features.extractor import NetworkSettings
from pipeline.features.images import open_image
from pipeline.features.networks import TimmNetwork
from pipeline.runtime.files import compute_sha256
from pipeline.runtime.torchvision_cpu import declare_operators

WORDS = NetworkSettings("word_detector", 32)
DETECTOR = {"epochs": 1, "width": 4, "learning_rate": 0.01, "batch": 4, "seed": 0, "horizontal_flip": False}


@pytest.fixture
def drawn_images(tmp_path):
    (tmp_path / "images").mkdir()
    for i in range(12):
        pixels = np.random.default_rng(i).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).convert("L" if i == 3 else "RGB").save(tmp_path / "images" / f"{i}.png")
    return CaptionedImages([f"{i}.png" for i in range(12)], 9), tmp_path / "images"


def test_a_detector_is_trained_and_its_features_do_not_depend_on_the_batch_size(drawn_images, tmp_path):
    losses = []
    settings = {"settings": WORDS, "detector": DETECTOR}
    for name, batch in (("one", 5), ("two", 12)):  # the batch size changes features by rounding errors alone
        out = tmp_path / name
        record_loss = lambda epoch, report: losses.append(report["loss"])  # noqa: E731
        extract(*drawn_images, out, tmp_path / "work", **settings, batch=batch, on_epoch=record_loss)
        assert sorted(p.name for p in out.iterdir()) == ["detector.safetensors", "features.h5", "manifest.json"]
    one, two = FeatureStore(tmp_path / "one"), FeatureStore(tmp_path / "two")
    assert (len(one), one.pooled_size, one.regions_shape) == (12, 32, (4, 16))
    for a, b in zip(one.read(np.arange(12)), two.read(np.arange(12)), strict=True):
        np.testing.assert_allclose(a.astype(float), b.astype(float), atol=1e-3)  # neighbours differ by 7e-3 or more
    assert losses[0] == losses[1]
    manifest = one.manifest
    assert manifest["detector"] == DETECTOR
    assert manifest["weights"]["sha256"] == compute_sha256(tmp_path / "one" / "detector.safetensors")
    assert manifest["preprocessing"]["input_size"] == [3, 32, 32]
    verify(one)


def test_a_removed_image_is_named_and_leaves_no_output(drawn_images, tmp_path):
    photos, images = drawn_images
    (images / "7.png").unlink()
    work = tmp_path / "work"
    with pytest.raises(UserError, match=r"7.png: the image is missing; it was there when"):
        extract(photos, images, tmp_path / "out", work, WORDS, batch=4, detector=DETECTOR)
    assert not (tmp_path / "out").exists()


def test_projected_regions_are_the_principal_components_of_the_training_splits(drawn_images, tmp_path):
    settings = {"settings": WORDS, "batch": 5, "detector": DETECTOR}
    extract(*drawn_images, tmp_path / "whole", tmp_path / "work", **settings)
    extract(*drawn_images, tmp_path / "projected", tmp_path / "work", **settings, pca_dim=3)
    whole, projected = FeatureStore(tmp_path / "whole"), FeatureStore(tmp_path / "projected")
    rows = np.arange(12)
    assert projected.regions_shape == (4, 3)
    np.testing.assert_array_equal(projected.read(rows)[0], whole.read(rows)[0])  # pooled is not projected
    regions, reduced = whole.read(rows)[1], projected.read(rows)[1]
    training = regions[:9].reshape(-1, 16).astype(np.float64)
    saved = load_file(tmp_path / "projected" / "projection.safetensors")
    np.testing.assert_allclose(saved["mean"], training.mean(0), atol=1e-5)
    directions = np.linalg.svd(training - training.mean(0), full_matrices=False)[2]
    np.testing.assert_allclose(np.abs((saved["components"] * directions[:3]).sum(1)), 1, atol=1e-4)
    np.testing.assert_allclose(reduced, (regions - saved["mean"]) @ saved["components"].T, atol=3e-3)
    manifest = projected.manifest["projection"]
    assert manifest["sha256"] == compute_sha256(tmp_path / "projected" / "projection.safetensors")
    assert 0 < manifest["explained"] <= 1


TINY = "test_resnet"


@pytest.fixture(scope="module")
def tiny_network(tmp_path_factory):
    """Return settings of a small test network of timm, whose random weights are in a file."""
    declare_operators()
    import timm

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file(timm.create_model(TINY).state_dict(), path)
    return NetworkSettings(TINY, 32, str(path))


def read_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_row_of_the_store_has_the_features_of_its_image(drawn_images, tiny_network, tmp_path):
    photos, images = drawn_images
    extract(photos, images, tmp_path / "out", tmp_path / "work", tiny_network, batch=5)
    network = open_network(tiny_network)
    pooled, regions, _ = FeatureStore(tmp_path / "out").read(np.arange(12))
    for row, name in enumerate(photos.files):
        expected = network([network.prepare(open_image(images / name))])
        np.testing.assert_allclose(pooled[row], expected.pooled[0], atol=1e-3)
        np.testing.assert_allclose(regions[row], expected.regions[0], atol=1e-3)
    assert np.abs(pooled[1:] - pooled[:-1]).max(1).min() > 3e-3


def test_any_number_and_order_of_shards_gives_the_same_bytes(drawn_images, tiny_network, tmp_path):
    settings = {"settings": tiny_network, "batch": 2, "pca_dim": 4}
    extract(*drawn_images, tmp_path / "whole", tmp_path / "work", **settings)
    assert not (tmp_path / "work").exists()
    for shards in (2, 5, 9):  # six batches: three of nine shards have none
        out = tmp_path / f"of-{shards}"
        for shard in reversed(range(1, shards + 1)):
            extract(*drawn_images, out, tmp_path / "work", **settings, shard=(shard, shards))
        assert not out.exists()
        opened = []
        photos = drawn_images[0]
        photos.file = lambda image, opened=opened: opened.append(image) or f"{image}.png"
        extract(photos, drawn_images[1], out, tmp_path / "work", **settings)
        textured = [*photos.rows("train"), *photos.rows("val")]
        assert sorted(opened) == sorted(textured), "expected one reading of each image, for its texture"
        del photos.file
        assert read_files(out) == read_files(tmp_path / "whole")
    assert not (tmp_path / "work").exists()


def test_features_of_mirror_images_are_those_of_mirrored_files_and_come_last(drawn_images, tiny_network, tmp_path):
    photos, images = drawn_images
    (tmp_path / "turned").mkdir()
    for name in photos.files:
        with Image.open(images / name) as image:
            image.resize((32, 32), Image.Resampling.BICUBIC).save(images / name)
        with Image.open(images / name) as image:
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "turned" / name)
    settings = {"settings": tiny_network, "batch": 5, "pca_dim": 4, "horizontal_flip": True}
    extract(*drawn_images, tmp_path / "both", tmp_path / "work", **settings)
    plain = settings | {"horizontal_flip": False, "pca_dim": None}
    for name, folder in (("straight", images), ("turned", tmp_path / "turned")):
        extract(photos, folder, tmp_path / f"of {name}", tmp_path / "work", **plain)
    both, straight, turned = (FeatureStore(tmp_path / name) for name in ("both", "of straight", "of turned"))
    assert (len(both), both.mirrored, straight.mirrored) == (12, True, False)
    verify(both)
    rows, saved = np.arange(12), load_file(tmp_path / "both" / "projection.safetensors")
    for store, stored_rows in ((straight, rows), (turned, rows + 12)):
        np.testing.assert_allclose(both.pooled(stored_rows), store.pooled(rows), atol=2e-3)
        reduced = (store.read(rows)[1] - saved["mean"]) @ saved["components"].T
        np.testing.assert_allclose(both.read(stored_rows)[1], reduced, atol=2e-2)
    assert not np.allclose(both.pooled(rows + 12), both.pooled(rows), atol=1e-2)
    for shard in (2, 1):
        extract(*drawn_images, tmp_path / "parts", tmp_path / "work", **settings, shard=(shard, 2))
    extract(*drawn_images, tmp_path / "parts", tmp_path / "work", **settings)
    assert read_files(tmp_path / "parts") == read_files(tmp_path / "both")


def test_mean_and_maximum_of_the_map_are_standardised_over_the_training_split(drawn_images, tiny_network, tmp_path):
    extract(*drawn_images, tmp_path / "own", tmp_path / "work", tiny_network, batch=5)
    mean_and_max = replace(tiny_network, vector="mean_and_max", grid_size=1)
    extract(*drawn_images, tmp_path / "both", tmp_path / "work", mean_and_max, batch=5)
    _, cells, _ = FeatureStore(tmp_path / "own").read(np.arange(12))
    vectors = np.concatenate([cells.mean(1), cells.max(1)], 1)
    expected = (vectors - vectors[:9].mean(0)) / np.where(vectors[:9].std(0) > 0, vectors[:9].std(0), 1)
    store = FeatureStore(tmp_path / "both")
    np.testing.assert_allclose(store.pooled(np.arange(12)), expected, atol=2e-2)
    assert store.manifest["scale"]["sha256"] == compute_sha256(tmp_path / "both" / "scale.safetensors")


def test_the_batch_size_changes_features_by_rounding_errors_alone(drawn_images, tiny_network):
    photos, images = drawn_images
    network = open_network(tiny_network)
    tensors = [network.prepare(open_image(images / name)) for name in photos.files]
    together, separate = network(tensors), [network([tensor]) for tensor in tensors]
    for i, one in enumerate(separate):
        torch.testing.assert_close(one.regions[0], together.regions[i], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(one.pooled[0], together.pooled[i], atol=1e-5, rtol=1e-5)


def test_a_trained_detector_is_not_trained_again_unless_damaged_and_has_no_shards(drawn_images, tmp_path, capsys):
    settings = {"settings": WORDS, "batch": 5, "detector": DETECTOR}
    extract(*drawn_images, tmp_path / "whole", tmp_path / "work", **settings)
    with pytest.raises(UserError, match="word_detector is trained first; run the stage without --shard"):
        extract(*drawn_images, tmp_path / "out", tmp_path / "work", **settings, shard=(1, 2))

    def fill_disk(self, *_, **__):
        raise OSError("no space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureWriter, "write", fill_disk)
        with pytest.raises(OSError, match="no space"):
            extract(*drawn_images, tmp_path / "out", tmp_path / "work", **settings)
    shutil.copytree(tmp_path / "work", tmp_path / "damaged")
    fail_if_trained = lambda epoch, report: pytest.fail("the detector was trained again")  # noqa: E731
    extract(*drawn_images, tmp_path / "out", tmp_path / "work", **settings, on_epoch=fail_if_trained)
    assert read_files(tmp_path / "out") == read_files(tmp_path / "whole")
    (path,) = tmp_path.glob("damaged/**/detector")
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    for batch in path.parent.glob("*.npz"):
        batch.unlink()
    extract(*drawn_images, tmp_path / "again", tmp_path / "damaged", **settings)
    assert read_files(tmp_path / "again") == read_files(tmp_path / "whole")
    assert f"{path}: its bytes have changed" in capsys.readouterr().err


def test_a_detectors_seed_determines_its_weights(drawn_images, tmp_path):
    weights = []
    for name, seed in (("three", 3), ("again", 3), ("two", 2)):
        settings = {"settings": WORDS, "batch": 5, "detector": DETECTOR | {"seed": seed}}
        extract(*drawn_images, tmp_path / name, tmp_path / "work", **settings)
        weights.append((tmp_path / name / "detector.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


def test_an_image_with_infinite_or_nan_features_is_named(drawn_images, tiny_network, tmp_path):
    state = load_file(tiny_network.weights)
    first = next(key for key in state if key.endswith("weight"))
    state[first] = np.full_like(state[first], 1e30)
    broken = tmp_path / "broken.safetensors"
    save_file({key: torch.from_numpy(value) for key, value in state.items()}, broken)
    settings = replace(tiny_network, weights=str(broken))
    with pytest.raises(UserError, match=r"^0.png: a feature is infinite or NaN"):
        extract(*drawn_images, tmp_path / "out", tmp_path / "work", settings, batch=4)


def test_real_photos_have_the_features_of_a_real_network(real_data, tmp_path):
    weights = real_data / "weights" / "mobilenetv2_100_imagenet.safetensors"
    statistics = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    settings = NetworkSettings("mobilenetv2_100", 224, str(weights), {"pad_type": "same"}, **statistics, grid_size=5)
    rows = json.loads((real_data / "flickr8k" / "dataset_flickr8k.json").read_text())["images"][:20]
    photos, images = (
        CaptionedImages([row["filename"] for row in rows], len(rows) * 3 // 4),
        real_data / "flickr8k" / "images",
    )
    extract(photos, images, tmp_path / "out", tmp_path / "work", settings, batch=8, pca_dim=16)
    store = FeatureStore(tmp_path / "out")
    assert (store.pooled_size, store.regions_shape) == (1280, (25, 16))
    assert store.manifest["weights"] == {"source": weights.name, "sha256": compute_sha256(weights)}
    verify(store)
    network = TimmNetwork(settings)
    for row in (0, 19):
        with Image.open(images / photos.file(row)) as image:
            pixels = torch.from_numpy(np.asarray(image.convert("RGB")).copy()).permute(2, 0, 1) / 127.5 - 1
        with torch.inference_mode():
            expected = network.model.forward_features(pixels[None]).mean((2, 3))
        got = store.read(np.array([row]))[0]
        np.testing.assert_allclose(got, expected, atol=5e-3, rtol=5e-3)
    pooled = store.read(np.arange(20))[0]
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    assert (pooled @ pooled.T)[~np.eye(20, dtype=bool)].max() < 0.95  # different photos have different features
