"""The HTTP API of `saywhich serve`, mostly over HTTP, and its parts: attention, uploads and the time limit."""

import asyncio
import base64
import http.client
import io
import json
import struct
import threading
import urllib.error
import urllib.request
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

import saywhich
from pipeline.errors import UserError
from saywhich.attention import compute_caption_attention
from saywhich.model import Model, make_batch
from saywhich.server import encode_sample_copies, make_app
from saywhich.uploads import Upload, UploadLimits


def send_request(address, body=None, **headers):
    """Send `body` by POST as JSON, or a GET request without it; return the answer's status and content."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture
def encoded_photos(photos):
    """Return the photos a, b and c in base64."""
    return [base64.b64encode((photos / f"{name}.jpg").read_bytes()).decode() for name in "abc"]


def test_captions_are_those_of_the_models(server, encoded_photos, model, repository, photos):
    status, content = send_request(f"{server}/caption", {"photos": encoded_photos})
    assert status == 200
    names = ["a.jpg", "b.jpg", "c.jpg"]
    other = saywhich.load(repository / "models/other")
    for i, captions in enumerate(json.loads(content)["photos"]):
        assert [each["model"] for each in captions] == ["psst_multinomial", "other"]
        assert captions[0]["caption"] == model.caption(names)[i].text
        assert captions[1]["caption"] == other.caption(names)[i].text
        scores = model.score([captions[0]["caption"]], names)[0]
        assert captions[0]["retrieved"] == np.argsort(-scores, kind="stable").tolist()
        assert captions[0]["rank"] == 1 + captions[0]["retrieved"].index(i)
        shares = np.array(captions[0]["attention"])
        assert shares.shape == (len(captions[0]["words"]), 4)
        np.testing.assert_allclose(shares.sum(1), 1, atol=1e-3)


def test_attention_is_that_of_the_speaker(model, photos):
    """The shares of the first word are the softmax of scores that the speaker's weights give."""
    features = model.extract_features(["a.jpg"])
    tokens = torch.tensor([[1, 2, 0, 0, 0, 0]])
    shares = compute_caption_attention(model.speaker, make_batch(features, tokens))
    assert shares.shape == (1, 6, 4)
    regions = model.speaker.encode_image(make_batch(features))
    keys = model.speaker.key(regions)
    scores = torch.tanh(keys + model.speaker.query(torch.zeros(1, 8)).unsqueeze(1)) @ model.speaker.weight.weight[0]
    torch.testing.assert_close(shares[:, 0], scores.softmax(-1).detach())


def test_captions_with_among_are_those_of_the_python_call(server, encoded_photos, repository, photos):
    status, content = send_request(
        f"{server}/caption", {"photos": encoded_photos, "among": True, "models": ["other"], "samples": 5}
    )
    assert status == 200
    names = ["a.jpg", "b.jpg", "c.jpg"]
    expected = saywhich.load(repository / "models/other").caption(names, samples=5, among=names)
    assert [[each["caption"] for each in captions] for captions in json.loads(content)["photos"]] == [
        [each.text] for each in expected
    ]


def test_captions_selected_by_similarity_are_those_of_the_python_call(server, encoded_photos, model, photos):
    body = {"photos": encoded_photos, "score": "similarity", "models": ["psst_multinomial"], "samples": 7}
    status, content = send_request(f"{server}/caption", body)
    expected = model.caption(["a.jpg", "b.jpg", "c.jpg"], samples=7, score="similarity")
    assert status == 200
    assert [captions[0]["caption"] for captions in json.loads(content)["photos"]] == [each.text for each in expected]
    _, content = send_request(f"{server}/caption", body | {"temperature": 5.0})
    expected = model.caption(["a.jpg", "b.jpg", "c.jpg"], samples=7, score="similarity", temperature=5.0)
    assert [captions[0]["caption"] for captions in json.loads(content)["photos"]] == [each.text for each in expected]


def test_photos_are_retrieved_by_text(server, encoded_photos, model, photos):
    status, content = send_request(
        f"{server}/find", {"text": "a red zebra", "photos": encoded_photos, "model": "psst_multinomial"}
    )
    found = json.loads(content)
    assert (status, found["unknown"]) == (200, ["zebra"])
    expected = model.find("a red zebra", ["a.jpg", "b.jpg", "c.jpg"])
    assert [each["photo"] for each in found["found"]] == [each.index for each in expected]


