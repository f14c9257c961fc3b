"""The page of `saywhich serve` and its HTTP API; nothing that is uploaded is kept."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Annotated, Any, TypeVar, cast

import torch
from anyio import to_thread
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field

from pipeline.data.corpus import tokenise
from pipeline.errors import UserError
from pipeline.features.moving import first_frame
from saywhich.attention import attention
from saywhich.model import Model, Others, Sight, batch_of, best
from saywhich.uploads import Limits, decoded

PAGES = Path(__file__).with_name("pages")
FILES = {"serve.css": "text/css", "serve.js": "text/javascript"}
POLICY = "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
Result = TypeVar("Result")
Photos = Annotated[list[Base64Bytes], Field(min_length=1, description="photos, each a file in base64")]


class Body(BaseModel):
    """A request."""

    model_config = ConfigDict(extra="forbid")


class ToCaption(Body):
    """Photos to be captioned, by some models or all; `among`: each to be told from the others."""

    photos: Photos
    models: list[str] | None = None
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
    limit, one_at_a_time = limits or Limits(), Lock()
    app = FastAPI(title="saywhich", docs_url=None, redoc_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", *hosts])

    @app.middleware("http")
    async def guarded(request: Request, following: Callable[..., Any]) -> Response:
        length = request.headers.get("content-length", "0" if request.method == "GET" else "")
        if not length.isdecimal():
            return JSONResponse({"detail": "give the length of the request"}, 411)
        if int(length) > limit.megabytes * 1_000_000:
            return JSONResponse({"detail": f"a request has at most {limit.megabytes} megabytes"}, 413)
        response: Response = await following(request)
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    async def timed(work: Callable[[], Result]) -> Result:
        given_up = Event()

        def alone() -> Result | None:
            with one_at_a_time:
                return None if given_up.is_set() else work()

        try:
            async with asyncio.timeout(limit.seconds):
                return cast(Result, await to_thread.run_sync(alone, abandon_on_cancel=True))
        except TimeoutError:
            given_up.set()
            raise HTTPException(504, f"longer than {limit.seconds:g} seconds; send fewer photos") from None
        except UserError as error:
            raise HTTPException(422, str(error)) from None

    def chosen(name: str | None) -> Model:
        if name is not None and name not in models:
            raise UserError(f"no model {name}; there are {', '.join(models)}")
        return models[name or next(iter(models))]

    def seen(model: Model, photos: Sequence[bytes]) -> Sight:
        if len(photos) > limit.photos:
            raise UserError(f"{len(photos)} photos; at most {limit.photos} at once")
        images = []
        for number, content in enumerate(photos):
            try:
                images.append(decoded(content, limit))
            except UserError as error:
                raise UserError(f"photo {number + 1}: {error}") from None
        return model.see(images)

    @app.post("/caption")
    async def caption(asked: ToCaption) -> Captioned:
        """Captions of photos, what the listener finds by them, and where the speaker looked."""

        def work() -> Captioned:
            names = asked.models or list(models)
            by_model = [_said(name, chosen(name), seen(chosen(name), asked.photos), asked) for name in names]
            return Captioned(photos=[list(each) for each in zip(*by_model, strict=True)])

        return await timed(work)

    @app.post("/find")
    async def find(asked: ToFind) -> Hits:
        """Photos by words, the best first."""

        def work() -> Hits:
            model = chosen(asked.model)
            found = best(model.hear([asked.text])[0], seen(model, asked.photos).vectors, None)
            known = model.vocabulary
            unknown = [] if known.reads_text else [word for word in tokenise(asked.text) if word not in known.ids]
            return Hits(found=[Hit(photo=each.index, score=each.score) for each in found], unknown=unknown)

        return await timed(work)

    @app.get("/samples/{number}", response_class=Response)
    def sample(number: int) -> Response:
        """A photo to try the page with, without its metadata."""
        if not 0 <= number < len(samples):
            raise HTTPException(404, "no such photo")
        content = io.BytesIO()
        image = first_frame(samples[number])
        image.thumbnail((1280, 1280))
        image.info.clear()
        image.save(content, "PNG")
        return Response(content.getvalue(), media_type="image/png")

    @app.get("/", response_class=Response)
    def page() -> Response:
        """The page."""
        pages = Environment(loader=PackageLoader("saywhich", "pages"), autoescape=True, undefined=StrictUndefined)
        shown = pages.get_template("serve.html").render(models=list(models), samples=len(samples), limits=limit)
        return Response(shown, media_type="text/html")

    @app.get("/{name}", response_class=Response)
    def file(name: str) -> Response:
        """The page's own files."""
        if name not in FILES:
            raise HTTPException(404, "no such page")
        return Response((PAGES / name).read_bytes(), media_type=FILES[name])

    return app


def _said(name: str, model: Model, sight: Sight, asked: ToCaption) -> list[Said]:
    """What one model says of each photo."""
    among = Others(sight.vectors, sight.contents) if asked.among else None
    how: dict[str, Any] = {"samples": asked.samples} if asked.among else {"beam": asked.beam}
    texts = [caption.text for caption in model.say(sight, among=among, **how)]
    words = [text.split() for text in texts]
    tokens = torch.zeros(len(texts), model.speaker.max_words, dtype=torch.int64)
    shares = None
    if not model.vocabulary.reads_text:
        for row, said in zip(tokens, words, strict=True):
            row[: len(said)] = torch.tensor(model.vocabulary.encode(said))
        shares = attention(model.speaker.cpu(), batch_of(sight, tokens))
        if shares is not None and model.eyes.frames is not None and sight.boxes is None:  # a photo is one moment
            shares = shares.unflatten(2, (model.eyes.frames, -1)).sum(2)
    scores = model.hear(texts) @ sight.vectors.T
    result = []
    for i, (text, said) in enumerate(zip(texts, words, strict=True)):
        order = scores[i].argsort(descending=True, stable=True).tolist()
        rank = int((scores[i] >= scores[i, i]).sum())
        rows = None if shares is None else [[round(x, 4) for x in row] for row in shares[i, : len(said)].tolist()]
        boxes = None if sight.boxes is None else sight.boxes[i].tolist()
        result.append(
            Said(model=name, caption=text, words=said, rank=rank, retrieved=order, attention=rows, boxes=boxes)
        )
    return result
