"""An untrusted captioner's folder cannot run Python, ask whether it may, or reach another repository."""

import ast
import builtins
import json
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest

from pipeline.data.tokenizer_vocabulary import TokenizerVocabulary
from pipeline.errors import UserError
from pipeline.features.extract import open_network
from pipeline.features.extractor import NetworkSettings
from pipeline.models.agent_files import load_agent, save_agents
from pipeline.models.hub_captioner import HubDecoder
from pipeline.runtime.hub_loading import load_captioner

ROOT = Path(__file__).parents[1]
extra = pytest.mark.skipif(find_spec("transformers") is None, reason="needs the extra: pip install 'saywhich[hub]'")
CODE = "import pathlib\npathlib.Path({!r}).touch()\n"
AUTO = {
    name: f"own.{name}"
    for name in ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoTokenizer", "VisionEncoderDecoderModel")
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    from tiny_captioners import write_captioner

    folder = tmp_path_factory.mktemp("whole") / "captioner"
    write_captioner("gpt2", folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path, monkeypatch) -> Path:
    """A captioner that holds Python, where neither a question nor a connection is possible."""
    import shutil

    shutil.copytree(whole, tmp_path / "captioner")
    (tmp_path / "captioner/own.py").write_text(CODE.format(str(tmp_path / "made")))
    forbid(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "captioner"


def forbid(monkeypatch) -> None:
    def asked(*_, **__):
        raise AssertionError("it asked the user")

    def connected(_, address):
        raise AssertionError(f"it connected to {address}")

    monkeypatch.setattr(builtins, "input", asked)
    monkeypatch.setattr(socket.socket, "connect", connected)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *name, **_: connected(None, name))


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


WAYS = {
    "prepare.tokenizer": lambda: TokenizerVocabulary.fetch("captioner", Path("out"), ["a ball"], 1000),
    "features.main.network": lambda: open_network(NetworkSettings("hub/captioner")),
    "pretrain.speaker.model": lambda: HubDecoder.pretrained("captioner", (5, 6), 8, 0.0, None),
}


@extra
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "preprocessor_config.json"])
def test_code_of_a_folder_is_refused_in_one_line_by_every_entry_point(folder, way, file):
    change(folder / file, auto_map=AUTO, tokenizer_class="OwnTokenizer")
    with pytest.raises(UserError, match=rf"{file}: has auto_map, by which code") as caught:
        WAYS[way]()
    assert "\n" not in str(caught.value)
    assert not (folder.parent / "made").exists()


ELSEWHERE = [
    {"auto_map": {"AutoModelForCausalLM": "attacker/repository--own.Model"}},
    {"backbone": "attacker/repository", "use_pretrained_backbone": True},
    {"_attn_implementation": "attacker/kernel"},
    {"quantization_config": {"quant_method": "attacker"}},
    {"model_type": "timm_wrapper", "architecture": "attacker/repository"},
]


@extra
@pytest.mark.parametrize("values", ELSEWHERE, ids=lambda values: next(iter(values)))
@pytest.mark.parametrize("part", ["decoder", "encoder"])
def test_a_part_of_another_repository_is_refused(folder, part, values):
    config = json.loads((folder / "config.json").read_text())
    change(folder / "config.json", **{part: config[part] | values})
    with pytest.raises(UserError, match=r"by which code or another repository|must be one of") as caught:
        load_captioner("captioner")
    assert "\n" not in str(caught.value)


@extra
def test_an_adapter_of_another_repository_is_refused(folder):
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "attacker/repository"}))
    with pytest.raises(UserError, match=r"adapter_config\.json: an adapter's model lies in another repository"):
        load_captioner("captioner")


@extra
@pytest.mark.parametrize("values", ELSEWHERE, ids=lambda values: next(iter(values)))
def test_weights_with_a_config_of_another_repository_are_refused(folder, values):
    speaker = HubDecoder.pretrained("captioner", (5, 6), 8, 0.0, None)
    save_agents(Path("weights.safetensors"), {"speaker": speaker})
    assert isinstance(load_agent(Path("weights.safetensors"), "speaker"), HubDecoder)
    for config in (speaker.arguments["config"], speaker.arguments["config"]["decoder"]):
        config |= values
        save_agents(Path("weights.safetensors"), {"speaker": speaker})
        with pytest.raises(UserError, match=r"^weights\.safetensors: ") as caught:
            load_agent(Path("weights.safetensors"), "speaker")
        assert "\n" not in str(caught.value)
    assert not (folder.parent / "made").exists()


@extra
def test_a_whole_folder_loads_without_a_request(folder):
    load_captioner("captioner")
    for way in WAYS.values():
        way()


def test_no_call_sets_trust_remote_code():
    """Every call that may load code says so, and only one module makes such calls by a name from outside."""
    loads = ("from_pretrained", "from_config")
    for file in [file for room in ("pipeline", "saywhich", "stages") for file in (ROOT / room).rglob("*.py")]:
        for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if name not in loads or ast.unparse(call.func) == "nn.Embedding.from_pretrained":
                continue
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert given.get("trust_remote_code") == "False", f"{file}, line {call.lineno}"
            assert name == "from_config" or "local_files_only" in given, f"{file}, line {call.lineno}"
