"""A real server of `saywhich serve`, requests of hostile clients, and the server's peak memory."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]
MAX_MEMORY = 1500  # MB above the server with its models loaded


@dataclass(frozen=True)
class ServerProcess:
    """A server's process and its port; `base`: its memory in MB before the first request."""

    pid: int
    port: int
    base: float

    def post(self, path: str, body: bytes, seconds: float = 600) -> tuple[int, bytes]:
        """Send a request; return the status and the content of the answer, or 0 if the server closed the connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except ConnectionError:
            return 0, b""
        finally:
            connection.close()

    def memory(self, field: str = "VmRSS") -> float:
        """Return the memory in MB above `base`; the field `VmHWM` gives the peak."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024 / 1e6 - self.base


@contextmanager
def run_server(*models: Path, options: Sequence[str] = (), files: int | None = None) -> Iterator[ServerProcess]:
    """Run the server on a free port of the loopback within the block; `options` are further command-line options.

    `files` is the number of files that the server may open.
    """
    arguments = [*options, *(argument for model in models for argument in ("--model", str(model)))]
    command = [sys.executable, "-m", "saywhich", "serve", "--port", "0", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=(*models, ROOT)[0])
    if files is not None:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, files))
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"http://127\.0\.0\.1:(\d+):", line)
        assert found is not None, line
        while socket.socket().connect_ex(("127.0.0.1", int(found[1]))):
            time.sleep(0.05)
        server = ServerProcess(process.pid, int(found[1]), 0)
        yield ServerProcess(process.pid, int(found[1]), server.memory())
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(300)
        finally:
            process.kill()


def make_caption_body(photos: list[bytes], **options: Any) -> bytes:
    """Return the body of a request for captions."""
    texts = [base64.b64encode(photo).decode() for photo in photos]
    return json.dumps({"photos": texts, **options}).encode()


