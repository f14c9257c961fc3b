import json
from pathlib import Path

import pytest
from pycocotools.coco import COCO

from pipeline.errors import UserError
from pipeline.readers.coco_instances import read_instances

INSTANCES = {
    "images": [{"id": 9, "file_name": "9.jpg"}, {"id": 25, "file_name": "25.jpg"}],
    "categories": [{"id": 18, "name": "dog"}, {"id": 67, "name": "dining table"}],
    "annotations": [{"id": n, "image_id": 9, "category_id": each} for n, each in enumerate((67, 18, 18))],
}


def write_instances(folder: Path, content: dict, name: str = "instances.json") -> Path:
    (folder / name).write_text(json.dumps(content))
    return folder / name


def test_objects_are_those_of_pycocotools(tmp_path):
    file = write_instances(tmp_path, INSTANCES)
    more = write_instances(tmp_path, INSTANCES | {"images": [{"id": 42}], "annotations": []}, "more.json")
    assert read_instances([file, more]) == {"9": ["dining table", "dog"], "25": [], "42": []}
    coco = COCO(file)
    for image in (9, 25):
        names = {coco.loadCats(each["category_id"])[0]["name"] for each in coco.loadAnns(coco.getAnnIds(image))}
        assert names == set(read_instances([file])[str(image)])


def test_the_categories_of_an_image_in_several_files_are_merged(tmp_path):
    """Both files have image 7, and the category id 1 means another category in each file."""
    files = [
        write_instances(
            tmp_path,
            {
                "images": [{"id": 7}],
                "categories": [{"id": 1, "name": name}],
                "annotations": [{"image_id": 7, "category_id": 1}],
            },
            f"{name}.json",
        )
        for name in ("dog", "cat")
    ]
    assert read_instances(files) == {"7": ["cat", "dog"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"annotations": [{"image_id": 1, "category_id": 18}]}, r"annotations\[0\] .*image 1 or category 18 is not in"),
        ({"annotations": [{"image_id": 9, "category_id": 1}]}, r"annotations\[0\] .*image 9 or category 1 is not in"),
        ({"categories": [{"id": 18}]}, r"categories\[0\] .*`name` is missing"),
        ({"images": {}}, "needs a list `images`"),
    ],
)
def test_a_mistake_in_an_instance_file_is_reported_with_its_place(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        read_instances([write_instances(tmp_path, INSTANCES | change)])
