"""The command that serves the page: names of models, the port, and sample photos."""

import io
import shutil
import socket
from pathlib import Path

import pytest
from PIL import Image
from saywhich_world import make_model, paint

from pipeline.errors import UserError
from pipeline.runtime.checksums import write_checksums
from saywhich.cli import main
from saywhich.commands.serve import bind, load_models, make_distinct_names, name_pretrained_speaker, sample_groups
from saywhich.server import encode_sample_copies


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["a/mle", "a/psst"], ["mle", "psst"]),
        (["a/psst", "b/psst", "b/mle"], ["a/psst", "b/psst", "mle"]),
        (["a/psst", "a/psst", "./a/../a/psst"], ["psst"]),
        (["x/a/psst", "y/a/psst"], ["x/a/psst", "y/a/psst"]),
    ],
)
def test_models_of_one_folder_name_are_served_under_distinct_names(folders, names):
    found = make_distinct_names([Path(folder) for folder in folders])
    assert list(found) == names
    assert [folder.resolve() for folder in found.values()] == list(dict.fromkeys(Path(f).resolve() for f in folders))


def test_a_pretrained_speaker_takes_no_name_of_another_model():
    assert name_pretrained_speaker("owner/blip", {"psst": "..."}) == "blip"
    assert name_pretrained_speaker("owner/blip/", {"blip": "..."}) == "owner/blip"
    assert name_pretrained_speaker("blip", {"blip": "..."}) == "blip (pretrained)"


@pytest.mark.parametrize(
    ("host", "port", "line"),
    [
        ("127.0.0.1", 99_999, "--port 99999: give a number from 0 to 65535"),
        ("127.0.0.1", -1, "--port -1: give a number from 0 to 65535"),
        ("no such host", 0, "--host no such host --port 0: the system refuses to listen ("),
        ("192.0.2.1", 0, "--host 192.0.2.1 --port 0: the system refuses to listen ("),
        ("a" * 300, 0, "--host aaa"),
    ],
)
def test_an_impossible_host_or_port_is_reported_in_one_line(repository, capsys, host, port, line):
    model = str(repository / "models/psst_multinomial")
    assert main(["serve", "--model", model, "--host", host, "--port", str(port)]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(line)
    assert printed.count("\n") == 1


def test_missing_photos_are_reported_before_models_are_loaded(repository, capsys, monkeypatch):
    monkeypatch.setattr("saywhich.commands.serve.load_models", lambda *_, **__: pytest.fail("expected no loaded model"))
    assert main(["serve", "--model", str(repository / "models/mle"), "--photos", "no/folder"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("no/folder: no such photo or folder")
    assert printed.count("\n") == 1


def test_a_port_in_use_is_reported_in_one_line(repository, capsys):
    host = "127.9.9.9"  # a loopback address that no other process uses
    with bind(host, 0) as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        model = str(repository / "models/psst_multinomial")
        assert main(["serve", "--model", model, "--host", host, "--port", port]) == 2
    assert (
        "the system refuses to listen (Address already in use); give another host or port\n" in capsys.readouterr().err
    )
    with bind(host, int(port)) as free:
        assert isinstance(free, socket.socket)


@pytest.mark.parametrize(("photos", "expected"), [(3, 3), (10, 10), (25, 20), (1000, 60)])
def test_samples_are_groups_of_ten_consecutive_photos(photos, expected):
    files = [Path(f"{number:04}.jpg") for number in range(photos)]
    samples = sample_groups(files)
    assert len(set(samples)) == expected
    for start in range(0, len(samples), 10):
        ten = samples[start : start + 10]
        begin = files.index(ten[0])
        assert ten == files[begin : begin + 10]


def test_a_damaged_sample_photo_is_skipped_with_a_line(tmp_path, capsys):
    (tmp_path / "broken.jpg").write_bytes(b"no photo")
    paint(tmp_path / "large.png", 3, (2000, 1000))
    copies = encode_sample_copies([tmp_path / "broken.jpg", paint(tmp_path / "small.png", 2), tmp_path / "large.png"])
    assert [Image.open(io.BytesIO(copy)).size for copy in copies] == [(40, 50), (1280, 640)]
    printed = capsys.readouterr().err
    assert "broken.jpg: the image cannot be decoded" in printed
    assert printed.count("\n") == 1


def test_models_of_another_profile_are_left_out_or_refused_in_one_line(repository, tmp_path, capsys):
    """Only models of the present data are loaded from a folder; another model is an error if it is named."""
    data = tmp_path / "data"
    shutil.copytree(repository, data)
    old, own = make_model(data, "old", 2, with_digests=True), data / "models/psst_multinomial"
    assert set(load_models([old, own], strict=True)) == {"old", "psst_multinomial"}
    file = data / "prepared/vocabulary.json"
    file.write_text(file.read_text().replace("boat", "goat"))
    write_checksums(data / "prepared")
    assert set(load_models([old, own], strict=False)) == {"psst_multinomial"}
    line = f"{old}: was trained with other data than {file.resolve()}, which another profile or start wrote; train it"
    assert capsys.readouterr().err.startswith(f"left out: {line}")
    for command in (
        ["caption", str(data / "images")],
        ["find", "a dog", str(data / "images")],
        ["serve", "--port", "0"],
    ):
        assert main([*command, "--model", str(old)]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith(line)
        assert printed.count("\n") == 1
    with pytest.raises(UserError, match="no model of the present data"):
        load_models([old], strict=False)