def make_flat_png(width: int, height: int, bits: int = 1, kind: int = 0) -> bytes:
    """Return a PNG of one colour, a thousandth of its decoded size; `kind` 0 is grey, 2 RGB, 6 RGBA."""
    row = bytes(1 + (width * bits * {0: 1, 2: 3, 6: 4}[kind] + 7) // 8)
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()

    def make_chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + make_chunk(b"IHDR", head) + make_chunk(b"IDAT", packed) + make_chunk(b"IEND", b"")


def encode_image(size: tuple[int, int], form: str, mode: str = "RGB", **options: Any) -> bytes:
    """Return the file of a picture with blurred patches of random colours."""
    colours = np.random.default_rng(0).integers(0, 256, (9, 9, 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(colours).resize(size).convert(mode).save(content, form, **options)
    return content.getvalue()


def make_flat_tiff(width: int, height: int) -> bytes:
    """Return a TIFF of one colour in one strip."""
    content = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(content, "TIFF", compression="tiff_lzw", strip_size=2**30)
    return content.getvalue()


def make_flat_gif(width: int, height: int) -> bytes:
    """Return a GIF of one colour."""
    content = io.BytesIO()
    Image.new("P", (width, height)).save(content, "GIF")
    return content.getvalue()


def make_normal_body() -> bytes:
    """Return the body of a valid request, as the page sends it."""
    return make_caption_body([encode_image((60, 40), "PNG")])


def make_bombs(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield requests of `count` small files with large decoded images, and other requests that take much memory."""
    side = 7000
    yield "one-bit PNGs of 49 megapixels, too many", make_caption_body([make_flat_png(side, side)] * 24)
    yield "one-bit PNGs of 49 megapixels", make_caption_body([make_flat_png(side, side)] * count)
    yield "RGBA PNGs of 49 megapixels", make_caption_body([make_flat_png(side, side, 8, 6)] * count)
    yield (
        "progressive JPEGs",
        make_caption_body([encode_image((side, side), "JPEG", progressive=True, quality=20)] * count),
    )
    yield (
        "CMYK JPEGs",
        make_caption_body([encode_image((side, side), "JPEG", "CMYK", progressive=True, quality=20)] * count),
    )
    yield "WebP files", make_caption_body([encode_image((side, 6000), "WEBP", quality=1, method=0)] * count)
    yield "TIFFs of one strip", make_caption_body([make_flat_tiff(side, side)] * count)
    yield "GIFs", make_caption_body([make_flat_gif(side, side)] * count)
    yield "small values", b'{"photos":[' + b"0," * 19_000_000 + b"0]}"
    yield "unknown keys", b"{" + b",".join(b'"%d":0' % n for n in range(3_000_000)) + b"}"
    yield "nested lists", b'{"photos":' + b"[" * 39_000_000
    yield "one long text", b'{"photos":["' + b"A" * 39_000_000 + b'"]}'
    yield (
        "a model named 20,000 times",
        make_caption_body([encode_image((60, 40), "PNG")], models=["psst_multinomial"] * 20_000),
    )
    yield (
        "60 photos, 100 candidates each",
        make_caption_body([encode_image((60, 40), "PNG")] * 60, among=True, samples=100),
    )


@contextmanager
def hold_uploads(server: ServerProcess, count: int, megabytes: int = 38) -> Iterator[list[socket.socket]]:
    """Open uploads and send all but their last bytes, as far as the server reads them."""
    head = f"POST /caption HTTP/1.1\r\nHost: localhost\r\nContent-Length: {megabytes * 1_000_000}\r\n\r\n".encode()
    with ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=300))
            with suppress(OSError):  # the server may answer and close the connection earlier
                client.sendall(head + b"x" * (megabytes * 1_000_000 - 1000))
            clients.append(client)
        yield clients


@contextmanager
def send_half_requests(server: ServerProcess, count: int) -> Iterator[None]:
    """Open connections that send half of a request's headers each; the server may close them."""
    with ExitStack() as stack:
        for _ in range(count):
            with suppress(OSError):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
                client.sendall(b"POST /caption HTTP/1.1\r\nHost: localhost\r\nX-a: ")
        yield


def read_status(client: socket.socket) -> int:
    """Return the status of the answer to a client; 0 if the server closed the connection."""
    try:
        return int(client.recv(4000).split()[1])
    except (OSError, IndexError):
        return 0


def send_large_requests(server: ServerProcess, count: int = 6, uploads: int = 50) -> Iterator[tuple[str, str]]:
    """Send large requests; yield each with the server's fault, or ""."""
    for name, body in make_bombs(count):
        status, content = server.post("/caption", body)
        yield name, _check_server(server, name, status, content)
    with hold_uploads(server, uploads) as clients:
        yield "held uploads", _check_server(server, "held uploads", 503, b"")
        for number, client in enumerate(clients):
            status = read_status(client)
            yield "held upload", "" if status in (0, 408, 503) else f"held upload {number}: {status}"
    with send_half_requests(server, 600):
        yield "600 connections with half of their headers", _check_server(server, "half of the headers", 0, b"")


PEAK_PROGRAM = (
    "import sys; from saywhich.cli import main; status = main(sys.argv[1:]); "
    "print(status, next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
)


def caption_large_photos(model: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Caption two photos of 176 megapixels at once; yield their description and the fault."""
    side = 13_260

    def measure_peak(*photos: bytes) -> float:
        folder.mkdir(exist_ok=True)
        for number in range(2):
            (folder / f"{number}.png").write_bytes(photos[number % len(photos)])
        command = [sys.executable, "-c", PEAK_PROGRAM, "caption", str(folder), "--model", str(model)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        status, peak = done.stdout.splitlines()[-1].split()
        assert status in "01", done.stderr
        return int(peak) * 1024 / 1e6

    baseline = measure_peak(encode_image((60, 40), "PNG"))
    for name, photo in (
        ("one-bit", make_flat_png(side, side)),
        ("RGB", make_flat_png(side, side, 8, 2)),
        ("RGBA", make_flat_png(side, side, 8, 6)),
    ):
        above = measure_peak(photo) - baseline
        yield name, "" if above <= MAX_MEMORY else f"two {name} PNGs: {above:.0f} MB above the model"


def _check_server(server: ServerProcess, name: str, status: int, content: bytes) -> str:
    peak, valid_status = server.memory("VmHWM"), server.post("/caption", make_normal_body())[0]
    if peak > MAX_MEMORY:
        return f"{name}: {peak:.0f} MB above the model"
    if status not in (0, 200, 408, 413, 422, 503, 504):
        return f"{name}: {status}"
    if status != 200 and len(content) > 250:
        return f"{name}: an answer of {len(content)} bytes"
    return "" if valid_status == 200 else f"{name}: the status of a valid request is {valid_status}"


NUMBERS = (
    *("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" * 5000, "1e-400", "0.5", "true", "null", '"5"', "[]"),
    *("-1", "0", "1" * 30, "{}", '"NaN"', "01", "+1", ".5", "1.", "0x10", "1_0", "--1", "1e", '"\\ud800"'),
)
TEXTS = (
    *('"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\\x"', '"\x00"', '"a', "'a'", '"\xff"', "[" * 500, "1e400"),
    *('{"a":' * 200, '[["a"]]', '"' + "a" * 100_000 + '"', "NaN", "null", '""'),
)
PHOTO = base64.b64encode(b"no photo").decode()


def make_hostile_bodies() -> Iterator[tuple[str, bytes]]:
    """Yield the address and the content of requests that no page sends."""
    for number in NUMBERS:
        for key in ("beam", "samples"):
            yield "/caption", f'{{"photos": ["{PHOTO}"], "{key}": {number}}}'.encode("latin-1")
    for text in TEXTS:
        yield "/find", f'{{"photos": ["{PHOTO}"], "text": {text}}}'.encode("latin-1")
        yield "/find", f'{{"photos": ["{PHOTO}"], "text": "a", "model": {text}}}'.encode("latin-1")
        yield "/caption", f'{{"photos": [{text}]}}'.encode("latin-1")
        yield "/caption", f'{{"photos": ["{PHOTO}"], "models": [{text}]}}'.encode("latin-1")
        yield "/caption", f'{{"photos": ["{PHOTO}"], {text}: 1}}'.encode("latin-1")
        yield "/caption", text.encode("latin-1")
    for content in (
        b"",
        b"\x00" * 50,
        b"\xef\xbb\xbf{}",
        b"{}",
        b"[]",
        b"\xff\xfe{\x00}\x00",
        b"{" * 100_000,
        b'{"photos": []}',
    ):
        yield "/caption", content


def check_hostile_answer(address: str, body: bytes, status: int, content: bytes) -> str:
    """Return the fault of the answer to a hostile request; "" for a short line with a status of 4xx."""
    answer = f"{address} {body[:60]!r}: {status}"
    if not 400 <= status < 500:
        return answer
    return "" if len(content) <= 220 and content.count(b"\n") == 0 else f"{answer}, {len(content)} bytes"
