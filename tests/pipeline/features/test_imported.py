"""Import of features from files in the formats of published programs."""

import base64
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np
import pytest
from feature_checksums import verify

from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.errors import UserError
from pipeline.features.imported import FORMATS, import_features

IDS = ["391895", "522418", "184613", "318219", "554625"]
SIZE = 8  # 2048 in the published files


def make_regions(row: int, count: int | None = None) -> np.ndarray:
    """Return regions (n, D) float32 of an image; n, 3 to 7, differs between images."""
    return np.random.default_rng(row).random((3 + row if count is None else count, SIZE), np.float32)


def make_boxes(row: int, count: int | None = None) -> np.ndarray:
    """Return boxes (n, 4) float32 of an image of 640×480 pixels: x1, y1, x2, y2."""
    corners = np.random.default_rng(row).random((3 + row if count is None else count, 2, 2), np.float32)
    return (np.sort(corners, axis=1) * np.array([639, 479], np.float32)).reshape(-1, 4)


def round_to_half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float32)


def write_npy_folders(folder: Path) -> dict[str, str]:
    """Write the format of prepro_feats.py and make_bu_data.py: ID.npy, and ID.npz with the key feat."""
    for name in ("fc", "att"):
        (folder / name).mkdir()
    for row, id_ in enumerate(IDS):
        np.save(folder / "fc" / id_, make_regions(row).mean(0))
        np.savez_compressed(folder / "att" / id_, feat=make_regions(row))
    return {"format": "npy_folders", "regions": str(folder / "att"), "pooled": str(folder / "fc")}


def format_line(id_: str, features: np.ndarray, boxes: np.ndarray, size: tuple[int, int] = (640, 480)) -> bytes:
    """Return a line as bottom-up-attention's generate_tsv.py writes it: with tabs, and with CR LF at the end."""
    numbers = (str(number).encode() for number in (*size, len(features)))
    coded = (base64.b64encode(array.tobytes()) for array in (boxes, features))
    return b"\t".join([id_.encode(), *numbers, *coded]) + b"\r\n"


def encode_box(box: list[float]) -> bytes:
    """Return `box` six times in the encoding of a line."""
    return base64.b64encode(np.array([box] * 6, np.float32).tobytes())


def write_tsv(folder: Path) -> dict[str, object]:
    lines = [format_line(id_, make_regions(row), make_boxes(row)) for row, id_ in enumerate(IDS)]
    (folder / "train.tsv.0").write_bytes(
        lines[3] + lines[0] + format_line("999", make_regions(9), make_boxes(9)) + lines[1]
    )
    (folder / "train.tsv.1").write_bytes(lines[4] + lines[0] + lines[2])  # 391895 is in both files
    return {"format": "tsv", "regions": [str(folder / "train.tsv.0"), str(folder / "train.tsv.1")]}


def write_detections(folder: Path, probabilities: Callable[[int], np.ndarray] | None = None) -> dict[str, str]:
    """Write coco_detections.hdf5 with ID_features (n, D) and ID_boxes (n, 4).

    With `probabilities`, the file also has ID_cls_prob (n, classes), the background first.
    """
    with h5py.File(folder / "coco_detections.hdf5", "w") as file:
        for row, id_ in enumerate(IDS):
            file[f"{id_}_features"] = make_regions(row)
            file[f"{id_}_boxes"] = make_boxes(row)
            if probabilities is not None:
                file[f"{id_}_cls_prob"] = probabilities(row)
    return {"format": "detections", "regions": str(folder / "coco_detections.hdf5")}


EXPORTS = [write_npy_folders, write_tsv, write_detections]


def run_import(ids: list[str], out: Path, settings: dict, max_regions: int) -> None:
    form = next(form for form in FORMATS if form.name == settings["format"])
    rest = {key: value for key, value in settings.items() if key != "format"}
    import_features(ids, out, feature_format=form, **rest, max_regions=max_regions)


def import_store(out: Path, settings: dict, max_regions: int = 7) -> FeatureStore:
    run_import(IDS, out, settings, max_regions)
    store = FeatureStore(out)
    verify(store)
    return store


def catch_import_error(out: Path, settings: dict, max_regions: int = 7) -> str:
    with pytest.raises(UserError) as caught:
        run_import(IDS, out, settings, max_regions)
    assert "\n" not in caught.value.args[0]
    assert not out.exists() or list(out.iterdir()) == []
    return str(caught.value)


