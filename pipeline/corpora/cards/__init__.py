"""Data cards: what each corpus is, its licence and where its files come from; one TOML file per corpus."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.errors import UserError

CARDS = Path(__file__).parent

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Below = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$")]  # a path below the corpus' folder


class Entry(BaseModel):
    """A table without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Source(Entry):
    """Something that a corpus is made of. Of sources with the same `choice` one is enough, for its `profile`."""

    optional: bool = False
    choice: Text = ""
    profile: Text = ""


class Archive(Source):
    """A zip or tar and the one folder of it that is used; without a url the user has to download it."""

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\.(zip|tar|tar\.gz|tgz)$")]
    url: Annotated[str, Field(pattern=r"^https?://")] = ""
    bytes: Count = 0
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = ""
    where: Text = ""  # by hand: who has it and what it takes to get it
    members: Text  # which files of the archive: a folder and a pattern, train2014/*
    to: Below  # the folder for them, below the corpus' own
    files: Count  # how many they are
    needed: Count = 0  # how many of them the splits use; 0: all
    missing: Annotated[float, Field(ge=0, lt=1)] = 0.0  # the share of them that may be gone
    unpacked: Count  # bytes that they take on disk, at most

    @model_validator(mode="after")
    def _checkable(self) -> Self:
        if self.url and not (self.bytes and self.sha256):
            raise ValueError("what is downloaded needs bytes and sha256; without them it is brought by hand")
        if not self.url and not self.where:
            raise ValueError("what is brought by hand needs where")
        return self


class ByHand(Source):
    """A file that the user has to download, as there is no link with a digest."""

    file: Below
    where: Text


class Broken(Entry):
    """A source that is cited but no longer works, and what to use instead."""

    what: Text
    instead: Text


class Card(Entry):
    """One corpus."""

    name: Text  # the card's file and the profile
    title: Text
    images: Count
    captions: Count
    splits: dict[str, Count]
    home: Text
    licence: Text
    citation: Text
    archives: tuple[Archive, ...] = Field(default=(), strict=False)
    by_hand: tuple[ByHand, ...] = Field(default=(), strict=False)
    broken: tuple[Broken, ...] = Field(default=(), strict=False)


def names() -> list[str]:
    """The corpora that have a card."""
    return sorted(path.stem for path in CARDS.glob("*.toml"))


def load(name: str) -> Card:
    """The card of the corpus `name`; raises UserError where there is none."""
    if name not in names():
        raise UserError(f"DATASET={name}: no such data card; there are: {', '.join(names())}")
    return read(CARDS / f"{name}.toml")


def read(path: Path) -> Card:
    """The card at `path`; raises UserError for a mistake in it."""
    try:
        with open(path, "rb") as file:
            return Card.model_validate({"name": path.stem, **tomllib.load(file)})
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not TOML ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
