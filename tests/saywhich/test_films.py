"""Models of films: captions, export, search pages and attention; errors for models of still images."""

import base64
import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from saywhich_world import make_repository, write_film

import saywhich
from pipeline.errors import UserError
from saywhich.attention import compute_caption_attention
from saywhich.cli import main
from saywhich.exporting import export_model
from saywhich.model import make_batch
from saywhich.page_captions import caption_photos
from saywhich.request_bodies import CaptionRequest


@pytest.fixture(scope="module")
def trained_model(tmp_path_factory):
    """Return the folder of a model on the vectors of three frames side by side, and on 2×2 cells of each frame."""
    data = make_repository(tmp_path_factory.mktemp("films"), frames=3, vector="times")
    return data / "models/psst_multinomial"


@pytest.fixture
def films(photos):
    """Write the film a.gif, the same film backwards (b.gif) and as Matroska (a.mkv) beside the three photos."""
    write_film(photos / "a.gif", 5)
    write_film(photos / "b.gif", 5, backwards=True)
    av = pytest.importorskip("av")
    with av.open("a.mkv", "w") as out, Image.open("a.gif") as image:
        stream = out.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 40, 50, "yuv420p"
        for number in range(4):
            image.seek(number)
            out.mux(stream.encode(av.VideoFrame.from_image(image.convert("RGB"))))
        out.mux(stream.encode(None))
    return photos


def test_films_and_photos_are_captioned_and_embeddings_depend_on_the_order_of_frames(trained_model, films, capsys):
    assert main(["caption", ".", "--model", str(trained_model)]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in lines] == ["a.gif", "a.jpg", "a.mkv", "b.gif", "b.jpg", "c.jpg"]
    assert all(caption for _, caption in lines)
    model = saywhich.load(trained_model)
    forward, backward = model.extract_features(["a.gif", "b.gif"]).vectors
    assert not torch.allclose(forward, backward, atol=1e-3)
    assert model.extract_features(["a.jpg"]).contents == model.extract_features([Image.open("a.jpg")]).contents


def test_an_exported_model_captions_films(trained_model, films, tmp_path):
    copy = export_model(trained_model, tmp_path / "out")
    assert json.loads((copy.files.feature_extractor / "manifest.json").read_text())["frames"] == 3
    torch.testing.assert_close(
        copy.extract_features(["a.gif"]).vectors, saywhich.load(trained_model).extract_features(["a.gif"]).vectors
    )


def test_retrieved_films_are_animated_unless_reduced_motion_is_preferred(trained_model, films, capsys):
    assert main(["find", "a dog", ".", "--model", str(trained_model), "--html", "found.html"]) == 0
    page = Path("found.html").read_text()
    moving = '<picture><source srcset="data:image/jpeg;base64,'
    assert page.count(moving) == page.count('media="(prefers-reduced-motion: reduce)"><img src="data:image/webp') == 3
    assert page.count('<img src="data:image/jpeg') == 3


def test_attention_to_a_photo_is_summed_over_time(trained_model, films):
    model = saywhich.load(trained_model)
    features = model.extract_features(["a.jpg", "b.jpg"])
    captions = caption_photos("films", model, features, CaptionRequest(photos=[base64.b64encode(b"-").decode()]))
    tokens = torch.tensor([model.vocabulary.encode(each.words) + [0] * (6 - len(each.words)) for each in captions])
    shares = compute_caption_attention(model.speaker, make_batch(features, tokens))
    assert shares.shape[2] == 12
    for i, each in enumerate(captions):
        expected = shares[i, : len(each.words)].reshape(-1, 3, 4).sum(1)
        torch.testing.assert_close(torch.tensor(each.attention), expected, atol=1e-4, rtol=0)


def test_a_second_copy_of_a_photo_does_not_count_in_its_rank(trained_model, films):
    model, request = saywhich.load(trained_model), CaptionRequest(photos=[base64.b64encode(b"-").decode()])
    once = caption_photos("films", model, model.extract_features(["a.jpg", "b.jpg"]), request)
    twice = caption_photos("films", model, model.extract_features(["a.jpg", "b.jpg", "a.jpg"]), request)
    assert (twice[0].rank, twice[2].rank) == (once[0].rank, once[0].rank)


def test_a_model_of_still_images_refuses_films_and_takes_a_gifs_first_frame(model, films):
    with pytest.raises(UserError, match=r"a.mkv: expected an image, found a film; give an image, or train with"):
        model.extract_features(["a.mkv"])
    with Image.open("a.gif") as image:
        assert model.extract_features(["a.gif"]).contents == model.extract_features([image.convert("RGB")]).contents


def test_a_film_that_is_missing_or_broken_is_reported_in_one_line(trained_model, films):
    model = saywhich.load(trained_model)
    Path("broken.gif").write_bytes(Path("a.gif").read_bytes()[:200])
    for name, message in (
        ("no.gif", "no.gif: no such photo or film; correct its path"),
        ("broken.gif", "broken.gif: the file cannot be decoded"),
    ):
        with pytest.raises(UserError, match=message) as error:
            model.extract_features([name])
        assert "\n" not in error.value.args[0]
