"""Photos of a folder by the names and ids that caption files give them."""

from __future__ import annotations

import copy
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from saywhich.judging.caption_files import ImageKey, as_number
from saywhich.photos import photo_files

DIGITS = re.compile(r"(?<![0-9])[0-9]{1,18}\Z")  # COCO's id at the end of a file's name


class PhotoIndex:
    """The photos in and below a folder.

    A name is a path below it or one that ends so, a file's name, or that without its ending. A name with another ending
    is found, too, if no file has exactly that name. COCO's ids are looked up in `files`, the table of ids, and else at
    the end of the files' names.
    """

    def __init__(self, folder: str | Path, files: Mapping[int, str] | None = None) -> None:
        self._ids = dict(files or {})
        self.files = photo_files([folder])
        folder = Path(folder)
        below = [path.relative_to(folder).as_posix() if folder in path.parents else path.name for path in self.files]
        self._names: dict[str, Path | None] = {}
        exact = (below, [path.name for path in self.files], [path.stem for path in self.files])
        for names in (*exact, *([_compose_letters(name) for name in each] for each in exact)):
            found: dict[str, Path | None] = {}
            for name, path in zip(names, self.files, strict=True):
                found[name] = None if name in found else path  # None: the name is ambiguous
            self._names = found | self._names
        self._digits: dict[int, Path | None] = {}
        for path in self.files:
            if match := DIGITS.search(path.stem):
                number = int(match[0])
                self._digits[number] = None if number in self._digits else path

    def with_ids(self, files: Mapping[int, str]) -> PhotoIndex:
        """Return an index of the same photos with the table of ids `files`."""
        other = copy.copy(self)
        other._ids = dict(files)
        return other

    def find(self, image: ImageKey) -> Path | None:
        """Return the photo that a caption file means, or None where there is none or several."""
        return self._find(image, self._ids)

    def _find(self, image: ImageKey, ids: Mapping[int, str]) -> Path | None:
        """Find a photo; a name that the table gives an id is not looked up in the table again."""
        if isinstance(image, int):
            name = ids.get(image)
            return self._digits.get(image) if name is None else self._find(name, {})
        path = PurePosixPath(image.replace("\\", "/"))
        ends = [PurePosixPath(*path.parts[first:]).as_posix() for first in range(len(path.parts))]
        names = (*ends, path.stem)  # the longest end counts: in holiday/x/a.jpg x/a.jpg before a.jpg
        for name in (*names, *map(_compose_letters, names)):
            if name in self._names:
                return self._names[name]
        number = as_number(image)
        return None if number is None else self._find(number, ids)


def _compose_letters(name: str) -> str:
    """Return a name with composed letters: ü is one letter or two, by the system that wrote the name."""
    return unicodedata.normalize("NFC", name)
