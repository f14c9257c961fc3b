"""Errors of pretrained models in one line, and the sizes and licences that a preset shows before a download."""

from __future__ import annotations

import io
import json
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from saywhich_world import paint
from tiny_judges import write_judge
from tiny_pretrained import change_json, write_pretrained

from pipeline.errors import UserError
from pipeline.runtime.memory import explain_memory_error
from saywhich.cli import main
from saywhich.pretrained import memory_limits
from saywhich.pretrained.memory_limits import check_fit
from saywhich.pretrained.presets import PRESETS
from saywhich.pretrained.pretrained_speaker import _open_device


@pytest.fixture(scope="module")
def captioners(tmp_path_factory):
    """Return a folder with a tiny BLIP, GIT and Idefics3, which tests must not change."""
    top = tmp_path_factory.mktemp("whole")
    for family in ("blip", "git", "idefics3"):
        write_pretrained(family, top / family)
    return top


@pytest.fixture
def folder(captioners, tmp_path, monkeypatch):
    """Return a working folder with a photo and copies of the captioners."""
    for family in ("blip", "git", "idefics3"):
        shutil.copytree(captioners / family, tmp_path / family)
    paint(tmp_path / "a.png", 0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def run_failing_caption(capsys, *arguments):
    """Run `saywhich caption`, which must fail, and return its line on stderr."""
    assert main(["caption", "a.png", "--max-tokens", "5", *arguments]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count("\n") == 1
    return found.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--listener", "clip"], "--listener clip: ranks captions; give --among FOLDER or --score similarity"),
        (
            ["--speaker", "blip", "--listener", "clip"],
            "--listener clip: ranks captions; give --among FOLDER or --score",
        ),
        (["--speaker", "blip", "--model", "x"], "--model names a trained model, with a speaker of its own: leave out"),
        (["--speaker", "blip", "--dtype", "int8"], "--speaker blip: the precision int8 is none of float32, bfloat16"),
        (["--speaker", "blip", "--device", "toaster"], "--speaker blip: the device toaster cannot be used ("),
        (["--speaker", "blip", "--batch", "0"], "--batch 0: give 1 or more"),
        (["--speaker", "blip", "--top-p", "0.5"], "--top-p 0.5: goes with samples, not a beam; give --samples N"),
        (["--speaker", ""], "--speaker is empty: name a model, or leave the option out"),
        (["--speaker", "blip", "--among", ".", "--listener", ""], "--listener is empty: name a model, or leave"),
        (["--speaker", "./blap"], "--speaker ./blap: no such folder; give a folder, or a name of the Hugging Face"),
        (["--speaker", "blip", "--samples", "2", "--top-p", "0"], "top-p 0: give a number above 0, and at most 1"),
        (
            ["--speaker", "blip", "--samples", "2", "--temperature", "1e-40"],
            "temperature 1e-40: give a finite number of 0.000001 or more",
        ),
        (["--speaker", "blip", "--samples", "0", "--among", "."], "samples 0: give 1 or more"),
        (
            ["--speaker", "blip", "--xmp", "blip/config.json"],
            "--xmp blip/config.json: is a file; name a folder for",
        ),
        (
            ["--speaker", "idefics3", "--language", " "],
            "--speaker idefics3: --language is empty; name a language",
        ),
        (["--language", "German"], "--language German: goes with --speaker or --preset; give one of them"),
        ([], "--max-tokens 5: goes with --speaker or --preset; give one of them"),
        (
            ["--speaker", "blip", "--language", "German"],
            "--speaker blip: captioners of the kind blip generate captions i",
        ),
        (["--speaker", "git", "--prompt", "a"], "--speaker git: captioners of the kind git take no --prompt"),
        (["--speaker", "blip", "--max-tokens", "500"], "--speaker blip: it cannot generate (index out of range in"),
        (["--speaker", "blip", "--pragmatic", "1"], "--pragmatic 1: needs photos to compare with; give --among"),
        (["--speaker", "blip", "--distractors", "3"], "--distractors 3: goes with --pragmatic; give --pragmatic 1"),
        (["--posterior", "listener"], "--posterior listener: goes with --pragmatic; give --pragmatic 1"),
        (["--among", ".", "--pragmatic", "-1"], "--pragmatic -1: give a finite weight of 0 or more, such as 1"),
        (["--among", ".", "--pragmatic", "nan"], "--pragmatic nan: give a finite weight of 0 or more, such as 1"),
        (["--speaker", "blip", "--among", ".", "--listener", "no"], "--listener no: no such judge; give a folder that"),
    ],
)
def test_invalid_options(folder, capsys, arguments, line):
    assert run_failing_caption(capsys, *arguments).startswith(line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["serve", "--temperature", "0.5"], "--temperature 0.5: goes with --speaker or --preset; give one of them\n"),
        (["serve", "--listener", "clip"], "--listener clip: goes with --speaker or --preset; give one of them\n"),
        (["find", "a dog", ".", "--listener", ""], "--listener is empty: name a model, or leave the option out\n"),
    ],
)
def test_invalid_options_of_other_commands(folder, capsys, arguments, line):
    assert main(arguments) == 2
    assert capsys.readouterr().err == line


