"""The page of `saywhich serve` and its HTTP API; nothing that is uploaded is kept."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Annotated, Any, TypeVar

import torch
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, ValidationError

from pipeline.data.corpus import tokenise
from pipeline.errors import UserError
from pipeline.features.moving import first_frame
from pipeline.runtime.memory import return_freed
from saywhich.attention import attention
from saywhich.model import Model, Others, Sight, batch_of, best, parts_of
from saywhich.photos import loaded
from saywhich.uploads import BODY, LONGEST, Limits, Upload, Uploads, check_photos

PAGES = Path(__file__).with_name("pages")
FILES = {"serve.css": "text/css", "serve.js": "text/javascript"}
POLICY = "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
VALUES = (
    4000  # commas, colons and brackets in a request: without a bound, small values take a hundred times their bytes
)
TOGETHER = 8  # photos that a speaker describes before it is asked whether the request still stands
SAMPLE_SIDE, SMALL = 1280, 400_000  # pixels of a sample photo's longer side, and pixels of one that is sent as PNG
Result = TypeVar("Result")
Check = Callable[[], object]  # ends the work of a request that nobody waits for
Photos = Annotated[
    list[Base64Bytes], Field(min_length=1, max_length=1000, fail_fast=True, description="photos, each a file in base64")
]


class AbandonedError(Exception):
    """Nobody waits for this work."""


class Body(BaseModel):
    """A request."""

    model_config = ConfigDict(extra="forbid")


B = TypeVar("B", bound=Body)


class ToCaption(Body):
    """Photos to be captioned, by some models or all; `among`: each to be told from the others."""

    photos: Photos
    models: list[str] | None = Field(None, min_length=1, max_length=1000, description="names, each once")
    among: bool = False
    samples: int = Field(20, ge=1, le=100, description="candidates, with among")
    beam: int = Field(5, ge=1, le=20, description="without among")


class Said(BaseModel):
    """A model's caption of a photo, and which of the photos its listener finds by it, the likeliest first.

    `attention` has a row for each word, a number for each region; regions are `boxes` (left, top, right, bottom as
    shares of the photo) or, without, a square grid, row by row.
    """

    model: str
    caption: str
    words: list[str]
    rank: int
    retrieved: list[int]
    attention: list[list[float]] | None
    boxes: list[list[float]] | None


class Captioned(BaseModel):
    """Captions by photo, and of a photo by model."""

    photos: list[list[Said]]


class ToFind(Body):
    """Words, and photos to be searched."""

    text: str = Field(min_length=1, max_length=1000)
    photos: Photos
    model: str | None = None


class Hit(BaseModel):
    """A photo's place among those that were sent, and the listener's score, −1 … 1."""

    photo: int
    score: float


class Hits(BaseModel):
    """Photos, the best first, and words that the model has never heard."""

    found: list[Hit]
    unknown: list[str]


def app_of(
    models: Mapping[str, Model], samples: Sequence[Path] = (), limits: Limits | None = None, hosts: Sequence[str] = ()
) -> FastAPI:
    """The application: `models` by name, photos `samples` to try it with, names of `hosts` beside this machine's."""
    limit, worker = limits or Limits(), ThreadPoolExecutor(1)  # one request is worked on, the others wait their turn
    copies = {str(number): copy for number, copy in enumerate(sample_copies(samples))}
    app = FastAPI(title="saywhich", docs_url=None, redoc_url=None)
    app.add_middleware(Uploads, limits=limit, headers=HEADERS)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", *hosts])

    async def answered(request: Request, work: Callable[[Check], BaseModel]) -> Response:
        """The result of `work` in its turn; the work ends where it takes too long, or the client is gone."""
        loop, began, ended = asyncio.get_running_loop(), asyncio.Event(), Event()

        def check() -> None:
            if ended.is_set():
                raise AbandonedError

        def alone() -> bytes:
            loop.call_soon_threadsafe(began.set)
            try:
                check()
                return work(check).model_dump_json().encode()
            finally:
                return_freed()

        result = asyncio.wrap_future(worker.submit(alone))
        turn = asyncio.create_task(began.wait())
        gone = asyncio.create_task(_disconnected(request))
        waited: set[asyncio.Future[Any]] = {result, gone}
        try:
            await asyncio.wait({turn, gone}, timeout=limit.seconds, return_when=asyncio.FIRST_COMPLETED)
            if not began.is_set():
                raise HTTPException(503, "other photos are looked at; try again in a moment")
            await asyncio.wait(waited, timeout=limit.seconds, return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise HTTPException(504, f"longer than {limit.seconds:g} seconds; send fewer photos")
            return Response(result.result(), media_type="application/json")
        except UserError as error:
            raise _refused(str(error)) from None
        finally:
            ended.set()
            for each in (result, turn, gone):
                each.cancel()

    def chosen(name: str | None) -> Model:
        if name is not None and name not in models:
            raise _refused(f"no model {name[:50]}; there are {', '.join(models)}")
        return models[name or next(iter(models))]

    def seen(model: Model, photos: Sequence[bytes], check: Check) -> Sight:
        return model.see([Upload(number, content, limit, check) for number, content in enumerate(photos, 1)])

    @app.post("/caption", response_model=Captioned, openapi_extra=_described(ToCaption))
    async def caption(request: Request) -> Response:
        """Captions of photos, what the listener finds by them, and where the speaker looked."""
        asked = _body(request, ToCaption)
        by_name = {name: chosen(name) for name in asked.models or models}
        if len(by_name) < len(asked.models or models):
            raise _refused("a model is named more than once")
        each = asked.samples if asked.among else asked.beam
        if (captions := len(asked.photos) * len(by_name) * each) > limit.captions:
            raise _refused(
                f"{len(asked.photos)} photos, {len(by_name)} models and {each} candidates are {captions:,} captions; "
                f"at most {limit.captions:,} at once"
            )

        def work(check: Check) -> Captioned:
            check_photos(asked.photos, limit)
            by_model = [
                _said(name, model, seen(model, asked.photos, check), asked, check) for name, model in by_name.items()
            ]
            return Captioned(photos=[list(each) for each in zip(*by_model, strict=True)])

        return await answered(request, work)

    @app.post("/find", response_model=Hits, openapi_extra=_described(ToFind))
    async def find(request: Request) -> Response:
        """Photos by words, the best first."""
        asked = _body(request, ToFind)
        model = chosen(asked.model)

        def work(check: Check) -> Hits:
            check_photos(asked.photos, limit)
            found = best(model.hear([asked.text])[0], seen(model, asked.photos, check).vectors, None)
            known = model.vocabulary
            unknown = [] if known.reads_text else [word for word in tokenise(asked.text) if word not in known.ids]
            return Hits(found=[Hit(photo=each.index, score=each.score) for each in found], unknown=unknown)

        return await answered(request, work)

    @app.get("/samples/{number}", response_class=Response)
    async def sample(number: str) -> Response:
        """A photo to try the page with, without its metadata."""
        if number not in copies:
            raise HTTPException(404, "no such photo")
        kind = "png" if copies[number].startswith(b"\x89PNG") else "jpeg"
        return Response(copies[number], media_type=f"image/{kind}")

    @app.get("/", response_class=Response)
    async def page() -> Response:
        """The page."""
        pages = Environment(loader=PackageLoader("saywhich", "pages"), autoescape=True, undefined=StrictUndefined)
        shown = pages.get_template("serve.html").render(models=list(models), samples=len(copies), limits=limit)
        return Response(shown, media_type="text/html")

    @app.get("/{name}", response_class=Response)
    async def file(name: str) -> Response:
        """The page's own files."""
        if name not in FILES:
            raise HTTPException(404, "no such page")
        return Response((PAGES / name).read_bytes(), media_type=FILES[name])

    return app


def sample_copies(samples: Sequence[Path]) -> list[bytes]:
    """Encode small copies of photos, without metadata; a photo that cannot be read is a line on stderr."""

    def copied(path: Path) -> bytes:
        image, content = first_frame(path), io.BytesIO()
        image.thumbnail((SAMPLE_SIDE, SAMPLE_SIDE))
        image.info.clear()
        image.save(content, "PNG" if image.width * image.height < SMALL else "JPEG", quality=92)
        return content.getvalue()

    copies = []
    for part in loaded(samples, copied, TOGETHER):
        for _, copy in part:
            if isinstance(copy, UserError):
                print(copy, file=sys.stderr)
            else:
                copies.append(copy)
    return copies


def _body(request: Request, kind: type[B]) -> B:
    """Read what a request asks for; a line of 422 for anything else."""
    content = request.scope.pop(BODY)
    if sum(content.count(sign) for sign in b",:[{") > VALUES:
        raise _refused(f"a request has at most {VALUES:,} values")
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _refused(f"{'.'.join(map(str, first['loc']))[:50] or 'request'}: {first['msg']}") from None


def _refused(why: str) -> HTTPException:
    return HTTPException(422, why if len(why) <= LONGEST else f"{why[: LONGEST - 1]}…")


def _described(kind: type[Body]) -> dict[str, Any]:
    """The description of a request's body, which is read by `_body`, in the form of OpenAPI."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}}


async def _disconnected(request: Request) -> None:
    """Return when the client is gone."""
    if (await request.receive())["type"] != "http.disconnect":
        await asyncio.Event().wait()


def _said(name: str, model: Model, sight: Sight, asked: ToCaption, check: Check = object) -> list[Said]:
    """What one model says of each photo."""
    result: list[Said] = []
    for part in parts_of(sight, 1 if asked.among else TOGETHER):
        check()
        result += _said_of(name, model, part, sight, asked, first=len(result))
    return result


def _said_of(name: str, model: Model, part: Sight, sight: Sight, asked: ToCaption, first: int) -> list[Said]:
    """What one model says of the photos `part` of `sight`, which begin with the one of the number `first`."""
    among = Others(sight.vectors, sight.contents) if asked.among else None
    how: dict[str, Any] = {"samples": asked.samples} if asked.among else {"beam": asked.beam}
    texts = [caption.text for caption in model.say(part, among=among, **how)]
    words = [text.split() for text in texts]
    tokens = torch.zeros(len(texts), model.speaker.max_words, dtype=torch.int64)
    shares = None
    if not model.vocabulary.reads_text:
        for row, said in zip(tokens, words, strict=True):
            row[: len(said)] = torch.tensor(model.vocabulary.encode(said))
        shares = attention(model.speaker.cpu(), batch_of(part, tokens))
        if shares is not None and model.eyes.frames is not None and part.boxes is None:  # a photo is one moment
            shares = shares.unflatten(2, (model.eyes.frames, -1)).sum(2)
    scores = model.hear(texts) @ sight.vectors.T
    result = []
    for i, (text, said) in enumerate(zip(texts, words, strict=True)):
        order = scores[i].argsort(descending=True, stable=True).tolist()
        rank = int((scores[i] >= scores[i, first + i]).sum())
        rows = None if shares is None else [[round(x, 4) for x in row] for row in shares[i, : len(said)].tolist()]
        boxes = None if part.boxes is None else part.boxes[i].tolist()
        result.append(
            Said(model=name, caption=text, words=said, rank=rank, retrieved=order, attention=rows, boxes=boxes)
        )
    return result
