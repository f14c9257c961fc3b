"""Exported models: equal captions, model cards, digests, killed exports, and the model that MLflow serves."""

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hostile_exports import kill_exports
from saywhich_world import make_model, make_repository

import saywhich
from pipeline.errors import UserError
from pipeline.runtime.checksums import serialise_with_checksum
from pipeline.runtime.files import compute_sha256
from saywhich.cli import main
from saywhich.evaluation_summary import read_evaluation
from saywhich.exporting import describe_model, export_model
from saywhich.model_files import ModelFiles

ROOT = Path(__file__).parents[2]
POINTS = (0, 1, 5, 20, 40)  # writes of an export before which it is killed


def write_evaluation(folder: Path, images: int = 40) -> None:
    """Write an evaluation of a test split in which every other caption retrieves its image."""
    folder.mkdir(parents=True)
    test = [i >= 4 for i in range(images + 4)]
    ranks = [1 + i % 2 for i in range(images + 4)]
    columns = {
        "split": ["test" if each else "val" for each in test],
        "file": [f"{i}.png" for i in range(images + 4)],
        "caption": [f"a dog {i}" for i in range(images + 4)],
        "CIDEr": [0.5 + 0.01 * i for i in range(images + 4)],
        "rank_own": ranks,
        "neighbourhood_own": [0 if i < 8 else rank for i, rank in enumerate(ranks)],
    }
    pq.write_table(pa.table(columns), folder / "captions.parquet")
    galleries = {"neighbourhood": {"R@1": 50.0}}
    numbers = {
        "images": images,
        "language": {"CIDEr": float(np.mean(columns["CIDEr"][4:]))},
        "judges": {"own": {"text_to_image": {"R@10": 100.0}, "galleries": galleries}},
    }
    identity = {
        "method": "psst_multinomial",
        "settings": {"lambda": 0.01, "seed": 1},
        "signature": "data=toy|decode=beam:2",
    }
    (folder / "metrics.json").write_text(serialise_with_checksum({**identity, "val": {}, "test": numbers}))


@pytest.fixture
def trained_model(tmp_path, photos):
    data = make_repository(tmp_path / "trained", pca_dim=5, vector="mean_and_max", horizontal_flip=True)
    write_evaluation(data / "evaluation/psst_multinomial")
    return data / "models/psst_multinomial"


@pytest.mark.parametrize("attention", [True, False])
def test_an_exported_model_generates_the_same_captions_elsewhere(trained_model, photos, tmp_path, attention):
    names = ["a.jpg", "b.jpg", "c.jpg"]
    make_model(trained_model.parents[1], trained_model.name, 0, attention=attention)
    original = saywhich.load(trained_model)
    captions, scores = original.caption(names), original.score(["a dog"], names)
    export_model(trained_model, tmp_path / "out")
    shutil.move(tmp_path / "out", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "trained")
    exported = saywhich.load(tmp_path / "elsewhere")
    assert exported.caption(names) == captions
    np.testing.assert_array_equal(exported.score(["a dog"], names), scores)
    suffixes = {path.suffix for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()}
    assert suffixes == {".safetensors", ".json", ".md"}, "expected no file that can be executed"
    again = export_model(tmp_path / "elsewhere", tmp_path / "again")
    assert again.caption(names) == captions


def test_the_card_has_description_and_measurements(trained_model, tmp_path):
    export_model(trained_model, tmp_path / "out")
    _, front, text = (tmp_path / "out/README.md").read_text().split("---\n", 2)
    content = yaml.safe_load(front)
    assert content["library_name"] == "saywhich"
    assert content["pipeline_tag"] == "image-to-text"
    assert content["datasets"] == ["toy"]
    (result,) = content["model-index"][0]["results"]
    values = {metric["name"]: metric["value"] for metric in result["metrics"]}
    assert values == {"CIDEr": 0.735, "R@1 (hard), own listener": 50.0, "R@10, own listener": 100.0}
    assert "lambda 0.01" in text
    assert "`data=toy|decode=beam:2`" in text
    assert "not stated: ask the owner of the photos" in text
    assert "a dog 4" in text
    assert re.search(r"\| CIDEr \| 0\.735 \| 0\.(69|70)\d to 0\.7[67]\d \|", text)


@pytest.mark.parametrize(
    ("dataset", "title", "weights"),
    [("scenes", "drawn scenes", "apache-2.0"), ("films", "drawn films", "apache-2.0"), ("toy", "toy", "other")],
)
def test_drawn_data_have_the_licence_of_this_code(tmp_path, dataset, title, weights):
    for name, content in {"prepared": {"dataset": dataset}, "features": {"network": "resnet18"}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(content))
    model = tmp_path / "models/mle"
    files = ModelFiles(model, model / "weights.safetensors", tmp_path / "features", tmp_path / "prepared", tmp_path)
    data = describe_model(files)["data"]
    assert (data["title"], data["weights"]) == (title, weights)
    assert data["licence"].startswith("Apache-2.0: drawn" if weights == "apache-2.0" else "not stated")


