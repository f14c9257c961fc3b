"""Hostile requests to the page: memory and time stay bounded, and other requests are answered meanwhile."""

import asyncio
import base64
import json
import threading
from itertools import islice

import hostile_requests as hostile
import pytest

from saywhich.model import Model
from saywhich.request_queue import RequestQueue
from saywhich.server import make_app
from saywhich.uploads import UploadLimits


@pytest.fixture(scope="module")
def served(repository):
    with hostile.serving(repository / "models/psst_multinomial") as running:
        yield running


def test_small_files_of_many_pixels_take_bounded_memory(served):
    for _, body in islice(hostile.bombs(2), 3):
        status, content = served.post("/caption", body)
        assert status in (200, 422), content
    assert served.memory("VmHWM") < hostile.BOUND
    assert served.memory() < 300, "freed memory goes back to the system"


def test_a_model_that_is_named_many_times_is_refused_at_once(served):
    photo = hostile.encoded((60, 40), "PNG")
    for times, line in ((20_000, "a request has at most 4,000 values"), (2, "a model is named more than once")):
        status, content = served.post("/caption", hostile.captioning([photo], models=["psst_multinomial"] * times))
        assert (status, json.loads(content)["detail"]) == (422, line)


def test_held_uploads_are_bounded_and_an_honest_request_is_answered_meanwhile(served):
    with hostile.held_uploads(served, 12) as clients:
        assert served.post("/caption", hostile.honest())[0] == 200
        assert served.memory("VmHWM") < hostile.BOUND
        first, *others = (hostile.status_of(client) for client in clients[3:])
    assert first in (0, 503), "those beyond the bound are refused at once"
    assert set(others) <= {0, 408, 503}, "on a busy machine a client may have taken the place of one that was too slow"
    assert 503 in (first, *others)


def test_connections_that_never_complete_their_headers_keep_nobody_waiting(repository, capfd):
    with hostile.serving(repository / "models/psst_multinomial", files=400) as served:
        with hostile.half_requests(served, 600):
            assert served.post("/caption", hostile.honest(), 60)[0] == 200
        assert served.memory("VmHWM") < hostile.BOUND
        assert capfd.readouterr().err == "", "no file too many was opened"


def test_hostile_json_is_a_short_line(server):
    import http.client

    connection = http.client.HTTPConnection(server.removeprefix("http://"), timeout=600)
    short = []
    for address, body in hostile.hostile_bodies():
        connection.request("POST", address, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        short.append(hostile.hostile_outcome(address, body, answer.status, answer.read()))
    connection.close()
    assert len(short) >= 72
    assert [each for each in short if each] == []


def asked(app, body, receive_more, length=None):
    """Return the messages that the application sends, called without a server."""
    captions = []
    headers = [(b"host", b"localhost"), (b"content-length", str(length or len(body)).encode())]
    scope = {"type": "http", "method": "POST", "path": "/caption", "headers": headers, "query_string": b""}
    first = [{"type": "http.request", "body": body, "more_body": length is not None}]

    async def receive():
        return first.pop() if first else await receive_more()

    async def send(message):
        captions.append(message)

    asyncio.run(app({**scope, "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}, receive, send))
    return captions


async def nothing():
    await asyncio.Event().wait()


def test_a_stalled_request_is_ended(model):
    answer = asked(make_app({"model": model}, limits=UploadLimits(idle=0.05)), b"{", nothing, length=1000)
    assert answer[0]["status"] == 408


@pytest.mark.parametrize("left", [True, False])
def test_work_ends_soon_after_its_client_disconnects(model, monkeypatch, left):
    """A client that leaves, or a limit of seconds that is over, ends the work at the next photo."""
    began, answered, captioned, queues = threading.Event(), threading.Event(), [], []
    own = Model.caption_features

    def watched(self, *given, **options):
        captioned.append(began.set())
        assert answered.wait(600)
        return own(self, *given, **options)

    def queue(seconds):
        queues.append(RequestQueue(seconds))
        return queues[-1]

    async def gone():
        while not began.is_set():
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    monkeypatch.setattr(Model, "caption_features", watched)
    monkeypatch.setattr("saywhich.server.RequestQueue", queue)
    photo = base64.b64encode(hostile.encoded((60, 40), "PNG")).decode()
    body = json.dumps({"photos": [photo] * 30, "among": True, "samples": 1}).encode()
    app = make_app({"model": model})
    queues[0]._seconds = 600 if left else 0.5
    asked(app, body, gone if left else nothing)
    answered.set()
    queues[0]._seconds = 600
    assert asked(app, hostile.honest(), nothing)[0]["status"] == 200
    assert len(captioned) <= 2, "a photo of the request that was given up, and the honest one"


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        (UploadLimits(captions=9), "2 photos, 1 models and 5 candidates are 10 captions; at most 9 at once"),
        (UploadLimits(megapixels_together=0), "the photos have more than 0 megapixels together; send fewer"),
    ],
)
def test_photos_times_models_times_candidates_and_pixels_together_are_bounded(model, limits, line):
    body = hostile.captioning([hostile.encoded((60, 40), "PNG")] * 2)
    texts = asked(make_app({"model": model}, limits=limits), body, nothing)
    assert (texts[0]["status"], json.loads(texts[1]["body"])["detail"]) == (422, line)
