"""Reader of COCO's instance annotations: the categories of the objects in each image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.readers.annotation_file import JsonFile, show_json


def read_instances(files: Sequence[Path]) -> dict[str, list[str]]:
    """Return the sorted names of the categories in each image of COCO's instance files, by the image's id as text.

    Raises UserError with file and position, for instance where an annotation's image or category is not in its file.
    """
    by_image: dict[str, list[str]] = {}
    for file in files:
        source = JsonFile(file)
        names = {row.get("id", int): row.get("name", str) for row in source.entries("categories")}
        objects: dict[int | str, set[str]] = {row.get("id", int | str): set() for row in source.entries("images")}
        for annotation in source.entries("annotations"):
            image, category = annotation.get("image_id", int | str), annotation.get("category_id", int)
            if image not in objects or category not in names:
                problem = f"image {show_json(image)} or category {show_json(category)}"
                annotation.fail(f"{problem} is not in the file's `images` or `categories`")
            objects[image].add(names[category])
        by_image |= {str(image): sorted(categories) for image, categories in objects.items()}
    return by_image