def test_intervals_are_those_of_the_mean(tmp_path):
    write_evaluation(tmp_path / "evaluation", images=400)
    metrics = {metric["name"]: metric for metric in read_evaluation(tmp_path / "evaluation")["metrics"]}
    hard = metrics["R@1 (hard), own listener"]
    deviation = 50 / np.sqrt(396)  # standard error in %: half of the 396 images with a neighbourhood are hits
    assert hard["value"] == 50
    assert hard["high"] - hard["low"] == pytest.approx(2 * 1.96 * deviation, rel=0.1)
    assert metrics["R@10, own listener"]["low"] == metrics["R@10, own listener"]["high"] == 100
    assert read_evaluation(tmp_path / "nothing") == {}


def change_evaluation(folder: Path, change: Callable[[dict[str, Any]], object], missing_column: str = "") -> None:
    """Write an evaluation with changed numbers, and captions without the column `missing_column`."""
    write_evaluation(folder)
    content = json.loads((folder / "metrics.json").read_text())
    change(content)
    content.pop("sha256")
    (folder / "metrics.json").write_text(serialise_with_checksum(content))
    table = pq.read_table(folder / "captions.parquet")
    pq.write_table(table.drop_columns([missing_column] if missing_column else []), folder / "captions.parquet")


def test_a_hard_gallery_without_other_images_has_no_metric(tmp_path):
    """The evaluate stage leaves R@1 out where every test image is alone in its hard gallery."""
    change_evaluation(
        tmp_path / "e",
        lambda found: found["test"]["judges"]["own"].update(galleries={"neighbourhood": {"alone": 40.0}}),
    )
    assert [each["name"] for each in read_evaluation(tmp_path / "e")["metrics"]] == ["CIDEr", "R@10, own listener"]


def test_an_evaluation_without_the_test_split_is_reported_with_the_remedy(tmp_path):
    change_evaluation(tmp_path / "e", lambda found: found.pop("test"))
    with pytest.raises(UserError, match=r"has no results of the split test; add it to evaluate\.splits and run"):
        read_evaluation(tmp_path / "e")


@pytest.mark.parametrize(
    ("change", "missing_column"),
    [
        (lambda found: None, "split"),
        (lambda found: None, "caption"),
        (lambda found: found["test"].pop("language"), ""),
        (lambda found: found.pop("method"), ""),
        (lambda found: found.update(test=[]), ""),
    ],
)
def test_an_evaluation_with_missing_parts_is_reported_in_one_line(tmp_path, change, missing_column):
    change_evaluation(tmp_path / "e", change, missing_column)
    with pytest.raises(UserError, match=r"not whole \(.*\); run the evaluate stage again"):
        read_evaluation(tmp_path / "e")


