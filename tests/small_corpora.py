"""A small data set on disk, and a web server that sends faulty answers on demand."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

WORDS = ["a red ball", "the red ball", "one ball", "a big red ball on grass", "a ball"]


@pytest.fixture
def karpathy(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Return a function that writes `count` images and their captions, and returns the captions' file and the folder.

    The file has Karpathy's format; `change` may alter its content.
    """

    def write(count: int = 8, change: Callable[[dict], None] = lambda data: None) -> tuple[Path, Path]:
        folder = tmp_path / "images"
        splits = ["train", "restval", "val", "test"]
        images = [
            {
                "filename": f"{i}.jpg",
                "filepath": "part" if i % 2 else "",
                "imgid": i,
                "split": splits[i % 4],
                "sentences": [
                    {"raw": f"{WORDS[k]}.", "tokens": WORDS[k].split(), "imgid": i, "sentid": 5 * i + k}
                    for k in range(1 + i % 5)
                ],
            }
            for i in range(count)
        ]
        for i, image in enumerate(images):
            path = folder / image["filepath"] / image["filename"]
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(i).integers(0, 256, (24, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
        data = {"dataset": "balls", "images": images}
        change(data)
        annotations = tmp_path / "dataset_balls.json"
        annotations.write_text(json.dumps(data, indent=1))
        return annotations, folder

    return write


class FaultyServer:
    """Answers of a web server on this machine: files, and for each path a queue of faults, one for each request."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.address = f"http://127.0.0.1:{server.server_port}"
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[Callable[[BaseHTTPRequestHandler, bytes], None]]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.lstrip("/")
        self.requests.append((path, dict(request.headers)))
        body = self.files.get(path, b"")
        if self.faults.get(path):
            self.faults[path].pop(0)(request, body)
        elif path in self.files:
            self.send_file(request, body)
        else:
            request.send_error(404)

    def ranges(self) -> list[str | None]:
        """Return the header `Range` of each request, in order; None where it is missing."""
        return [headers.get("Range") for _, headers in self.requests]

    @staticmethod
    def send_file(request: BaseHTTPRequestHandler, body: bytes, cut: int | None = None) -> None:
        """Send the file with its ETag, from the byte that `Range: bytes=N-` names; `cut` limits the number of bytes.

        The whole file is sent where `If-Range` has another ETag.
        """
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        requested_range = request.headers.get("Range")
        start = 0
        if requested_range and request.headers.get("If-Range", etag) == etag:
            start = int(requested_range.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                request.send_error(416)
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            request.send_response(200)
        request.send_header("ETag", etag)
        request.send_header("Content-Length", str(len(body) - start))
        request.end_headers()
        request.wfile.write(body[start:] if cut is None else body[start : start + cut])

    @classmethod
    def make_cut(cls, cut: int) -> Callable[[BaseHTTPRequestHandler, bytes], None]:
        """Return a fault that sends `cut` bytes and then ends the connection."""
        return lambda request, body: cls.send_file(request, body, cut)

    @staticmethod
    def make_answer(
        status: int, headers: dict[str, str] | None = None, content: bytes | None = None
    ) -> Callable[[BaseHTTPRequestHandler, bytes], None]:
        """Return a fault that sends a fixed answer; where `content` is None, the answer contains the file."""

        def send_answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
            request.send_response(status)
            for name, value in (headers or {}).items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(body if content is None else content)

        return send_answer


@pytest.fixture
def web() -> Iterator[FaultyServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.answer(self)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web = FaultyServer(server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield web
    server.shutdown()
    server.server_close()
    thread.join()
