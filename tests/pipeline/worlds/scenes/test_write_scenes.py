"""The drawn scenes on disk: complete, valid in both caption formats, and equal for any number of workers."""

import json
from pathlib import Path

import pytest
from PIL import Image
from pycocotools.coco import COCO

from pipeline.errors import UserError
from pipeline.worlds.scenes import dataset_files
from pipeline.worlds.scenes.__main__ import main
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Scene
from pipeline.worlds.scenes.write_scenes import draw_scenes

IMAGES, SIZE, VAL, TEST = 104, 48, 8, 16


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("drawn") / "raw" / "scenes"
    counts = draw_scenes(root, IMAGES, SIZE, VAL, TEST, seed=1, workers=1)
    words = counts.pop("words")
    assert counts == {"images": IMAGES, "train": 80, "val": VAL, "test": TEST, "captions": 5 * IMAGES}
    assert words > 100
    return root


def read_folder(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_two_workers_write_the_same_bytes_as_one(root: Path, tmp_path: Path) -> None:
    draw_scenes(tmp_path / "scenes", IMAGES, SIZE, VAL, TEST, seed=1, workers=2)
    assert read_folder(tmp_path / "scenes") == read_folder(root)


def test_images_depend_on_the_seed_but_not_on_the_number_of_images(root: Path, tmp_path: Path) -> None:
    other_seed = draw_few(tmp_path / "other_seed", seed=2)
    fewer = draw_few(tmp_path / "fewer", seed=1)
    full = read_folder(root)
    for i in range(8):
        name = f"images/{i:06d}.jpg"
        assert other_seed[name] != full[name] == fewer[name]
    assert fewer[SCENE_FACTS].splitlines()[:8] == full[SCENE_FACTS].splitlines()[:8]


def draw_few(root: Path, seed: int) -> dict[str, bytes]:
    draw_scenes(root, 17, SIZE, 8, 8, seed, workers=1)
    return read_folder(root)


def test_the_folder_holds_images_captions_facts_and_checksums(root: Path) -> None:
    names = {path.name for path in root.iterdir()}
    assert names == {"images", "dataset_scenes.json", "captions_scenes.json", "facts.jsonl", "sha256.json"}
    assert [path.name for path in root.parent.iterdir()] == ["scenes"]
    assert sorted(path.name for path in (root / "images").iterdir()) == [f"{i:06d}.jpg" for i in range(IMAGES)]
    for path in (root / "images").iterdir():
        with Image.open(path) as picture:
            assert (picture.format, picture.size, picture.mode) == ("JPEG", (SIZE, SIZE), "RGB")


def test_captions_have_karpathys_format(root: Path) -> None:
    data = json.loads((root / "dataset_scenes.json").read_text())
    assert data["dataset"] == "scenes"
    splits = [image["split"] for image in data["images"]]
    assert splits == ["test"] * TEST + ["val"] * VAL + ["train"] * (IMAGES - TEST - VAL)
    sentids = []
    for i, image in enumerate(data["images"]):
        assert set(image) == {"filename", "imgid", "cocoid", "split", "sentids", "sentences"}
        assert (image["imgid"], image["cocoid"], image["filename"]) == (i, i, f"{i:06d}.jpg")
        assert [sentence["sentid"] for sentence in image["sentences"]] == image["sentids"]
        assert len(image["sentences"]) == 5
        for sentence in image["sentences"]:
            assert set(sentence) == {"raw", "tokens", "imgid", "sentid"}
            assert sentence["imgid"] == i
            assert sentence["tokens"] == sentence["raw"].rstrip(".").lower().split()
        sentids += image["sentids"]
    assert sentids == list(range(5 * IMAGES))


def test_captions_have_the_format_of_coco(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coco = COCO(str(root / "captions_scenes.json"))
    capsys.readouterr()
    assert set(coco.dataset) == {"info", "images", "annotations", "licenses"}
    karpathy = json.loads((root / "dataset_scenes.json").read_text())["images"]
    for image in karpathy:
        (loaded,) = coco.loadImgs(image["imgid"])
        assert loaded == {"id": image["imgid"], "file_name": image["filename"], "width": SIZE, "height": SIZE}
        captions = [annotation["caption"] for annotation in coco.imgToAnns[image["imgid"]]]
        assert captions == [sentence["raw"] for sentence in image["sentences"]]
    assert len(coco.anns) == 5 * IMAGES


def test_facts_equal_the_sampled_scenes(root: Path) -> None:
    records = [json.loads(line) for line in (root / "facts.jsonl").read_text().splitlines()]
    assert [(r["imgid"], r["filename"]) for r in records] == [(i, f"{i:06d}.jpg") for i in range(IMAGES)]
    for i in (0, 50, IMAGES - 1):
        assert Scene.from_record(records[i]) == sample_scene(1, i)
    splits = [set(range(TEST)), set(range(TEST, TEST + VAL)), set(range(TEST + VAL, IMAGES))]
    neighbourhoods = [{records[i]["neighbourhood"] for i in split} for split in splits]
    assert neighbourhoods == [{0, 1}, {2}, set(range(3, 13))]  # no neighbourhood is in two splits
    keys = {"category", "colour", "pattern", "size", "count", "pose", "place", "facing", "boxes", "box"}
    assert all(set(thing) == keys for record in records for thing in record["objects"])


def test_facts_without_neighbourhoods_are_read(root: Path) -> None:
    record = json.loads((root / "facts.jsonl").read_text().splitlines()[0])
    del record["neighbourhood"]
    assert Scene.from_record(record).neighbourhood == -1


def test_a_failure_leaves_no_partial_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    root = tmp_path / "scenes"
    expected = draw_few(root, seed=1)
    monkeypatch.setattr(dataset_files, "format_coco", fail)
    with pytest.raises(OSError, match="disk full"):
        draw_scenes(root, 18, SIZE, 8, 8, 1, workers=1)
    with pytest.raises(OSError, match="disk full"):
        draw_scenes(tmp_path / "new", 18, SIZE, 8, 8, 1, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["scenes"]
    assert read_folder(root) == expected


def test_drawing_again_replaces_the_whole_data_set(tmp_path: Path) -> None:
    draw_scenes(tmp_path / "scenes", 18, SIZE, 8, 8, seed=2, workers=1)
    new = draw_few(tmp_path / "scenes", seed=1)
    assert new == draw_few(tmp_path / "fresh", seed=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "scenes"]


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="files other than a drawn data set"):
        draw_scenes(tmp_path, 17, SIZE, 8, 8, 1, workers=1)
    assert read_folder(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_folder_with_pictures_of_another_origin_is_not_replaced(tmp_path: Path) -> None:
    draw_few(tmp_path / "scenes", seed=1)
    photo = tmp_path / "scenes" / "images" / "holiday.jpg"
    photo.write_text("a photo")
    with pytest.raises(UserError, match="files other than a drawn data set"):
        draw_few(tmp_path / "scenes", seed=1)
    assert photo.read_text() == "a photo"


def test_the_working_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scenes").mkdir()
    monkeypatch.chdir(tmp_path / "scenes")
    with pytest.raises(UserError, match="cannot be replaced while it is in use"):
        draw_few(Path("."), seed=1)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (f"--seed={2**63}", "--seed 9223372036854775808: give a whole number from 0"),
        ("--seed=-1", "--seed -1: give"),
        (f"--first={2**70}", "give a whole number from 0 to 999999"),
    ],
)
def test_a_sheet_of_an_impossible_world_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, message: str
) -> None:
    monkeypatch.setattr("sys.argv", ["scenes", f"--sheet={tmp_path / 'sheet.png'}", option])
    with pytest.raises(UserError, match=message):
        main()
    assert list(tmp_path.iterdir()) == []