def test_a_gpu_that_cannot_be_used_is_named(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("all devices are busy")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(UserError, match=r"^the device cuda cannot be used \(all devices are busy\); give cpu or cuda$"):
        _open_device(None)


@pytest.mark.parametrize("among", [[], ["--among", ".", "--listener", "clip"]])
def test_a_photo_that_cannot_be_read_is_left_out(folder, capsys, among):
    write_judge("clip", folder / "clip")
    Path("broken.png").write_bytes(b"no photo")
    assert (
        main(["caption", "a.png", "broken.png", "--speaker", "blip", "--max-tokens", "5", "--beam", "2", *among]) == 1
    )
    found = capsys.readouterr()
    assert "broken.png: the image cannot be decoded" in found.err
    note = "note: 1 of 2 photos had no other photo to compare with; give --among more photos\n"
    assert found.err.count("\n") == 1 + bool(among)
    assert found.err.endswith(note) == bool(among)
    assert found.out.count("\n") == 1
    assert found.out.startswith("a.png\t")
    assert found.out.endswith("\t1/1\n") == bool(among)


def test_a_model_other_than_a_captioner(folder, capsys):
    Path("bert").mkdir()
    Path("bert/config.json").write_text(json.dumps({"model_type": "bert"}))
    line = (
        "--speaker bert: is of the kind bert, which is no captioner that can be used here; give one of the kinds blip"
    )
    assert run_failing_caption(capsys, "--speaker", "bert").startswith(line)


def test_a_captioner_with_code_of_its_own(folder, capsys):
    for file in ("config.json", "processor_config.json"):
        change_json(Path("idefics3", file), auto_map={"AutoProcessor": "own.Processor"})
        line = f"--speaker idefics3: idefics3/{file}: has auto_map, which loads code or unchecked files"
        assert run_failing_caption(capsys, "--speaker", "idefics3").startswith(line)
        shutil.rmtree("idefics3")
        shutil.copytree("blip", "idefics3")


def test_a_part_that_timm_would_fetch(folder, capsys):
    config = json.loads(Path("idefics3/config.json").read_text())
    part = config["vision_config"] | {"model_type": "timm_wrapper", "architecture": "hf-hub:attacker/repository"}
    change_json(Path("idefics3/config.json"), vision_config=part)
    line = "has model_type timm_wrapper, which loads code or unchecked files; give another model"
    assert line in run_failing_caption(capsys, "--speaker", "idefics3")


def test_a_chat_model_without_a_template(folder, capsys):
    Path("idefics3/chat_template.jinja").unlink()
    line = run_failing_caption(capsys, "--speaker", "idefics3")
    assert line.startswith("--speaker idefics3: it has no chat template, so it is no")


def test_a_processor_of_another_model(folder, capsys):
    settings = json.loads(Path("blip/processor_config.json").read_text())
    settings["image_processor"]["size"] = {"height": 24, "width": 24}
    change_json(Path("blip/processor_config.json"), **settings)
    line = run_failing_caption(capsys, "--speaker", "blip")
    assert line.startswith("--speaker blip: it cannot generate (The size of tensor a (10) must match the size of")
    assert "its processor's files may not be those of its model" in line
    tokenizer = json.loads(Path("git/tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {f"more{number}": 100 + number for number in range(50)}
    change_json(Path("git/tokenizer.json"), model=tokenizer["model"])
    assert "tokens and its model embeds 21: the processor's files do not belong to the model" in run_failing_caption(
        capsys, "--speaker", "git"
    )


def test_bad_values_in_a_model_s_files(folder, capsys):
    settings = json.loads(Path("idefics3/processor_config.json").read_text())
    settings["image_processor"]["max_image_size"] = {"longest_edge": 0}
    change_json(Path("idefics3/processor_config.json"), **settings)
    assert "--speaker idefics3: it cannot generate (division by zero" in run_failing_caption(
        capsys, "--speaker", "idefics3"
    )
    config = json.loads(Path("blip/config.json").read_text())
    change_json(Path("blip/config.json"), text_config=config["text_config"] | {"num_hidden_layers": 10**6})
    assert "has num_hidden_layers 1,000,000, expected at most 1,000;" in run_failing_caption(
        capsys, "--speaker", "blip"
    )
    config = json.loads(Path("git/config.json").read_text())
    change_json(Path("git/config.json"), **{"num_attention_heads": 0, "vision_config": config["vision_config"]})
    assert "--speaker git: its config describes no complete model (" in run_failing_caption(capsys, "--speaker", "git")


def test_weights_that_are_missing(folder, capsys):
    Path("blip/model.safetensors").unlink()
    line = "--speaker blip: this folder holds no complete model of transformers ("
    assert run_failing_caption(capsys, "--speaker", "blip").startswith(line)


def test_too_little_memory(folder, capsys, monkeypatch):
    monkeypatch.setattr(memory_limits, "read_available_memory", lambda device: 1000)
    line = run_failing_caption(capsys, "--speaker", "blip")
    assert line.startswith("--speaker blip: its weights need 0.0 GB as float32, and cpu has 0.0 GB free; give --dtype")
    with torch.device("meta"):
        check_fit(torch.nn.Linear(9, 50, bias=False), torch.bfloat16, torch.device("cpu"))  # 900 bytes
        with pytest.raises(UserError):
            check_fit(torch.nn.Linear(9, 50, bias=False), torch.float32, torch.device("cpu"))
    with (
        pytest.raises(UserError, match=r"^a batch: too little memory; give less$"),
        explain_memory_error("a batch", "give less"),
    ):
        torch.empty(2**60)
    with pytest.raises(RuntimeError, match="another"), explain_memory_error("a batch", "give less"):
        raise RuntimeError("another")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Yield a function that stops a hub on loopback, and the requests that the hub received.

    Repositories with `secret` in their names are gated. For the owner `down` the hub answers that it is unavailable.
    """
    from huggingface_hub import constants

    requests = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(f"{self.command} {self.path}")
            gated = "secret" in self.path
            self.send_response(401 if gated else 503 if "/down/" in self.path else 404)
            self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in (
        ("ENDPOINT", address),
        ("HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"),
        ("HF_HUB_CACHE", str(tmp_path / "hub")),
    ):
        monkeypatch.setattr(constants, name, value)

    def stop():
        server.shutdown()
        server.server_close()
        thread.join()

    yield stop, requests
    stop()


def test_a_gated_model(folder, hub, capsys):
    assert run_failing_caption(capsys, "--speaker", "hub/owner/secret") == (
        "--speaker hub/owner/secret: its publisher asks who downloads it; accept the terms at "
        "https://huggingface.co/owner/secret, then run hf auth login, or set HF_TOKEN\n"
    )


def test_an_unknown_name_with_and_without_a_network(folder, hub, capsys, monkeypatch):
    line = "--speaker hub/owner/nothing: no AutoConfig in a folder of this name, in the hub's cache or on the hub ("
    assert run_failing_caption(capsys, "--speaker", "hub/owner/nothing").startswith(f"{line}404")
    hub[0]()
    connections, connect = [], socket.create_connection

    def record_connection(address, *arguments, **options):
        connections.append(address)
        return connect(address, *arguments, **options)

    monkeypatch.setattr(socket, "create_connection", record_connection)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    assert run_failing_caption(capsys, "--speaker", "hub/owner/nothing").startswith(f"{line}[Errno 111]")
    assert 0 < len(connections) < 7, "expected the attempts of one request, not of a request for each file"


@pytest.mark.parametrize("offline", [False, True])
def test_a_cached_model_is_loaded_while_the_hub_is_unavailable(folder, hub, capsys, offline):
    cached = Path("hub/models--down--git")
    (cached / "refs").mkdir(parents=True)
    (cached / "refs/main").write_text("0" * 40)
    shutil.copytree(
        "git", cached / "snapshots" / ("0" * 40)
    )  # the cache does not record which files the repository lacks
    stop, requests = hub
    if offline:
        stop()
    assert main(["caption", "a.png", "--speaker", "hub/down/git", "--max-tokens", "5"]) == 0
    found = capsys.readouterr()
    assert found.out.startswith("a.png\t")
    assert found.err == ""
    assert set(requests) == (set() if offline else {"GET /api/models/down/git"})


def test_weights_of_open_clip_without_a_network(folder, hub, capsys):
    hub[0]()
    line = run_failing_caption(capsys, "--speaker", "git", "--among", ".")
    assert line.startswith("--listener open_clip/ViT-B-32.openai: its weights are not on this machine and cannot be")


def test_a_preset_shows_sizes_and_licences_before_it_downloads(folder, hub, capsys):
    assert main(["caption", "a.png", "--preset", "small"]) == 2
    question, refusal = capsys.readouterr().err.splitlines()
    assert question == "to download: microsoft/git-base-coco (about 0.7 GB, MIT); go on? [y/N] "
    assert refusal == "nothing was downloaded, since standard input is no terminal: give --yes to download"
    assert main(["caption", "a.png", "--preset", "small", "--among", ".", "--yes"]) == 2
    notice, error = capsys.readouterr().err.splitlines()
    clip = "timm/vit_base_patch32_clip_224.openai (about 0.6 GB, MIT)"
    assert notice == f"to download: microsoft/git-base-coco (about 0.7 GB, MIT), {clip}"
    assert error.startswith("--listener open_clip/ViT-B-32.openai: its weights are not on this machine and cannot be")


class Terminal(io.StringIO):
    """A terminal with the given input; an empty input stands for Ctrl-D."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (Terminal(""), "nothing was downloaded: answer y to download, or give --yes"),
        (Terminal("no\n"), "nothing was downloaded: answer y to download, or give --yes"),
        (None, "nothing was downloaded, since standard input is no terminal: give --yes to download"),
    ],
)
def test_nothing_is_downloaded_without_consent(folder, hub, capsys, monkeypatch, stdin, message):
    monkeypatch.setattr("sys.stdin", stdin)
    assert main(["caption", "a.png", "--preset", "small"]) == 2
    assert capsys.readouterr().err.endswith(f"{message}\n")
    assert not hub[1]


def test_a_preset_in_the_cache_is_not_asked_about(folder, hub, capsys):
    cached = Path("hub/models--microsoft--git-base-coco/snapshots/0123")
    cached.mkdir(parents=True)
    (cached / "model.safetensors").touch()
    assert PRESETS["small"].speaker.is_cached
    assert run_failing_caption(capsys, "--preset", "small").startswith(
        "--speaker hub/microsoft/git-base-coco: no AutoConfig in a"
    )
