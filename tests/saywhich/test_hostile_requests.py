"""Hostile requests to the page: memory and time stay bounded, and other requests are answered meanwhile."""

import asyncio
import base64
import http.client
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
def page_server(repository):
    with hostile.run_server(repository / "models/psst_multinomial") as running:
        yield running


@pytest.mark.slow
def test_small_files_of_many_pixels_take_bounded_memory(page_server):
    for _, body in islice(hostile.make_bombs(2), 3):
        status, content = page_server.post("/caption", body)
        assert status in (200, 422), content
    assert page_server.memory("VmHWM") < hostile.MAX_MEMORY
    assert page_server.memory() < 300, "expected freed memory to return to the system"


def test_a_model_that_is_named_many_times_is_refused_at_once(page_server):
    photo = hostile.encode_image((60, 40), "PNG")
    for times, line in (
        (20_000, "expected at most 4,000 values in a request; send fewer photos at once"),
        (2, "a model is named more than once; name each model once"),
    ):
        status, content = page_server.post(
            "/caption", hostile.make_caption_body([photo], models=["psst_multinomial"] * times)
        )
        assert (status, json.loads(content)["detail"]) == (422, line)


def test_held_uploads_are_bounded_and_a_normal_request_is_answered_meanwhile(page_server):
    with hostile.hold_uploads(page_server, 12) as clients:
        assert page_server.post("/caption", hostile.make_normal_body())[0] == 200
        assert page_server.memory("VmHWM") < hostile.MAX_MEMORY
        first, *later = (hostile.read_status(client) for client in clients[3:])
    assert first in (0, 503), "expected requests beyond the bound to be refused at once"
    assert set(later) <= {0, 408, 503}, "on a busy machine a client may take the place of a slower one"
    assert 503 in (first, *later)


@pytest.mark.slow
def test_connections_that_never_complete_their_headers_delay_no_request(repository, capfd):
    with hostile.run_server(repository / "models/psst_multinomial", files=400) as page_server:
        with hostile.send_half_requests(page_server, 600):
            assert page_server.post("/caption", hostile.make_normal_body(), 60)[0] == 200
        assert page_server.memory("VmHWM") < hostile.MAX_MEMORY
        assert capfd.readouterr().err == "", "expected no error about too many open files"


def test_hostile_json_is_answered_with_a_short_line(server):
    connection = http.client.HTTPConnection(server.removeprefix("http://"), timeout=600)
    faults = []
    for address, body in hostile.make_hostile_bodies():
        connection.request("POST", address, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        faults.append(hostile.check_hostile_answer(address, body, answer.status, answer.read()))
    connection.close()
    assert len(faults) >= 72
    assert [each for each in faults if each] == []


def call_app(app, body, receive_more, length=None):
    """Call the application without a server, and return the messages that it sends."""
    messages = []
    headers = [(b"host", b"localhost"), (b"content-length", str(length or len(body)).encode())]
    scope = {"type": "http", "method": "POST", "path": "/caption", "headers": headers, "query_string": b""}
    first = [{"type": "http.request", "body": body, "more_body": length is not None}]

    async def receive():
        return first.pop() if first else await receive_more()

    async def send(message):
        messages.append(message)

    asyncio.run(app({**scope, "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}, receive, send))
    return messages


async def wait_forever():
    await asyncio.Event().wait()


def test_a_stalled_request_is_ended(model):
    answer = call_app(make_app({"model": model}, limits=UploadLimits(idle=0.05)), b"{", wait_forever, length=1000)
    assert answer[0]["status"] == 408


@pytest.mark.parametrize("disconnects", [True, False])
def test_work_ends_soon_after_its_client_disconnects_or_its_time_is_over(model, monkeypatch, disconnects):
    """The work ends at the next photo after its client disconnects, or after its limit of seconds."""
    began, answered, captioned, queues = threading.Event(), threading.Event(), [], []
    original = Model.caption_features

    def caption_after_answer(self, *arguments, **options):
        captioned.append(began.set())
        assert answered.wait(600)
        return original(self, *arguments, **options)

    def make_queue(seconds):
        queues.append(RequestQueue(seconds))
        return queues[-1]

    async def wait_and_disconnect():
        while not began.is_set():
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    monkeypatch.setattr(Model, "caption_features", caption_after_answer)
    monkeypatch.setattr("saywhich.server.RequestQueue", make_queue)
    photo = base64.b64encode(hostile.encode_image((60, 40), "PNG")).decode()
    body = json.dumps({"photos": [photo] * 30, "among": True, "samples": 1}).encode()
    app = make_app({"model": model})
    queues[0]._seconds = 600 if disconnects else 0.5
    answer = call_app(app, body, wait_and_disconnect if disconnects else wait_forever)
    assert answer[0]["status"] == 504
    answered.set()
    queues[0]._seconds = 600
    assert call_app(app, hostile.make_normal_body(), wait_forever)[0]["status"] == 200
    assert len(captioned) <= 2, "expected one photo of the abandoned request, and one of the normal request"


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        (UploadLimits(captions=9), "2 photos, 1 models and 5 candidates are 10 captions; ask for at most 9 at once"),
        (UploadLimits(megapixels_together=0), "the photos have more than 0 megapixels together; send fewer"),
    ],
)
def test_photos_times_models_times_candidates_and_pixels_together_are_bounded(model, limits, line):
    body = hostile.make_caption_body([hostile.encode_image((60, 40), "PNG")] * 2)
    messages = call_app(make_app({"model": model}, limits=limits), body, wait_forever)
    assert (messages[0]["status"], json.loads(messages[1]["body"])["detail"]) == (422, line)
