"""Data cards: a description of each corpus, its licence and the sources of its files; one TOML file per corpus."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.errors import UserError

CARDS = Path(__file__).parent

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
RelativePath = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$")]  # below the corpus's folder


class CardEntry(BaseModel):
    """Base class of the tables in a data card; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CardSource(CardEntry):
    """Source of a corpus's files. One of the sources with the same `choice` is enough.

    `profile` is the name of the profile that reads these files.
    """

    optional: bool = False
    choice: Text = ""
    profile: Text = ""


class ArchiveSource(CardSource):
    """Zip or tar archive, of which one folder is used; without `url`, the user must download it."""

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\.(zip|tar|tar\.gz|tgz)$")]
    url: Annotated[str, Field(pattern=r"^https?://")] = ""
    bytes: Count = 0
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = ""
    instructions: Text = ""  # without a url: the publisher, and how to get the archive
    members: Text  # files of the archive: a folder and a pattern, train2014/*
    folder: RelativePath  # folder of these files, below the corpus's folder
    files: Count  # number of these files
    min_used_files: Count = 0  # number of files that the splits use; 0: all
    missing: Annotated[float, Field(ge=0, lt=1)] = 0.0  # largest share of files that may be missing
    unpacked: Count  # largest size on disk, in bytes

    @property
    def min_files(self) -> int:
        """Return the smallest number of files that is accepted."""
        expected = self.min_used_files or self.files
        return expected - math.floor(round(expected * self.missing, 6))  # 0.29 × 100 is 28.999999999999996

    @model_validator(mode="after")
    def _check_archive(self) -> Self:
        if self.url and not (self.bytes and self.sha256):
            raise ValueError("an archive with a url needs bytes and sha256; without them, leave out the url")
        if not self.url and not self.instructions:
            raise ValueError("an archive without a url needs instructions")
        return self


class ManualSource(CardSource):
    """File that the user must download, because no link with a digest exists."""

    file: RelativePath
    instructions: Text


class BrokenSource(CardEntry):
    """A source that is cited but no longer works, and its replacement."""

    description: Text
    replacement: Text


class DataCard(CardEntry):
    """A corpus: its size, splits, licence, citation and sources."""

    name: Text  # the card's file and the profile
    title: Text
    images: Count
    captions: Count
    splits: dict[str, Count]
    licence: Text
    citation: Text
    archives: tuple[ArchiveSource, ...] = Field(default=(), strict=False)
    manual: tuple[ManualSource, ...] = Field(default=(), strict=False)
    broken: tuple[BrokenSource, ...] = Field(default=(), strict=False)


def list_card_names() -> list[str]:
    """Return the names of the corpora that have a card."""
    return sorted(path.stem for path in CARDS.glob("*.toml"))


def load_card(name: str) -> DataCard:
    """Return the card of the corpus `name`. Raises UserError for an unknown corpus, or an error in its card."""
    if name not in list_card_names():
        raise UserError(f"DATASET={name}: no such data card; choose one of: {', '.join(list_card_names())}")
    return read_card(CARDS / f"{name}.toml")


def read_card(path: Path) -> DataCard:
    """Return the card at `path`. Raises UserError for invalid TOML, a missing or unknown key, or a wrong value."""
    try:
        with open(path, "rb") as file:
            return DataCard.model_validate({"name": path.stem, **tomllib.load(file)})
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not TOML ({error}); correct the file") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; correct the card") from None
