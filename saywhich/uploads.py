"""Photos uploaded over HTTP: limits of a request's size, time and memory, and decoding."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import UserError, summarise_error
from pipeline.features.images import decode_within
from pipeline.runtime.memory import return_freed

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
BODY = "saywhich.body"  # the key of the content in a request's scope
OVERHEAD = 4_000_000  # bytes counted for a request in addition to its content
PIECE = 65_536  # bytes of a response that are sent at once
MAX_MESSAGE_CHARACTERS = 200  # characters of an error message in a response


@dataclass(frozen=True)
class UploadLimits:
    """The limits of a request."""

    megabytes: int = 40  # size of a whole request
    megapixels: int = 50  # size of a photo
    photos: int = 60
    seconds: float = 60  # seconds for each phase: receiving, waiting, working, sending the response
    megapixels_together: int = 300  # size of all photos of a request together
    captions: int = 20_000  # photos × models × candidates of a photo
    generated: int = 40  # captions that a pretrained model generates in one batch, each with memory of its own
    held_megabytes: int = 200  # size of all requests in memory together
    idle: float = 10  # seconds without data after which a request is dropped


class RefusedError(Exception):
    """The error for a request that the application does not get; its arguments are an HTTP status and a reason."""


class Uploads:
    """Middleware that reads POST requests within limits of length and time, and all of them within a limit of memory.

    A request is admitted if it takes at most half of the free memory, so that small requests fit beside large ones. The
    application reads the content from the scope, under `BODY`; `receive` reports that the client disconnected.
    """

    def __init__(self, app: ASGIApp, limits: UploadLimits, headers: dict[str, str]):
        self.app, self.limits = app, limits
        self.headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self.free = 1_000_000 * limits.held_megabytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; a refused request is not read further."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        reserved_bytes = 0
        try:
            if scope["method"] == "POST":
                length = self._parse_content_length(scope)
                reserved_bytes = self._reserve_memory(length)
                scope[BODY] = await self._read(receive, length)
            await self.app(scope, receive, self._make_sender(send))
        except RefusedError as error:
            status, detail = error.args
            await JSONResponse({"detail": detail}, status, {"Connection": "close"})(scope, receive, send)
        except TimeoutError:
            return  # the client reads no response: the server closes the connection
        finally:
            scope.pop(BODY, None)
            self.free += reserved_bytes
            if reserved_bytes:
                return_freed()

    def _parse_content_length(self, scope: Scope) -> int:
        length = dict(scope["headers"]).get(b"content-length", b"").decode("latin-1")
        if not (length.isascii() and length.isdecimal()):
            raise RefusedError(411, "give the length of the request in Content-Length")
        if len(length) > 15 or int(length) > self.limits.megabytes * 1_000_000:
            raise RefusedError(413, f"a request has at most {self.limits.megabytes} megabytes; send fewer photos")
        return int(length)

    def _reserve_memory(self, length: int) -> int:
        """Reserve the memory of a request; raises RefusedError 503 where too little is free."""
        reserved_bytes = length + OVERHEAD
        if reserved_bytes > self.free / 2:
            raise RefusedError(503, "too many requests at once; try again in a moment")
        self.free -= reserved_bytes
        return reserved_bytes

    async def _read(self, receive: Receive, length: int) -> bytearray:
        """Read the request's content into one buffer; raises RefusedError where it is slow, too short or too long."""
        content, end = bytearray(length), 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                more = True
                while more:
                    async with asyncio.timeout(self.limits.idle):
                        message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "the request ended before its Content-Length; send the whole request")
                    part = message.get("body", b"")
                    if end + len(part) > length:
                        raise RefusedError(413, "the request is longer than its Content-Length; correct the header")
                    content[end : (end := end + len(part))] = part
                    more = message.get("more_body", False)
        except TimeoutError:
            raise RefusedError(408, "the request came too slowly; send fewer photos") from None
        if end < length:
            raise RefusedError(400, "the request is shorter than its Content-Length; correct the header")
        return content

    def _make_sender(self, send: Send) -> Send:
        """Return a `send` that adds `self.headers` and sends in pieces: an unread response must not stay in memory."""

        async def send_in_pieces(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self.headers]
            body = message.get("body", b"")
            last = max(len(body) - 1, 0) // PIECE * PIECE
            async with asyncio.timeout(self.limits.seconds):
                for start in range(0, last, PIECE):
                    part = body[start : start + PIECE]
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({**message, "body": body[last:]} if last else message)

        return send_in_pieces


@dataclass(frozen=True)
class Upload:
    """An uploaded photo, decoded on demand; `check` raises where the work on the photo is no longer needed."""

    number: int
    content: bytes
    limits: UploadLimits
    check: Callable[[], object] = object

    @contextmanager
    def decode(self, bytes_per_pixel: int) -> Iterator[Image.Image]:
        """Decode the photo for a block; raises UserError with its number where decoding fails, and as `check` does."""
        self.check()
        with ExitStack() as stack:
            with _name_photo(f"photo {self.number}"), _raise_user_errors():
                file = io.BytesIO(self.content)
                image = stack.enter_context(decode_within(file, bytes_per_pixel, FORMATS, self.limits.megapixels))
            yield image


def check_photos(photos: Sequence[bytes], limits: UploadLimits) -> None:
    """Raise UserError for too many photos or pixels in all, and for other formats; read only the files' headers."""
    if len(photos) > limits.photos:
        raise UserError(f"{len(photos)} photos; send at most {limits.photos} at once")
    pixels = 0
    for number, content in enumerate(photos, 1):
        with (
            _name_photo(f"photo {number}"),
            _raise_user_errors(),
            Image.open(io.BytesIO(content), formats=FORMATS) as image,
        ):
            pixels += image.width * image.height
    if pixels > limits.megapixels_together * 1_000_000:
        raise UserError(f"the photos have more than {limits.megapixels_together} megapixels together; send fewer")


@contextmanager
def _name_photo(photo: str) -> Iterator[None]:
    """Begin the text of each UserError of the block with `photo`."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{photo}: {error}") from None


@contextmanager
def _raise_user_errors() -> Iterator[None]:
    """Raise every error of the block as a UserError."""
    try:
        yield
    except UserError:
        raise
    except UnidentifiedImageError:  # its text is the address of an object in memory
        raise UserError(
            f"is not a photo that can be decoded (expected {', '.join(FORMATS)}); send another file"
        ) from None
    except Exception as error:  # decoders can raise any exception for damaged files
        raise UserError(f"is not a photo that can be decoded ({summarise_error(error)}); send another file") from None
