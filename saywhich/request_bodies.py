"""Requests and responses of the HTTP API of `saywhich serve`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi import HTTPException, Request
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, ValidationError

from pipeline.evaluation.rerank_scores import SIMILARITY
from saywhich.pragmatic_decoding import PragmaticDecoding
from saywhich.uploads import BODY, MAX_MESSAGE_CHARACTERS

MAX_VALUES = (
    4000  # limit of commas, colons and brackets in a request: small values take 100 times their bytes in memory
)
Photos = Annotated[
    list[Base64Bytes], Field(min_length=1, max_length=1000, fail_fast=True, description="photos, each a file in base64")
]


class RequestBody(BaseModel):
    """The base class of request bodies."""

    model_config = ConfigDict(extra="forbid")


B = TypeVar("B", bound=RequestBody)


class CaptionRequest(RequestBody):
    """A request for captions by all models or by some.

    With `among`, each photo is distinguished from the others. By the score "similarity" the listener selects the sample
    that is most similar to the photo.
    """

    photos: Photos
    models: list[str] | None = Field(None, min_length=1, max_length=1000, description="names, each once")
    among: bool = False
    score: Literal["margin", "similarity"] = "margin"
    samples: int = Field(
        20, ge=1, le=100, description="sampled candidates, with among or the score similarity, without pragmatic"
    )
    beam: int = Field(5, ge=1, le=20, description="size of the beam, where no candidates are sampled")
    temperature: float | None = Field(
        None, ge=1e-6, le=100, description="divides the samples' logits; default of a trained model: .3"
    )
    pragmatic: float | None = Field(
        None, ge=0, le=100, description="with among: weight of pragmatic decoding; begin with 1"
    )

    @property
    def candidates(self) -> int:
        """Return the number of captions that are generated at once for one photo."""
        if self.pragmatic is not None:
            return self.beam * PragmaticDecoding(self.pragmatic).width
        return self.samples if self.uses_sampling else self.beam

    @property
    def uses_sampling(self) -> bool:
        """Return whether captions are sampled for the listener to choose from."""
        return (self.among or self.score == SIMILARITY) and self.pragmatic is None


class ModelCaption(BaseModel):
    """A model's caption of a photo, and the photos in the order of its listener's scores, best first.

    `attention` has a row per word and a number per region. Regions are `boxes` (left, top, right, bottom as shares of
    the photo) or, without boxes, a square grid, row by row. `unlike` is True if the photo is unlike the model's
    training images, so that caption and rank are unreliable.
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
    """The photos, best first; the query's words outside the vocabulary; and the photos unlike the training images."""

    found: list[PhotoHit]
    unknown: list[str]
    unlike: list[int]


def parse_body(request: Request, kind: type[B]) -> B:
    """Parse a request's body; raises HTTPException 422 with one line where it is invalid."""
    content = request.scope.pop(BODY)
    if sum(content.count(sign) for sign in b",:[{") > MAX_VALUES:
        raise make_unprocessable(f"expected at most {MAX_VALUES:,} values in a request; send fewer photos at once")
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise make_unprocessable(f"{'.'.join(map(str, first['loc']))[:50] or 'request'}: {first['msg']}") from None


def make_unprocessable(detail: str) -> HTTPException:
    """Return HTTPException 422 with at most MAX_MESSAGE_CHARACTERS characters."""
    return HTTPException(
        422, detail if len(detail) <= MAX_MESSAGE_CHARACTERS else f"{detail[: MAX_MESSAGE_CHARACTERS - 1]}…"
    )


def describe_body(kind: type[RequestBody]) -> dict[str, Any]:
    """Return the OpenAPI description of a request body that `parse_body` parses."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}}
