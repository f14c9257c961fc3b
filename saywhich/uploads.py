"""Photos that come over the network: how much of a request is read, how long, and what of it is decoded."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from PIL import Image
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import UserError, reason
from pipeline.features.images import decoded as decoded_file
from pipeline.runtime.memory import return_freed

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
BODY = "saywhich.body"  # where a request's scope has its content
OVERHEAD = 4_000_000  # bytes that a request counts beside its content
PIECE = 65_536  # bytes of an answer that are sent at once
LONGEST = 200  # characters of a line that is answered


@dataclass(frozen=True)
class Limits:
    """What requests may cost."""

    megabytes: int = 40  # of a whole request
    megapixels: int = 50  # of a photo
    photos: int = 60
    seconds: float = 60  # for a request to come, to wait, to be worked on and to be answered: for each of these
    megapixels_together: int = 300  # of all photos of a request
    captions: int = 20_000  # photos × models × samples, or × beam
    held_megabytes: int = 200  # of all requests that are held at once
    idle: float = 10  # seconds in which nothing of a request comes


class RefusedError(Exception):
    """A request that is not read to its end: an HTTP status, and why."""


class Uploads:
    """The middleware that reads requests: each within its length and its time, and all within a bound of memory.

    A request is admitted where it takes at most half of what is free, so that small requests find room beside large
    ones. The application finds the content in the scope, under `BODY`, and a disconnected client by `receive`.
    """

    def __init__(self, app: ASGIApp, limits: Limits, headers: dict[str, str]):
        self.app, self.limits = app, limits
        self.headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self.free = 1_000_000 * limits.held_megabytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; of a request that is refused nothing more is read."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        held = 0
        try:
            if scope["method"] == "POST":
                length = self._length(scope)
                held = self._admitted(length)
                scope[BODY] = await self._read(receive, length)
            await self.app(scope, receive, self._sender(send))
        except RefusedError as refused:
            status, why = refused.args
            await JSONResponse({"detail": why}, status, {"Connection": "close"})(scope, receive, send)
        except TimeoutError:
            return  # the client takes no answer: the server closes the connection
        finally:
            scope.pop(BODY, None)
            self.free += held
            if held:
                return_freed()

    def _length(self, scope: Scope) -> int:
        length = dict(scope["headers"]).get(b"content-length", b"").decode("latin-1")
        if not (length.isascii() and length.isdecimal()):
            raise RefusedError(411, "give the length of the request")
        if len(length) > 15 or int(length) > self.limits.megabytes * 1_000_000:
            raise RefusedError(413, f"a request has at most {self.limits.megabytes} megabytes")
        return int(length)

    def _admitted(self, length: int) -> int:
        """Take the request's bytes from those that are free."""
        held = length + OVERHEAD
        if held > self.free / 2:
            raise RefusedError(503, "too many photos are on their way at once; try again in a moment")
        self.free -= held
        return held

    async def _read(self, receive: Receive, length: int) -> bytearray:
        """The request's content, into memory that is taken once."""
        content, end = bytearray(length), 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                more = True
                while more:
                    async with asyncio.timeout(self.limits.idle):
                        message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "the request was not sent to its end")
                    part = message.get("body", b"")
                    if end + len(part) > length:
                        raise RefusedError(413, "the request is longer than it says")
                    content[end : (end := end + len(part))] = part
                    more = message.get("more_body", False)
        except TimeoutError:
            raise RefusedError(408, "the request came too slowly") from None
        if end < length:
            raise RefusedError(400, "the request is shorter than it says")
        return content

    def _sender(self, send: Send) -> Send:
        """Send answers with our headers, in pieces, so that one that nobody takes does not stay in memory."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self.headers]
            body = message.get("body", b"")
            last = max(len(body) - 1, 0) // PIECE * PIECE
            async with asyncio.timeout(self.limits.seconds):
                for start in range(0, last, PIECE):
                    part = body[start : start + PIECE]
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({**message, "body": body[last:]} if last else message)

        return sent


@dataclass(frozen=True)
class Upload:
    """An uploaded photo, which is decoded when it is needed; `check` ends work that is no longer wanted."""

    number: int
    content: bytes
    limits: Limits
    check: Callable[[], object] = object

    @contextmanager
    def opened(self, used: int) -> Iterator[Image.Image]:
        """Decode the photo for a block; UserError with its number where that is not possible."""
        self.check()
        with ExitStack() as stack:
            with _named(f"photo {self.number}"):
                image = stack.enter_context(_decoding(self.content, self.limits, used))
            yield image


def check_photos(photos: Sequence[bytes], limits: Limits) -> None:
    """Raise UserError for photos that are too many or too large together, by their headers, before one is decoded."""
    if len(photos) > limits.photos:
        raise UserError(f"{len(photos)} photos; at most {limits.photos} at once")
    pixels = 0
    for number, content in enumerate(photos, 1):
        with _named(f"photo {number}"), _telling(), Image.open(io.BytesIO(content), formats=FORMATS) as image:
            pixels += image.width * image.height
    if pixels > limits.megapixels_together * 1_000_000:
        raise UserError(f"the photos have more than {limits.megapixels_together} megapixels together; send fewer")


def decoded(content: bytes, limits: Limits) -> Image.Image:
    """Decode an uploaded photo as upright RGB pixels without metadata; UserError where it is none, or too large."""
    with _decoding(content, limits, 0) as image:
        return image


@contextmanager
def _decoding(content: bytes, limits: Limits, used: int) -> Iterator[Image.Image]:
    with ExitStack() as stack:
        with _telling():
            image = stack.enter_context(decoded_file(io.BytesIO(content), used, FORMATS, limits.megapixels))
        yield image


@contextmanager
def _named(photo: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise UserError(f"{photo}: {error}") from None


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # decoders of damaged files raise nearly anything
        raise UserError(f"not a photo that can be decoded ({reason(error)})") from None