def test_the_api_describes_itself(server):
    status, content = send_request(f"{server}/openapi.json")
    paths = json.loads(content)["paths"]
    assert status == 200
    assert "post" in paths["/caption"]
    assert "post" in paths["/find"]


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (
            {"photos": [base64.b64encode(b"no photo").decode()]},
            422,
            "photo 1: is not a photo that can be decoded (expected JPEG, PNG, WEBP, GIF, BMP, TIFF); send another file",
        ),
        ({"photos": ["aGk="] * 13}, 422, "13 photos; send at most 12 at once"),
        (
            {"photos": ["aGk="], "among": True, "pragmatic": 1, "score": "similarity"},
            422,
            "pragmatic: does not go with the score similarity; leave one out",
        ),
        ({"photos": ["aGk="], "models": ["gpt"]}, 422, "no model gpt; give one of psst_multinomial, other"),
    ],
)
def test_a_refusal_states_the_reason(server, body, status, detail):
    found, content = send_request(f"{server}/caption", body)
    assert found == status
    assert json.loads(content)["detail"].startswith(detail)


@pytest.mark.parametrize(("length", "status"), [("2000000", 413), (None, 411)])
def test_a_request_that_is_too_large_or_of_unknown_length_is_refused_before_it_is_read(server, length, status):
    connection = http.client.HTTPConnection(server.removeprefix("http://"))
    connection.putrequest("POST", "/caption")
    connection.putheader("Content-Type", "application/json")
    connection.putheader(*(("Content-Length", length) if length else ("Transfer-Encoding", "chunked")))
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()


def test_another_host_name_and_unknown_addresses_are_refused(server):
    assert send_request(f"{server}/", Host="evil.example")[0] == 400
    status, _ = send_request(f"{server}/../conftest.py")
    assert status == 404
    assert send_request(f"{server}/samples/99")[0] == 404


def test_a_photo_of_too_many_pixels_is_not_decoded():
    """The file has few bytes, and its header states a huge size."""

    def make_chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = make_chunk(b"IHDR", struct.pack(">IIBBBBB", 10_000, 9_000, 8, 2, 0, 0, 0))
    huge = Upload(1, b"\x89PNG\r\n\x1a\n" + head + make_chunk(b"IDAT", b""), UploadLimits())
    with pytest.raises(UserError, match=r"photo 1: the photo has 90\.0 megapixels, .* limit is 50"), huge.decode(0):
        pass


def test_metadata_of_a_photo_are_not_kept(tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    content = io.BytesIO()
    Image.new("RGB", (900, 600), "red").save(content, "JPEG", exif=exif, comment=b"taken at home")
    assert content.getvalue().count(b"taken at home") == 2
    with Upload(1, content.getvalue(), UploadLimits()).decode(0) as image:
        assert (image.size, image.info, dict(image.getexif())) == ((900, 600), {}, {})
    (tmp_path / "a.jpg").write_bytes(content.getvalue())
    (copy,) = encode_sample_copies([tmp_path / "a.jpg"])
    assert b"taken at home" not in copy


def test_a_request_beyond_the_time_limit_is_answered_before_its_work_ends(model, photos, encoded_photos, monkeypatch):
    release, done = threading.Event(), threading.Event()

    def wait_for_release(self, images):
        release.wait(60)
        done.set()
        raise UserError("late")

    monkeypatch.setattr(Model, "extract_features", wait_for_release)
    messages = []

    async def call_app(app):
        body = json.dumps({"photos": encoded_photos[:1]}).encode()
        length = str(len(body)).encode()
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", length)]
        scope = {"type": "http", "method": "POST", "path": "/caption", "headers": headers, "query_string": b""}

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            messages.append(message)
            assert not done.is_set()

        await app({**scope, "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}, receive, send)
        release.set()

    asyncio.run(call_app(make_app({"model": model}, limits=UploadLimits(seconds=0.05))))
    assert messages[0]["status"] == 504
