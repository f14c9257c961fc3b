"""Photos that are unlike the training images: marked by the commands, the API and an exported model."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from captioned_images import CaptionedImages
from fastapi.testclient import TestClient
from PIL import Image
from saywhich_world import WORDS, make_repository

import saywhich
from saywhich.cli import main
from saywhich.exporting import export_model
from saywhich.server import make_app


@pytest.fixture(scope="module")
def trained_model(tmp_path_factory) -> Path:
    """Return the folder of an untrained model on features of painted images."""
    # the twelve images are repeated, so that enough are held out for the training images' texture
    images = CaptionedImages([f"{n % 12}.png" for n in range(260)], 60, WORDS)
    data = make_repository(tmp_path_factory.mktemp("many"), images)
    return data / "models/psst_multinomial"


@pytest.fixture
def noise(photos, trained_model) -> Path:
    """Replace the three photos by a training image and a photo unlike all training images; return the latter."""
    for photo in photos.iterdir():
        photo.unlink()
    Image.open(trained_model.parents[1] / "images/3.png").save(photos / "a.png")
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(pixels).save(photos / "noise.png")
    return photos / "noise.png"


NOTE = "note: 1 of 2 photos are unlike the training images of this model, such as noise.png: their captions and ranks"


def test_captions_and_hits_of_unlike_photos_are_reported_on_stderr_and_in_json(noise, trained_model, tmp_path, capsys):
    export_model(trained_model, tmp_path / "exported")
    for model in (trained_model, tmp_path / "exported"):
        option = ["--model", str(model)]
        assert main(["caption", ".", "--jsonl", "captions.jsonl", *option]) == 0
        assert capsys.readouterr().err.startswith(NOTE)
        content = [json.loads(line) for line in Path("captions.jsonl").read_text().splitlines()]
        assert [(each["file"], each.get("unlike_training_images")) for each in content] == [
            ("a.png", None),
            ("noise.png", True),
        ]
        for _ in range(2):  # the second search takes the photos' embeddings from the cache
            assert main(["find", "a dog", ".", *option]) == 0
            assert capsys.readouterr().err.startswith(NOTE)
    assert main(["caption", "a.png", "--model", str(trained_model)]) == 0
    assert capsys.readouterr().err == ""


def test_the_api_and_python_mark_unlike_photos(noise, trained_model):
    model = saywhich.load(trained_model)
    assert [caption.unlike for caption in model.caption(["a.png", "noise.png"], among=["a.png"])] == [False, True]
    photos = [base64.b64encode(Path(name).read_bytes()).decode() for name in ("a.png", "noise.png")]
    client = TestClient(make_app({"psst": model}), base_url="http://127.0.0.1")
    captions = client.post("/caption", json={"photos": photos}).json()["photos"]
    assert [each[0]["unlike"] for each in captions] == [False, True]
    assert client.post("/find", json={"photos": photos, "text": "a dog"}).json()["unlike"] == [1]