@pytest.mark.parametrize("batch", [2, 64])
@pytest.mark.parametrize("write_export", EXPORTS)
def test_every_image_gets_its_own_regions_and_their_mean(tmp_path, monkeypatch, write_export, batch):
    monkeypatch.setattr("pipeline.features.imported.BATCH", batch)
    store = import_store(tmp_path / "out", write_export(tmp_path))
    assert (len(store), store.pooled_size, store.regions_shape) == (5, SIZE, (7, SIZE))
    pooled, found, mask = store.read(np.arange(5))
    for row in range(5):
        np.testing.assert_array_equal(found[row], round_to_half(np.pad(make_regions(row), ((0, 4 - row), (0, 0)))))
        assert mask[row].tolist() == [True] * (3 + row) + [False] * (4 - row)
        np.testing.assert_allclose(pooled[row], round_to_half(make_regions(row).mean(0)), rtol=1e-3)


def test_all_formats_give_the_same_features(tmp_path):
    stores = []
    for write_export in EXPORTS:
        (folder := tmp_path / write_export.__name__).mkdir()
        stores.append(import_store(folder / "out", write_export(folder)))
    for store in stores[1:]:
        for found, expected in zip(store.read(np.arange(5)), stores[0].read(np.arange(5)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_the_manifest_names_format_and_digest_of_the_source(tmp_path):
    manifest = import_store(tmp_path / "a", write_npy_folders(tmp_path), max_regions=4).manifest
    assert (manifest["network"], manifest["form"]) == ("imported", "npy_folders")
    for part, folder in (("regions", "att"), ("pooled", "fc")):
        files = {path.name: sha256(path.read_bytes()).hexdigest() for path in (tmp_path / folder).iterdir()}
        listed = json.dumps(files, sort_keys=True).encode()
        assert manifest["sources"][part] == {"files": 5, "sha256": sha256(listed).hexdigest()}
    assert manifest["regions_kept"] == {
        "most": 4, "which": "the first of each image, in the order of its file", "images_with_more": 3,
    }  # fmt: skip
    manifest = import_store(tmp_path / "b", write_detections(tmp_path)).manifest
    file = tmp_path / "coco_detections.hdf5"
    digest = sha256(file.read_bytes()).hexdigest()
    assert manifest["sources"] == {"regions": {"file": str(file), "sha256": digest}}
    manifest = import_store(tmp_path / "c", write_tsv(tmp_path)).manifest
    files = {file: sha256(Path(file).read_bytes()).hexdigest() for file in write_tsv(tmp_path)["regions"]}
    listed = json.dumps(files, sort_keys=True).encode()
    assert manifest["sources"]["regions"] == {"files": 2, "sha256": sha256(listed).hexdigest()}


@pytest.mark.parametrize("write_export", EXPORTS)
def test_the_first_regions_are_kept_and_the_mean_is_of_all(tmp_path, write_export):
    pooled, found, mask = import_store(tmp_path / "out", write_export(tmp_path), max_regions=4).read(np.arange(5))
    assert mask.sum(1).tolist() == [3, 4, 4, 4, 4]
    np.testing.assert_array_equal(found[4], round_to_half(make_regions(4)[:4]))
    np.testing.assert_allclose(pooled[4], round_to_half(make_regions(4).mean(0)), rtol=1e-3)


def test_the_boxes_of_tsv_are_kept_as_shares_of_the_images_sides(tmp_path):
    settings = write_tsv(tmp_path)
    store = import_store(tmp_path / "all", settings)
    assert store.has_boxes
    for row, found in enumerate(store.boxes(np.arange(5))):
        np.testing.assert_allclose(found[: 3 + row] * [640, 480, 640, 480], make_boxes(row), atol=1e-4)
        assert not found[3 + row :].any()
    cut = import_store(tmp_path / "cut", settings, max_regions=4).boxes(np.array([4]))[0]
    np.testing.assert_allclose(cut * [640, 480, 640, 480], make_boxes(4)[:4], atol=1e-4)
    file = Path(settings["regions"][0])
    edge = np.array([[-0.5, 0, 640.25, 480.5]] * 6, np.float32)  # rounding: less than a pixel beyond the edges
    file.write_bytes(format_line(IDS[3], make_regions(3), edge) + file.read_bytes())
    np.testing.assert_array_equal(
        import_store(tmp_path / "edge", settings).boxes(np.array([3]))[0, :6], [[0, 0, 1, 1]] * 6
    )


@pytest.mark.parametrize("write_export", [write_npy_folders, write_detections])
def test_files_without_image_sizes_give_no_boxes(tmp_path, write_export):
    assert not import_store(tmp_path / "out", write_export(tmp_path)).has_boxes


def test_the_most_confident_detections_are_kept_whatever_the_background(tmp_path):
    def make_probabilities(row):  # regions 1, 3, 4 and 6 probably show objects; region 0 shows background
        probabilities = np.full((3 + row, 3), 0.1, np.float32)
        probabilities[0, 0] = 0.9
        for rank, region in enumerate(r for r in (6, 1, 4, 3) if r < 3 + row):
            probabilities[region, 1 + region % 2] = 0.8 - rank / 10
        return probabilities

    store = import_store(tmp_path / "out", write_detections(tmp_path, make_probabilities), max_regions=4)
    np.testing.assert_array_equal(store.read(np.array([4]))[1][0], round_to_half(make_regions(4)[[1, 3, 4, 6]]))
    np.testing.assert_array_equal(store.read(np.array([1]))[1][0], round_to_half(make_regions(1)))
    assert "most confident" in store.manifest["regions_kept"]["which"]


def test_a_grid_is_flattened_row_by_row_and_never_cut(tmp_path):
    settings = write_npy_folders(tmp_path)
    grids = [np.random.default_rng(row).random((2, 3, SIZE), np.float32) for row in range(5)]
    for id_, grid in zip(IDS, grids, strict=True):
        np.savez_compressed(tmp_path / "att" / id_, feat=grid)
    found = import_store(tmp_path / "out", settings, max_regions=6).read(np.array([2]))[1][0]
    np.testing.assert_array_equal(found[4], round_to_half(grids[2][1, 1]))
    error = catch_import_error(tmp_path / "cut", settings, max_regions=4)
    assert "391895.npz: expected at most 4 regions, found a grid of 2×3 cells; set imported.max_regions to 6" in error


def test_folders_may_be_of_npy_files_and_without_vectors(tmp_path):
    write_npy_folders(tmp_path)
    for row, id_ in enumerate(IDS):
        (tmp_path / "att" / f"{id_}.npz").unlink()
        np.save(tmp_path / "att" / id_, make_regions(row).astype(np.float16))
    store = import_store(tmp_path / "out", {"format": "npy_folders", "regions": str(tmp_path / "att")})
    np.testing.assert_array_equal(store.read(np.array([3]))[1][0, :6], round_to_half(make_regions(3)))
    np.testing.assert_allclose(store.read(np.array([3]))[0][0], make_regions(3).mean(0), rtol=2e-3)
    assert store.manifest["pooled"] == "the mean of an image's regions"


def test_an_image_that_is_missing_is_named_with_the_file(tmp_path):
    settings = write_npy_folders(tmp_path)
    (tmp_path / "fc" / "184613.npy").unlink()
    assert catch_import_error(tmp_path / "out", settings) == (
        f"{tmp_path / 'fc'}: image 184613 has neither 184613.npz nor 184613.npy there; extract its features"
    )
    settings = write_tsv(tmp_path)
    assert "no line of image 184613" in catch_import_error(
        tmp_path / "out", settings | {"regions": settings["regions"][:1]}
    )
    settings = write_detections(tmp_path)
    with h5py.File(settings["regions"], "r+") as file:
        del file["318219_features"]
    assert "no data set 318219_features: image 318219 has no features there" in catch_import_error(
        tmp_path / "out", settings
    )
    for form in ("npy_folders", "tsv", "detections"):
        assert "nowhere" in catch_import_error(tmp_path / "out", {"format": form, "regions": str(tmp_path / "nowhere")})


def test_a_damaged_line_is_skipped_if_the_image_has_an_undamaged_one(tmp_path):
    settings = write_tsv(tmp_path)
    first, second = map(Path, settings["regions"])
    whole = [format_line(id_, make_regions(row), make_boxes(row)) for row, id_ in enumerate(IDS)]
    broken = whole[0][:-7] + b"\r\n"  # as in the published test2014 files: cut within the base64
    first.write_bytes(broken + first.read_bytes())
    second.write_bytes(second.read_bytes() + broken)
    np.testing.assert_array_equal(
        import_store(tmp_path / "out", settings).read(np.array([0]))[1][0, :3], round_to_half(make_regions(0))
    )
    first.write_bytes(broken + whole[1] + whole[3])
    second.write_bytes(whole[2] + whole[4])
    message = catch_import_error(tmp_path / "none", settings)
    assert message.startswith(f"{first}, line 1: image 391895 cannot be read (")
    assert "padding" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda fields: fields[:5], "5 columns instead of image_id"),
        (lambda fields: [*fields[:3], b"many", *fields[4:]], "invalid literal for int"),
        (lambda fields: [*fields[:3], b"0", *fields[4:]], "of features for 0 boxes"),
        (lambda fields: [*fields[:3], b"5", *fields[4:]], "of features for 5 boxes"),
        (lambda fields: [*fields[:5], b"\xff" + fields[5][1:]], "base64"),
        (lambda fields: [*fields[:5], b""], "0 of features"),
        (lambda fields: [fields[0], b"wide", *fields[2:]], "invalid literal for int"),
        (lambda fields: [fields[0], b"9" * 400, *fields[2:]], "int too large to convert to float"),
        (lambda fields: [fields[0], b"0", *fields[2:4], encode_box([0, 2, 1, 3]), fields[5]], "within 0×480 pixels"),
        (lambda fields: [fields[0], b"480", b"640", *fields[3:]], "not x1, y1, x2, y2 within 480×640 pixels"),
        (lambda fields: [*fields[:4], encode_box([2, 2, 1, 3]), fields[5]], "not x1, y1, x2, y2 within 640×480 pixels"),
        (lambda fields: [*fields[:4], encode_box([np.nan, 2, 1, 3]), fields[5]], "not x1, y1, x2, y2 within"),
        (lambda fields: [*fields[:4], encode_box([-9, 2, 1, 3]), fields[5]], "not x1, y1, x2, y2 within"),
    ],
)
def test_a_line_of_another_format_is_reported(tmp_path, change, message):
    settings = write_tsv(tmp_path)
    first = Path(settings["regions"][0])
    fields = change(format_line(IDS[3], make_regions(3), make_boxes(3)).rstrip(b"\r\n").split(b"\t"))
    first.write_bytes(b"\t".join(fields) + b"\r\n" + b"".join(first.read_bytes().splitlines(keepends=True)[1:]))
    assert message in catch_import_error(tmp_path / "out", settings)


