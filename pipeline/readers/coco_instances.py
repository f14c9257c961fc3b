"""Reader of COCO's instance annotations: the categories of the objects in each image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.readers.annotation_file import JsonFile, show_json


def read_instances(files: Sequence[Path]) -> dict[str, list[str]]:
    """Return the sorted names of the categories in each image of COCO's instance files, by the image's id as text.

    An image that is in several files has the categories of all of them. Raises UserError with file and position, for
    instance where an annotation's image or category is not in its file.
    """
    by_image: dict[str, set[str]] = {}
    for file in files:
        source = JsonFile(file)
        names = {row.get("id", int): row.get("name", str) for row in source.entries("categories")}
        objects: dict[int | str, set[str]] = {row.get("id", int | str): set() for row in source.entries("images")}
        for annotation in source.entries("annotations"):
            image, category = annotation.get("image_id", int | str), annotation.get("category_id", int)
            if image not in objects or category not in names:
                problem = f"image {show_json(image)} or category {show_json(category)}"
                remedy = "add it there or remove the annotation"
                annotation.fail(f"{problem} is not in the file's `images` or `categories`; {remedy}")
            objects[image].add(names[category])
        for key, categories in objects.items():
            by_image.setdefault(str(key), set()).update(categories)
    return {key: sorted(categories) for key, categories in by_image.items()}