@pytest.mark.parametrize(
    "name", ["weights.safetensors", "vocabulary.json", "features/network.safetensors", "features/scale.safetensors"]
)
def test_a_changed_file_of_an_export_is_reported_in_one_line(trained_model, tmp_path, name, capsys):
    export_model(trained_model, tmp_path / "out")
    file = tmp_path / "out" / name
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    assert main(["caption", "a.jpg", "--model", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"{file}: the SHA-256 is ")
    assert printed.count("\n") == 1
    file.unlink()
    with pytest.raises(UserError, match="missing; copy the whole folder"):
        saywhich.load(tmp_path / "out")


@pytest.mark.parametrize("name", ["diary.txt", ".git/HEAD", "features/mine.txt", "saywhich.json"])
def test_a_folder_with_other_files_is_not_overwritten(trained_model, tmp_path, capsys, name):
    """A user adds a file to an export, or replaces its manifest by another file of the same name."""
    out = tmp_path / "out"
    for _ in range(2):  # the second export replaces the first
        assert main(["export", str(trained_model), str(out)]) == 0
    user_file = out / name
    user_file.parent.mkdir(exist_ok=True)
    user_file.write_text("mine")
    capsys.readouterr()
    assert main(["export", str(trained_model), str(out)]) == 2
    assert re.fullmatch(
        rf"{out}: expected only outputs of an earlier run, found (.+); give another folder, or remove \1\n",
        capsys.readouterr().err,
    )
    assert user_file.read_text() == "mine"


def test_a_killed_export_can_be_repeated_and_leaves_an_older_one_unchanged(repository, exported_model, tmp_path):
    shutil.copytree(exported_model, tmp_path / "out")
    model = repository / "models/psst_multinomial"
    for point, fault in zip(POINTS, kill_exports(model, tmp_path / "out", POINTS), strict=True):
        assert not fault, point


def test_the_card_of_an_unevaluated_model_states_it(trained_model, tmp_path):
    shutil.rmtree(trained_model.parents[1] / "evaluation")
    export_model(trained_model, tmp_path / "out")
    assert "This model was not evaluated." in (tmp_path / "out/README.md").read_text()


def test_an_exported_model_is_exported_again_without_a_database(exported_model, monkeypatch, tmp_path, capsys):
    shutil.copytree(exported_model, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAYWHICH_TRACKING", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main(["export", "model", "copy"]) == 0
    assert "MLflow" not in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "model"]


@pytest.mark.slow
def test_mlflow_serves_the_exported_model(trained_model, photos, tmp_path):
    """The commands of the docs run in processes of their own, since MLflow changes settings of its process."""
    home, names = trained_model.parents[2], [photos / f"{name}.jpg" for name in "ab"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "SAYWHICH_"))}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"}
    export = [sys.executable, "-m", "saywhich", "export", "data/models/psst_multinomial", "out"]
    done = subprocess.run(export, cwd=home, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    uri = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("MLflow:"))
    serve = [sys.executable, "-m", "mlflow", "models", "serve", "-m", uri, "--env-manager", "local"]
    serve += ["-p", str(find_free_port())]
    environment["MLFLOW_TRACKING_URI"] = "sqlite:///mlflow.db"
    images = [[base64.b64encode(name.read_bytes()).decode()] for name in names]
    body = {"dataframe_split": {"columns": ["image"], "data": images}, "params": {"beam": 3}}
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(serve, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        address = f"{wait_for_address(server, tmp_path / 'log')}/invocations"
        request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
        (example,) = home.glob("mlartifacts/**/serving_input_example.json")
        example_request = urllib.request.Request(request.full_url, example.read_bytes(), dict(request.header_items()))
        with urllib.request.urlopen(example_request, timeout=600) as answer:
            assert len(json.load(answer)["predictions"]) == 1
        with urllib.request.urlopen(request, timeout=600) as answer:
            content = [each["caption"] for each in json.load(answer)["predictions"]]
    finally:
        with suppress(ProcessLookupError):  # the server has already ended
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert content == [str(each) for each in saywhich.load(home / "out").caption(names, beam=3)]


def find_free_port() -> int:
    """Return a port on which no program listens. With port 0, MLflow serves on uvicorn's default port, 8000."""
    with socket.socket() as server_socket:
        server_socket.bind(("127.0.0.1", 0))
        return int(server_socket.getsockname()[1])


def wait_for_address(server, log, seconds=600):
    """Return the address that the server prints; fail with its log if it ends, or after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        if found := re.search(r"Uvicorn running on (http://[\d.:]+)", log.read_text()):
            return found[1]
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


def change_manifest(folder: Path, **manifest: object) -> None:
    """Change values of an exported folder's manifest of features, and write all digests anew."""
    path, index = folder / "features/manifest.json", folder / "saywhich.json"
    path.write_text(serialise_with_checksum(json.loads(path.read_text()) | manifest))
    content = json.loads(index.read_text())
    content["files"]["features/manifest.json"] = compute_sha256(path)
    index.write_text(serialise_with_checksum(content))


@pytest.mark.parametrize(
    "manifest",
    [
        {"network": "hub/captioner"},
        {"network": "resnet18.a1_in1k", "weights": {"source": "hub", "sha256": "1" * 64}},
        {"network": "open_clip/ViT-B-32.openai", "weights": {"source": "hub", "sha256": "1" * 64}},
        {"network": "open_clip/roberta-ViT-B-32", "weights": {"source": "network.safetensors", "sha256": "1" * 64}},
    ],
)
def test_loading_an_exported_folder_opens_no_connection(exported_model, tmp_path, monkeypatch, manifest):
    shutil.copytree(exported_model, tmp_path / "out")

    def refuse_connection(*address, **_):
        raise AssertionError(f"expected no network access, but a connection to {address} was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse_connection)
    monkeypatch.setattr(socket, "getaddrinfo", refuse_connection)
    saywhich.load(tmp_path / "out")
    change_manifest(tmp_path / "out", **manifest)
    missing, fetched = (
        "expected the weights of the network .* in this folder",
        ".*, which fetches its text tower; train with",
    )
    with pytest.raises(UserError, match=rf"manifest\.json: ({missing}|{fetched})"):
        saywhich.load(tmp_path / "out")


@pytest.mark.parametrize("name", ["weights.safetensors", "features/manifest.json", "vocabulary.json", "tokenizer.json"])
def test_the_digest_of_a_model_depends_on_weights_features_and_words(tmp_path, name):
    for each in ("weights.safetensors", "features/manifest.json", "vocabulary.json", "tokenizer.json"):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text(each)

    def compute_digest() -> str:
        return ModelFiles(tmp_path, tmp_path / "weights.safetensors", tmp_path / "features", tmp_path, None).digest

    digest = compute_digest()
    assert compute_digest() == digest
    (tmp_path / name).write_text("another")
    assert compute_digest() != digest