class FileOpeningPickle:
    """An object whose pickle opens a file for writing when it is loaded."""

    def __init__(self, file: Path):
        self.file = file

    def __reduce__(self):
        return open, (str(self.file), "w")


def test_damaged_and_foreign_files_are_reported_in_one_line_and_nothing_is_executed(tmp_path):
    settings = write_npy_folders(tmp_path)
    for name, write in (
        ("pickle", lambda f: np.save(f, np.array([FileOpeningPickle(tmp_path / "done")], object), allow_pickle=True)),
        ("cut", lambda f: f.write_bytes((tmp_path / "fc" / "391895.npy").read_bytes()[:-3])),
        ("empty", lambda f: f.write_bytes(b"")),
    ):
        write(tmp_path / "fc" / "522418.npy")
        assert "522418.npy: the features of image 522418 cannot be read (" in catch_import_error(
            tmp_path / name, settings
        )
    assert not (tmp_path / "done").exists()
    np.save(tmp_path / "fc" / "522418.npy", np.zeros((1, SIZE), np.float32))
    assert "image 522418 has a vector (1, 8) float32" in catch_import_error(tmp_path / "shape", settings)
    np.save(tmp_path / "fc" / "522418.npy", np.zeros(SIZE + 1, np.float32))
    assert "and a vector of 9 numbers, but image 391895 has 8 and 8" in catch_import_error(tmp_path / "size", settings)
    np.save(tmp_path / "fc" / "522418.npy", np.zeros(SIZE, np.float32))
    whole = (tmp_path / "att" / "522418.npz").read_bytes()
    for name, content in (("cut", whole[:-30]), ("flipped", whole[:60] + bytes([whole[60] ^ 255]) + whole[61:])):
        (tmp_path / "att" / "522418.npz").write_bytes(content)
        assert "522418.npz: the features of image 522418 cannot be read (" in catch_import_error(
            tmp_path / name, settings
        )
    np.savez(tmp_path / "att" / "522418.npz", features=make_regions(1))
    assert "522418.npz: the features of image 522418 cannot be read (" in catch_import_error(tmp_path / "key", settings)
    for name, values in (
        ("none", make_regions(1, 0)),
        ("ints", np.ones((3, SIZE), int)),
        ("flat", make_regions(1)[0]),
        ("grid", np.zeros((0, 7, SIZE), np.float32)),
    ):
        np.savez(tmp_path / "att" / "522418.npz", feat=values)
        assert "but (n, D) floating-point numbers are needed" in catch_import_error(tmp_path / name, settings)


