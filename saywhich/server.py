"""The page of `saywhich serve` and its HTTP API; uploads are not stored."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.evaluation.rerank_scores import SIMILARITY
from pipeline.features.animated_thumbnail import open_first_frame
from saywhich.encoded_photos import EncodedPhotos
from saywhich.offline_page import PAGES
from saywhich.page_captions import BATCH, ServedModel, caption_photos, find_photos
from saywhich.photos import load_readable
from saywhich.pretrained.pretrained_model import PretrainedModel
from saywhich.request_bodies import (
    CaptionedPhotos,
    CaptionRequest,
    FindRequest,
    FindResponse,
    describe_body,
    make_unprocessable,
    parse_body,
)
from saywhich.request_queue import Check, RequestQueue
from saywhich.uploads import Upload, UploadLimits, Uploads, check_photos

FILES = {"serve.css": "text/css", "serve.js": "text/javascript"}
POLICY = "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
SAMPLE_SIDE, SMALL = 1280, 400_000  # maximum pixels of a sample's longer side, and pixels below which it is a PNG


def make_app(
    models: Mapping[str, ServedModel],
    samples: Sequence[Path] = (),
    limits: UploadLimits | None = None,
    hosts: Sequence[str] = (),
) -> FastAPI:
    """Build the application from `models` by name, sample photos, and `hosts` allowed in addition to localhost."""
    limit = limits or UploadLimits()
    queue = RequestQueue(limit.seconds)
    app = FastAPI(title="saywhich", docs_url=None, redoc_url=None)
    app.add_middleware(Uploads, limits=limit, headers=HEADERS)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", *hosts])

    def find_model(name: str | None) -> ServedModel:
        if name is not None and name not in models:
            raise make_unprocessable(f"no model {name[:50]}; give one of {', '.join(models)}")
        return models[name or next(iter(models))]

    def extract_features(model: ServedModel, photos: Sequence[bytes], check: Check) -> EncodedPhotos:
        return model.extract_features(
            [Upload(number, content, limit, check) for number, content in enumerate(photos, 1)]
        )

    @app.post("/caption", response_model=CaptionedPhotos, openapi_extra=describe_body(CaptionRequest))
    async def caption(request: Request) -> Response:
        """Return captions of photos, the listener's ranking for each, and the speaker's attention."""
        query = parse_body(request, CaptionRequest)
        models_by_name = {name: find_model(name) for name in query.models or models}
        if len(models_by_name) < len(query.models or models):
            raise make_unprocessable("a model is named more than once; name each model once")
        check_captions(query, models_by_name, limit)

        def choose_batch_size(model: ServedModel) -> int:
            """Return the largest number of photos whose captions the model generates in one batch."""
            pretrained = isinstance(model, PretrainedModel)
            return min(BATCH, limit.generated // query.candidates) if pretrained else BATCH

        def work(check: Check) -> CaptionedPhotos:
            check_photos(query.photos, limit)
            captions_by_model = [
                caption_photos(
                    name, model, extract_features(model, query.photos, check), query, check, choose_batch_size(model)
                )
                for name, model in models_by_name.items()
            ]
            return CaptionedPhotos(photos=[list(each) for each in zip(*captions_by_model, strict=True)])

        return await queue.respond(request, work)

    @app.post("/find", response_model=FindResponse, openapi_extra=describe_body(FindRequest))
    async def find(request: Request) -> Response:
        """Return the photos ranked by their scores with a text, best first."""
        query = parse_body(request, FindRequest)
        model = find_model(query.model)

        def work(check: Check) -> FindResponse:
            check_photos(query.photos, limit)
            return find_photos(model, extract_features(model, query.photos, check), query.text)

        return await queue.respond(request, work)

    add_page(app, list(models), encode_sample_copies(samples), limit)
    return app


def add_page(app: FastAPI, models: Sequence[str], copies: Sequence[bytes], limits: UploadLimits) -> None:
    """Add the page for the models of these names, its files, and copies of sample photos."""
    copy_by_number = {str(number): copy for number, copy in enumerate(copies)}

    @app.get("/samples/{number}", response_class=Response)
    async def sample(number: str) -> Response:
        """Return a sample photo without its metadata."""
        if (content := copy_by_number.get(number)) is None:
            raise HTTPException(404, "no such photo")
        kind = "png" if content.startswith(b"\x89PNG") else "jpeg"
        return Response(content, media_type=f"image/{kind}")

    @app.get("/", response_class=Response)
    async def page() -> Response:
        """Return the page."""
        pages = Environment(loader=PackageLoader("saywhich", "pages"), autoescape=True, undefined=StrictUndefined)
        html = pages.get_template("serve.html").render(models=models, samples=len(copies), limits=limits)
        return Response(html, media_type="text/html")

    @app.get("/{name}", response_class=Response)
    async def file(name: str) -> Response:
        """Return a static file of the page."""
        if name not in FILES:
            raise HTTPException(404, "no such page")
        return Response((PAGES / name).read_bytes(), media_type=FILES[name])


def check_captions(query: CaptionRequest, models: Mapping[str, ServedModel], limit: UploadLimits) -> None:
    """Raise HTTPException 422 for options that do not go together, and for more captions than one request may have."""
    if query.pragmatic is not None and not query.among:
        raise make_unprocessable("pragmatic: goes with among; set among to true")
    if query.pragmatic is not None and query.score == SIMILARITY:
        raise make_unprocessable("pragmatic: does not go with the score similarity; leave one out")
    candidates = query.candidates
    pretrained = [name for name, model in models.items() if isinstance(model, PretrainedModel)]
    if pretrained and candidates > limit.generated:
        raise make_unprocessable(
            f"{candidates} candidates of a photo; the pretrained model {pretrained[0]} generates at most "
            f"{limit.generated}; ask for fewer"
        )
    if (captions := len(query.photos) * len(models) * candidates) > limit.captions:
        raise make_unprocessable(
            f"{len(query.photos)} photos, {len(models)} models and {candidates} candidates are {captions:,} captions; "
            f"ask for at most {limit.captions:,} at once"
        )


def encode_sample_copies(samples: Sequence[Path]) -> list[bytes]:
    """Encode reduced copies of photos without metadata; report each unreadable photo in a line on stderr."""

    def encode_copy(path: Path) -> bytes:
        image, content = open_first_frame(path), io.BytesIO()
        image.thumbnail((SAMPLE_SIDE, SAMPLE_SIDE))
        image.info.clear()
        image.save(content, "PNG" if image.width * image.height < SMALL else "JPEG", quality=92)
        return content.getvalue()

    return [copy for _, copies in load_readable(samples, encode_copy, BATCH) for copy in copies]
