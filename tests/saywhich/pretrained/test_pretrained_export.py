"""The complete export of pretrained captioners, and its upload to a hub on loopback."""

import base64
import json
import resource
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from saywhich_world import paint
from tiny_pretrained import FAMILIES, write_pretrained

from pipeline.runtime.checksums import write_checksums
from saywhich.cli import main
from saywhich.pretrained.pretrained_speaker import GenerationSettings, PretrainedSpeaker

SETTINGS = GenerationSettings(samples=2, max_tokens=5)


@pytest.fixture(params=FAMILIES)
def folder(request, tmp_path, monkeypatch):
    """Return a working folder with a captioner and a photo."""
    write_pretrained(request.param, tmp_path / "model")
    paint(tmp_path / "a.png", 0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_export_is_complete_and_checked(folder, capsys, monkeypatch):
    original = PretrainedSpeaker("model")
    expected = original.generate_candidates([original.prepare("a.png")], SETTINGS)
    assert main(["export", "model", "out"]) == 0
    assert capsys.readouterr().out.endswith("MB; saywhich caption --speaker out PHOTO\n")
    (folder / "model").rename(folder / "moved")

    def refuse_connection(*_):
        raise AssertionError("expected no network access, but a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse_connection)
    exported = PretrainedSpeaker("out")
    assert exported.generate_candidates([exported.prepare("a.png")], SETTINGS) == expected
    names = {path.name for path in Path("out").iterdir()}
    assert {"model.safetensors", "config.json", "README.md", "sha256.json"} < names
    assert not any(name.endswith((".bin", ".py", ".pkl")) for name in names)
    weights = Path("out/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert main(["caption", "a.png", "--speaker", "out"]) == 2
    line = "--speaker out: out/model.safetensors: is missing, or its bytes have changed; copy the whole"
    assert capsys.readouterr().err.startswith(line)


@pytest.mark.parametrize("folder", ["blip"], indirect=True)
def test_only_an_earlier_export_is_replaced(folder, capsys):
    """Exports with a file of the user, and other folders with digests, such as prepared data, do not change."""
    (folder / "data").mkdir()
    (folder / "data/captions.json").write_text("{}")
    write_checksums(folder / "data")
    assert [main(["export", "model", "out"]) for _ in range(2)] == [0, 0]
    (folder / "out/notes.txt").write_text("mine")
    for name in ("data", "out"):
        capsys.readouterr()
        assert main(["export", "model", name]) == 2
        assert capsys.readouterr().err.startswith(f"{name}: expected only outputs of an earlier run, found ")
    assert (folder / "data/captions.json").exists()
    assert (folder / "out/notes.txt").exists()


@pytest.mark.parametrize("folder", ["blip"], indirect=True)
def test_weights_that_do_not_fit_are_reported_in_one_line(folder, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
    try:
        status = main(["export", "model", "out"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    line = capsys.readouterr().err
    assert (status, line.count("\n")) == (2, 1)
    assert line.startswith("model: transformers cannot save it (")
    assert not Path("out").exists()


@pytest.fixture
def hub(monkeypatch):
    """Yield the address of a hub on loopback, and the files and settings of the repository that the hub received."""
    from huggingface_hub import constants

    uploads = {}

    class Hub(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != "Bearer hf_right":
                self.answer(401, {"error": "Invalid credentials"})
            elif self.path == "/api/repos/create":
                uploads["repository"] = json.loads(body)
                self.answer(200, {"url": f"{address}/owner/tiny", "name": "owner/tiny"})
            elif "/preupload/" in self.path:
                files = [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for file in json.loads(body)["files"]
                ]
                self.answer(200, {"files": files})
            elif "/commit/" in self.path:
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        uploads[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                self.answer(
                    200,
                    {
                        "success": True,
                        "commitOid": 40 * "0",
                        "commitUrl": f"{address}/owner/tiny/commit/0",
                        "hookOutput": "",
                    },
                )
            else:
                self.answer(200, {"errors": [], "warnings": []})

        def do_GET(self):
            self.answer(200, {"id": "owner/tiny", "sha": 40 * "0", "siblings": []})

        def answer(self, code, content):
            data = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    yield address, uploads
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("folder", ["git"], indirect=True)
def test_an_export_is_uploaded_completely(folder, hub, capsys, monkeypatch):
    address, uploads = hub
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert main(["export", "model", "out", "--push", "owner/tiny"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("--push owner/tiny: the upload failed (")
    assert printed.err.endswith("run hf auth login, or set HF_TOKEN to a token that may write; out is complete\n")
    assert printed.err.count("\n") == 1
    assert not uploads
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert main(["export", "model", "out", "--push", "owner/tiny"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{address}/owner/tiny"
    assert uploads.pop("repository")["visibility"] == "private"
    assert uploads == {path.name: path.read_bytes() for path in Path("out").iterdir()}
    Path("other").mkdir()
    Path("other/file").touch()
    assert main(["export", "model", "other"]) == 2
    assert capsys.readouterr().err == (
        "other: expected only outputs of an earlier run, found file; give another folder, or remove file\n"
    )
