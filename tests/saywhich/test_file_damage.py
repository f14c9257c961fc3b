"""Changed files of a trained model, in a repository and exported."""

import json
import shutil

import pytest
from file_damage import try_damages
from hostile_exports import make_model_kind

import saywhich
from pipeline.errors import UserError
from pipeline.runtime.checksums import serialise_with_checksum
from pipeline.runtime.files import compute_sha256

DAMAGES = 24


@pytest.mark.parametrize("kind", ["in a repository", "exported"])
def test_damage_of_any_file_is_named(repository, exported_model, photos, tmp_path, kind):
    root = tmp_path / "copy"
    shutil.copytree(exported_model if kind == "exported" else repository, root)
    model = root if kind == "exported" else root / "models/psst_multinomial"
    files = make_model_kind(kind, model, root, photos / "a.jpg")
    assert {path.name for path, _ in files.files} >= {"vocabulary.json", "manifest.json", "weights.safetensors"}
    assert not [outcome for _, outcome in try_damages(files, DAMAGES) if outcome]


def test_another_vocabulary_or_image_size_is_named(repository, tmp_path):
    shutil.copytree(repository, tmp_path / "data")
    model, features = tmp_path / "data/models/psst_multinomial", tmp_path / "data/features/main/manifest.json"
    whole = features.read_text()
    without_digest = json.dumps({key: value for key, value in json.loads(whole).items() if key != "sha256"})
    for text in (whole.replace("32", "16"), without_digest):
        features.write_text(text)
        with pytest.raises(UserError, match=r"features/main/manifest\.json: .*run the features stage again"):
            saywhich.load(model)
    changed = json.loads(whole)
    changed["preprocessing"]["input_size"] = [3, 16, 16]
    del changed["sha256"]
    features.write_text(serialise_with_checksum(changed))
    with pytest.raises(UserError, match=r"manifest\.json: its network gives 1 regions .* have 4"):
        saywhich.load(model)
    features.write_text(whole)
    vocabulary = tmp_path / "data/prepared/vocabulary.json"
    vocabulary.write_text(vocabulary.read_text().replace("boat", "goat"))
    with pytest.raises(UserError, match=r"vocabulary\.json: .* bytes have changed; run the prepare"):
        saywhich.load(model)


def test_a_model_that_an_earlier_version_exported_is_read(exported_model, photos, tmp_path):
    shutil.copytree(exported_model, tmp_path / "out")
    record = json.loads((tmp_path / "out/saywhich.json").read_text())
    manifest = json.loads((tmp_path / "out/features/manifest.json").read_text())
    for content in (record, manifest):
        del content["sha256"]
    (tmp_path / "out/features/manifest.json").write_text(json.dumps(manifest))
    record["files"]["features/manifest.json"] = compute_sha256(tmp_path / "out/features/manifest.json")
    (tmp_path / "out/saywhich.json").write_text(json.dumps(record))
    captions = saywhich.load(tmp_path / "out").caption(photos / "a.jpg")
    assert captions == saywhich.load(exported_model).caption(photos / "a.jpg")