@pytest.mark.parametrize(("part", "value"), [("att", np.nan), ("att", 1e6), ("att", 1e300), ("fc", -1e5)])
def test_features_that_are_not_finite_in_half_precision_are_reported_with_image_and_file(tmp_path, part, value):
    settings = write_npy_folders(tmp_path)
    values = make_regions(1).astype(np.float64) if part == "att" else make_regions(1).mean(0)
    values[..., 2] = value
    np.save(tmp_path / part / "522418.npy", values)
    if part == "att":
        (tmp_path / "att/522418.npz").unlink()  # this file would be read first
    message = catch_import_error(tmp_path / "out", settings)
    assert message.startswith(f"{tmp_path / 'att'}/522418.np")
    assert "image 522418 has a feature or vector that is infinite or NaN in half precision" in message


def test_every_file_of_a_folder_counts_for_the_digest_also_in_folders_below(tmp_path):
    manifests = []
    for number, changed in enumerate((0, 1, 2)):
        folder = tmp_path / str(number)
        for row, subfolder in enumerate(("a", "b")):
            (folder / subfolder).mkdir(parents=True)
            np.save(folder / subfolder / "1.npy", make_regions(row) + (changed == row + 1))
        run_import(["a/1", "b/1"], folder / "out", {"format": "npy_folders", "regions": str(folder)}, 7)
        manifests.append(FeatureStore(folder / "out").manifest["sources"]["regions"])
    assert [manifest["files"] for manifest in manifests] == [2, 2, 2]
    assert len({manifest["sha256"] for manifest in manifests}) == 3


