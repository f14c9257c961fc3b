"""The page of `saywhich serve` and its HTTP API; uploads are not stored."""

from __future__ import annotations

import asyncio
import io
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
from pipeline.features.animated_thumbnail import first_frame
from pipeline.runtime.memory import return_freed
from saywhich.attention import caption_attention
from saywhich.captioning_model import CaptioningModel, best_matches
from saywhich.encoded_photos import EncodedPhotos
from saywhich.model import Model, PhotoFeatures, batch_of
from saywhich.photos import load_readable
from saywhich.pragmatic_decoding import PragmaticDecoding, PragmaticGallery
from saywhich.uploads import BODY, LONGEST, Upload, UploadLimits, Uploads, check_photos

PAGES = Path(__file__).with_name("pages")
FILES = {"serve.css": "text/css", "serve.js": "text/javascript"}
POLICY = "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
VALUES = 4000  # limit of commas, colons and brackets in a request: small values can take a hundred times their bytes
TOGETHER = 8  # photos captioned between two checks that the client still waits
SAMPLE_SIDE, SMALL = 1280, 400_000  # pixels of a sample photo's longer side, and pixels up to which it is sent as PNG
Result = TypeVar("Result")
ServedModel = CaptioningModel[Any, Any]
Check = Callable[[], object]  # raises where the client no longer waits
Photos = Annotated[
    list[Base64Bytes], Field(min_length=1, max_length=1000, fail_fast=True, description="photos, each a file in base64")
]


class AbandonedError(Exception):
    """An error that ends work whose client no longer waits."""


class RequestBody(BaseModel):
    """The base class of request bodies."""

    model_config = ConfigDict(extra="forbid")


B = TypeVar("B", bound=RequestBody)


class CaptionRequest(RequestBody):
    """A request for captions by some models or all; with `among`, each photo is distinguished from the others."""

    photos: Photos
    models: list[str] | None = Field(None, min_length=1, max_length=1000, description="names, each once")
    among: bool = False
    samples: int = Field(20, ge=1, le=100, description="candidates, with among")
    beam: int = Field(5, ge=1, le=20, description="without among, or with pragmatic")
    pragmatic: float | None = Field(
        None, ge=0, le=100, description="with among: weight of telling photos apart word by word; begin with 1"
    )


class ModelCaption(BaseModel):
    """A model's caption of a photo, and the photos in the order of its listener's scores, best first.

    `attention` has a row per word and a number per region. Regions are `boxes` (left, top, right, bottom as shares of
    the photo) or, without boxes, a square grid, row by row. `unlike`: the photo is unlike the model's training images,
    so that caption and rank mean little.
    """

    model: str
    caption: str
    words: list[str]
    rank: int
    retrieved: list[int]
    attention: list[list[float]] | None
    boxes: list[list[float]] | None
    unlike: bool


class CaptionedPhotos(BaseModel):
    """Captions by photo, and for each photo by model."""

    photos: list[list[ModelCaption]]


class FindRequest(RequestBody):
    """A query text, and photos to be searched."""

    text: str = Field(min_length=1, max_length=1000)
    photos: Photos
    model: str | None = None


class PhotoHit(BaseModel):
    """A photo's index among the uploaded ones, and the listener's score in −1 … 1."""

    photo: int
    score: float


class FindResponse(BaseModel):
    """Photos, best first, words of the query that are not in the vocabulary, and photos unlike the training images."""

    found: list[PhotoHit]
    unknown: list[str]
    unlike: list[int]


