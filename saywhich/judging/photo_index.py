"""Photos of a folder by the names and ids that caption files give them."""

from __future__ import annotations

import copy
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from saywhich.judging.caption_files import ImageKey, parse_number
from saywhich.photos import list_photo_files

TRAILING_ID = re.compile(r"(?<![0-9])[0-9]{1,18}\Z")  # COCO's id at the end of a file's name


class PhotoIndex:
    """The photos in and below a folder.

    A photo's name is its path below the folder, its file name, or its file name without the extension. A longer path
    that ends in such a name, and a name with another extension, are also found if no photo has exactly that name.
    An id is looked up in the constructor's table `files`, or else at the end of the file names.
    """

    def __init__(self, folder: str | Path, files: Mapping[int, str] | None = None) -> None:
        self._ids = dict(files or {})
        self.files = list_photo_files([folder])
        folder = Path(folder)
        paths = [path.relative_to(folder).as_posix() if folder in path.parents else path.name for path in self.files]
        self._names: dict[str, Path | None] = {}
        exact_names = (paths, [path.name for path in self.files], [path.stem for path in self.files])
        for names in (*exact_names, *([_compose_letters(name) for name in each] for each in exact_names)):
            photos: dict[str, Path | None] = {}
            for name, path in zip(names, self.files, strict=True):
                photos[name] = None if name in photos else path  # None: the name is ambiguous
            self._names = photos | self._names
        self._photo_of_id: dict[int, Path | None] = {}
        for path in self.files:
            if match := TRAILING_ID.search(path.stem):
                number = int(match[0])
                self._photo_of_id[number] = None if number in self._photo_of_id else path

    def with_ids(self, files: Mapping[int, str]) -> PhotoIndex:
        """Return an index of the same photos with the table of ids `files`."""
        index = copy.copy(self)
        index._ids = dict(files)
        return index

    def find(self, image: ImageKey) -> Path | None:
        """Return the photo of a caption file's image; None where no photo, or more than one, has its name."""
        return self._find(image, self._ids)

    def _find(self, image: ImageKey, ids: Mapping[int, str]) -> Path | None:
        """Find a photo; the name that the table has for an id is not looked up in the table again."""
        if isinstance(image, int):
            name = ids.get(image)
            return self._photo_of_id.get(image) if name is None else self._find(name, {})
        path = PurePosixPath(image.replace("\\", "/"))
        ends = [PurePosixPath(*path.parts[first:]).as_posix() for first in range(len(path.parts))]
        names = (*ends, path.stem)  # the longest end comes first: x/a.jpg before a.jpg
        for name in (*names, *map(_compose_letters, names)):
            if name in self._names:
                return self._names[name]
        number = parse_number(image)
        return None if number is None else self._find(number, ids)


def _compose_letters(name: str) -> str:
    """Return a name in Unicode's form NFC: systems write ü as one code point or as two."""
    return unicodedata.normalize("NFC", name)