def test_detections_of_another_format_are_reported(tmp_path):
    settings = write_detections(tmp_path, lambda row: np.ones((3, 2), np.float32))
    assert "image 522418 has 4 regions, but 3 in 522418_cls_prob" in catch_import_error(tmp_path / "out", settings)
    for name, wrong in (
        ("whole", lambda row: np.ones((3 + row, 2), np.uint8)),  # negation changes the order of unsigned integers
        ("truth", lambda row: np.ones((3 + row, 2), bool)),
        ("deep", lambda row: np.ones((3 + row, 2, 2), np.float32)),
    ):
        settings = write_detections(tmp_path, wrong)
        assert "image 391895 has 391895_cls_prob (3, 2" in catch_import_error(tmp_path / name, settings, max_regions=3)
    settings = write_detections(tmp_path, lambda row: np.ones((3 + row, 2), np.float32))
    with h5py.File(settings["regions"], "r+") as file:
        del file["522418_features"]
        file["522418_features"] = np.float32(1)
    assert "image 522418 has features () float32" in catch_import_error(tmp_path / "number", settings)
    Path(settings["regions"]).write_bytes(b"not HDF5")
    assert "the HDF5 file of detections cannot be read" in catch_import_error(tmp_path / "out", settings)


def test_exported_features_are_imported_unchanged(tmp_path):
    """A store that is written in the other formats and imported again has the same features."""
    rng = np.random.default_rng(0)
    own, count = rng.standard_normal((5, 6, SIZE)).astype(np.float16), np.array([6, 4, 1, 5, 6])
    own[np.arange(6) >= count[:, None]] = 0
    pooled = rng.standard_normal((5, 4)).astype(np.float16)
    shares = np.sort(rng.random((5, 6, 2, 2), np.float32), axis=2).reshape(5, 6, 4)
    shares[np.arange(6) >= count[:, None]] = 0
    stores = {}
    for with_boxes in (False, True):
        folder = tmp_path / f"own-{with_boxes}"
        with FeatureWriter(folder, 5, 4, (6, SIZE), with_boxes) as store:
            store.write(np.arange(5), pooled, own, count, shares)
        stores[with_boxes] = FeatureStore(folder)
    store = stores[True]
    vectors, found, mask = store.read(np.arange(5))
    for name in ("fc", "att"):
        (tmp_path / name).mkdir()
    lines = []
    with h5py.File(tmp_path / "detections.hdf5", "w") as file:
        for row, id_ in enumerate(IDS):
            exist = found[row][mask[row]]
            np.save(tmp_path / "fc" / id_, vectors[row])
            np.savez_compressed(tmp_path / "att" / id_, feat=exist)
            file[f"{id_}_features"] = exist
            pixels = shares[row][mask[row]] * np.array([512, 256] * 2, np.float32)  # powers of two: nothing is rounded
            lines.append(format_line(id_, exist, pixels, (512, 256)))
    (tmp_path / "all.tsv").write_bytes(b"".join(lines[::-1]))
    for form, path in (("npy_folders", "att"), ("tsv", "all.tsv"), ("detections", "detections.hdf5")):
        settings = {"format": form, "regions": str(tmp_path / path), "pooled": str(tmp_path / "fc")}
        imported = import_store(tmp_path / form, settings, max_regions=6)
        for one, other in zip(imported.read(np.arange(5)), (vectors, found, mask), strict=True):
            np.testing.assert_array_equal(one, other)
        assert imported.manifest["crc"] == stores[form == "tsv"].manifest["crc"]  # bit for bit, tsv with boxes