def make_app(
    models: Mapping[str, ServedModel],
    samples: Sequence[Path] = (),
    limits: UploadLimits | None = None,
    hosts: Sequence[str] = (),
) -> FastAPI:
    """Build the application from `models` by name, sample photos, and `hosts` allowed in addition to this machine's."""
    limit, worker = limits or UploadLimits(), ThreadPoolExecutor(1)  # one request at a time; the others wait
    copies = {str(number): copy for number, copy in enumerate(sample_copies(samples))}
    app = FastAPI(title="saywhich", docs_url=None, redoc_url=None)
    app.add_middleware(Uploads, limits=limit, headers=HEADERS)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", *hosts])

    async def respond(request: Request, work: Callable[[Check], BaseModel]) -> Response:
        """Run `work` and return its result as a response; cancel it at the time limit or when the client disconnects.

        Raises HTTPException 503 or 504 at the time limit, and 422 for a UserError.
        """
        loop, began, ended = asyncio.get_running_loop(), asyncio.Event(), Event()

        def check() -> None:
            if ended.is_set():
                raise AbandonedError

        def run_work() -> bytes:
            loop.call_soon_threadsafe(began.set)
            try:
                check()
                return work(check).model_dump_json().encode()
            finally:
                return_freed()

        result = asyncio.wrap_future(worker.submit(run_work))
        turn = asyncio.create_task(began.wait())
        disconnected = asyncio.create_task(_wait_for_disconnect(request))
        waited: set[asyncio.Future[Any]] = {result, disconnected}
        try:
            await asyncio.wait({turn, disconnected}, timeout=limit.seconds, return_when=asyncio.FIRST_COMPLETED)
            if not began.is_set():
                raise HTTPException(503, "the server is busy with other photos; try again in a moment")
            await asyncio.wait(waited, timeout=limit.seconds, return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise HTTPException(504, f"longer than {limit.seconds:g} seconds; send fewer photos")
            return Response(result.result(), media_type="application/json")
        except UserError as error:
            raise _unprocessable(str(error)) from None
        finally:
            ended.set()
            for each in (result, turn, disconnected):
                each.cancel()

    def find_model(name: str | None) -> ServedModel:
        if name is not None and name not in models:
            raise _unprocessable(f"no model {name[:50]}; there are {', '.join(models)}")
        return models[name or next(iter(models))]

    def extract_features(model: ServedModel, photos: Sequence[bytes], check: Check) -> EncodedPhotos:
        return model.extract_features(
            [Upload(number, content, limit, check) for number, content in enumerate(photos, 1)]
        )

    @app.post("/caption", response_model=CaptionedPhotos, openapi_extra=_describe_body(CaptionRequest))
    async def caption(request: Request) -> Response:
        """Return captions of photos, the listener's ranking for each, and the speaker's attention."""
        query = _body(request, CaptionRequest)
        by_name = {name: find_model(name) for name in query.models or models}
        if len(by_name) < len(query.models or models):
            raise _unprocessable("a model is named more than once")
        if query.pragmatic is not None and not query.among:
            raise _unprocessable("pragmatic: goes with among")
        each = query.samples if query.among and query.pragmatic is None else query.beam
        each *= 1 if query.pragmatic is None else PragmaticDecoding(query.pragmatic).width
        if (captions := len(query.photos) * len(by_name) * each) > limit.captions:
            raise _unprocessable(
                f"{len(query.photos)} photos, {len(by_name)} models and {each} candidates are {captions:,} captions; "
                f"at most {limit.captions:,} at once"
            )

        def work(check: Check) -> CaptionedPhotos:
            check_photos(query.photos, limit)
            by_model = [
                _caption_photos(name, model, extract_features(model, query.photos, check), query, check)
                for name, model in by_name.items()
            ]
            return CaptionedPhotos(photos=[list(each) for each in zip(*by_model, strict=True)])

        return await respond(request, work)

    @app.post("/find", response_model=FindResponse, openapi_extra=_describe_body(FindRequest))
    async def find(request: Request) -> Response:
        """Return the photos ranked by their scores with a text, best first."""
        query = _body(request, FindRequest)
        model = find_model(query.model)

        def work(check: Check) -> FindResponse:
            check_photos(query.photos, limit)
            features = extract_features(model, query.photos, check)
            found = best_matches(model.encode_text([query.text])[0], features.vectors, None)
            known = model.vocabulary if isinstance(model, Model) and not model.vocabulary.reads_text else None
            unknown = [] if known is None else [word for word in tokenise(query.text) if word not in known.ids]
            hits = [PhotoHit(photo=each.index, score=each.score) for each in found]
            return FindResponse(found=hits, unknown=unknown, unlike=[n for n, odd in enumerate(features.unlike) if odd])

        return await respond(request, work)

    @app.get("/samples/{number}", response_class=Response)
    async def sample(number: str) -> Response:
        """Return a sample photo without its metadata."""
        if number not in copies:
            raise HTTPException(404, "no such photo")
        kind = "png" if copies[number].startswith(b"\x89PNG") else "jpeg"
        return Response(copies[number], media_type=f"image/{kind}")

    @app.get("/", response_class=Response)
    async def page() -> Response:
        """Return the page."""
        pages = Environment(loader=PackageLoader("saywhich", "pages"), autoescape=True, undefined=StrictUndefined)
        shown = pages.get_template("serve.html").render(models=list(models), samples=len(copies), limits=limit)
        return Response(shown, media_type="text/html")

    @app.get("/{name}", response_class=Response)
    async def file(name: str) -> Response:
        """Return a static file of the page."""
        if name not in FILES:
            raise HTTPException(404, "no such page")
        return Response((PAGES / name).read_bytes(), media_type=FILES[name])

    return app


def sample_copies(samples: Sequence[Path]) -> list[bytes]:
    """Encode reduced copies of photos without metadata; report each unreadable photo in a line on stderr."""

    def encode_copy(path: Path) -> bytes:
        image, content = first_frame(path), io.BytesIO()
        image.thumbnail((SAMPLE_SIDE, SAMPLE_SIDE))
        image.info.clear()
        image.save(content, "PNG" if image.width * image.height < SMALL else "JPEG", quality=92)
        return content.getvalue()

    return [copy for _, copies in load_readable(samples, encode_copy, TOGETHER) for copy in copies]


def _body(request: Request, kind: type[B]) -> B:
    """Parse a request's body; raises HTTPException 422 with one line where it is invalid."""
    content = request.scope.pop(BODY)
    if sum(content.count(sign) for sign in b",:[{") > VALUES:
        raise _unprocessable(f"a request has at most {VALUES:,} values")
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _unprocessable(f"{'.'.join(map(str, first['loc']))[:50] or 'request'}: {first['msg']}") from None


def _unprocessable(why: str) -> HTTPException:
    return HTTPException(422, why if len(why) <= LONGEST else f"{why[: LONGEST - 1]}…")


def _describe_body(kind: type[RequestBody]) -> dict[str, Any]:
    """Return the OpenAPI description of a request body that `_body` parses."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}}


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the client has disconnected."""
    if (await request.receive())["type"] != "http.disconnect":
        await asyncio.Event().wait()


def _caption_photos(
    name: str, model: ServedModel, features: EncodedPhotos, query: CaptionRequest, check: Check = object
) -> list[ModelCaption]:
    """Return one model's caption of each photo."""
    result: list[ModelCaption] = []
    for part in features.split(1 if query.among else TOGETHER):
        check()
        result += _caption_part(name, model, part, features, query, first=len(result))
    return result


def _caption_part(
    name: str, model: ServedModel, part: EncodedPhotos, features: EncodedPhotos, query: CaptionRequest, first: int
) -> list[ModelCaption]:
    """Return one model's captions of `part` of the photos in `features`, which begins at index `first`."""
    options: dict[str, Any] = {"samples": query.samples} if query.among else {"beam": query.beam}
    if query.pragmatic is not None:
        gallery = PragmaticGallery(PragmaticDecoding(query.pragmatic), features, features.select)
        options = {"beam": query.beam, "pragmatic": gallery}
    captions = model.caption_features(part, among=features if query.among else None, **options)
    texts = [caption.text for caption in captions]
    words = [text.split() for text in texts]
    shares = _attention(model, part, words) if isinstance(model, Model) and isinstance(part, PhotoFeatures) else None
    scores = model.encode_text(texts) @ features.vectors.T
    result = []
    for i, (text, caption_words) in enumerate(zip(texts, words, strict=True)):
        order = scores[i].argsort(descending=True, stable=True).tolist()
        rank = int((scores[i] >= scores[i, first + i]).sum())
        rows = (
            None if shares is None else [[round(x, 4) for x in row] for row in shares[i, : len(caption_words)].tolist()]
        )
        boxes = None if part.boxes is None else part.boxes[i].tolist()
        result.append(
            ModelCaption(
                model=name,
                caption=text,
                words=caption_words,
                rank=rank,
                retrieved=order,
                attention=rows,
                boxes=boxes,
                unlike=part.unlike[i],
            )
        )
    return result


def _attention(model: Model, part: PhotoFeatures, words: Sequence[Sequence[str]]) -> torch.Tensor | None:
    """Return the speaker's attention (M, T, R) for each word of its captions, or None where it has none."""
    if model.vocabulary.reads_text:
        return None
    tokens = torch.zeros(len(words), model.speaker.max_words, dtype=torch.int64)
    for row, caption_words in zip(tokens, words, strict=True):
        row[: len(caption_words)] = torch.tensor(model.vocabulary.encode(caption_words))
    shares = caption_attention(model.speaker.cpu(), batch_of(part, tokens))
    if shares is not None and model.feature_extractor.frames is not None and part.boxes is None:
        return shares.unflatten(2, (model.feature_extractor.frames, -1)).sum(2)  # a photo is a film of one frame
    return shares
