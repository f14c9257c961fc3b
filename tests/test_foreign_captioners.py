"""The folder of an untrusted model cannot run Python, ask for permission, or reach another repository."""

import ast
import builtins
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_pretrained import change_json

from pipeline.data.tokenizer_vocabulary import TokenizerVocabulary
from pipeline.errors import UserError
from pipeline.features.extract import open_network
from pipeline.features.extractor import NetworkSettings
from pipeline.models.agent_files import load_agent, save_agents
from pipeline.models.hub_captioner import HubDecoder
from pipeline.runtime import hub_loading
from pipeline.runtime.hub_loading import load_captioner, load_pretrained, read_processor

ROOT = Path(__file__).parents[1]
needs_hub = pytest.mark.skipif(find_spec("transformers") is None, reason="needs the extra: pip install 'saywhich[hub]'")
CODE = "import pathlib\npathlib.Path({!r}).touch()\n"
AUTO = {
    name: f"own.{name}"
    for name in ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoTokenizer", "VisionEncoderDecoderModel")
}


@pytest.fixture(scope="module")
def complete_captioner(tmp_path_factory) -> Path:
    from tiny_captioners import write_captioner

    folder = tmp_path_factory.mktemp("complete") / "captioner"
    write_captioner("gpt2", folder)
    return folder


@pytest.fixture
def folder(complete_captioner, tmp_path, monkeypatch) -> Iterator[Path]:
    """Yield the folder of a captioner that holds Python code; prompts and connections fail meanwhile."""
    shutil.copytree(complete_captioner, tmp_path / "captioner")
    (tmp_path / "captioner/own.py").write_text(CODE.format(str(tmp_path / "made")))
    monkeypatch.chdir(tmp_path)
    with forbid_requests(monkeypatch):
        yield tmp_path / "captioner"


@contextmanager
def forbid_requests(monkeypatch) -> Iterator[None]:
    """Fail if the block asks the user or connects, even if transformers replaces the error."""
    requests = []

    def refuse_input(*_, **__):
        requests.append("asked the user")
        raise AssertionError(requests[-1])

    def refuse_connection(_, address):
        requests.append(f"connected to {address}")
        raise AssertionError(requests[-1])

    monkeypatch.setattr(builtins, "input", refuse_input)
    monkeypatch.setattr(socket.socket, "connect", refuse_connection)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *name, **_: refuse_connection(None, name))
    yield
    assert requests == []


ENTRY_POINTS = {
    "prepare.tokenizer": lambda: TokenizerVocabulary.fetch("captioner", Path("out"), ["a ball"], 1000),
    "features.main.network": lambda: open_network(NetworkSettings("hub/captioner")),
    "pretrain.speaker.model": lambda: HubDecoder.from_hub("captioner", (5, 6), 8, 0.0, None),
}


@needs_hub
def test_image_settings_are_read_with_one_size_and_reported_where_they_are_missing(folder):
    file = folder / "preprocessor_config.json"
    change_json(file, size=24)  # older versions of transformers wrote a single number
    assert read_processor(str(folder)).side == 24
    change_json(file, size=True)
    with pytest.raises(UserError, match=r"preprocessor_config\.json: size: .*, and is true; take the model"):
        read_processor(str(folder))
    for content in ("{", None):
        file.unlink() if content is None else file.write_text(content)
        with pytest.raises(UserError, match=r"captioner: preprocessor_config\.json cannot be read .*; take the model"):
            read_processor(str(folder))


@needs_hub
def test_the_cache_is_used_where_the_hub_counts_too_many_requests(monkeypatch):
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    def make_model_info(status: int) -> Callable[..., object]:
        def model_info(*_: object, **__: object) -> object:
            response: Any = SimpleNamespace(status_code=status, headers={}, request=None)
            raise HfHubHTTPError(f"refused with {status}", response=response)

        return model_info

    monkeypatch.setattr(HfApi, "resolve_revision", lambda *_, **__: "abc")
    monkeypatch.setattr(HfApi, "model_info", make_model_info(429))
    assert hub_loading.locate_repository("owner/name") == ("abc", True)
    monkeypatch.setattr(HfApi, "model_info", make_model_info(404))
    with pytest.raises(OSError, match="refused with 404"):
        hub_loading.locate_repository("owner/name")


@needs_hub
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "preprocessor_config.json"])
def test_code_of_a_folder_is_refused_in_one_line_by_every_entry_point(folder, entry_point, file):
    change_json(folder / file, auto_map=AUTO, tokenizer_class="OwnTokenizer")
    with pytest.raises(UserError, match=rf"{file}: has auto_map, which loads code") as caught:
        ENTRY_POINTS[entry_point]()
    assert "\n" not in caught.value.args[0]
    assert not (folder.parent / "made").exists()


OTHER_REPOSITORIES = [
    {"auto_map": {"AutoModelForCausalLM": "attacker/repository--own.Model"}},
    {"backbone": "attacker/repository", "use_pretrained_backbone": True},
    {"_attn_implementation": "attacker/kernel"},
    {"quantization_config": {"quant_method": "attacker"}},
    {"model_type": "timm_wrapper", "architecture": "attacker/repository"},
]


@needs_hub
@pytest.mark.parametrize("values", OTHER_REPOSITORIES, ids=lambda values: next(iter(values)))
@pytest.mark.parametrize("part", ["decoder", "encoder"])
def test_a_part_of_another_repository_is_refused(folder, part, values):
    config = json.loads((folder / "config.json").read_text())
    change_json(folder / "config.json", **{part: config[part] | values})
    with pytest.raises(UserError, match=r"which loads code or unchecked files|must be one of") as caught:
        load_captioner("captioner")
    assert "\n" not in caught.value.args[0]


@needs_hub
def test_an_adapter_of_another_repository_is_refused(folder):
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "attacker/repository"}))
    with pytest.raises(UserError, match=r"adapter_config\.json: an adapter's model lies in another repository"):
        load_captioner("captioner")


@needs_hub
@pytest.mark.parametrize("values", OTHER_REPOSITORIES, ids=lambda values: next(iter(values)))
def test_weights_with_a_config_of_another_repository_are_refused(folder, values):
    speaker = HubDecoder.from_hub("captioner", (5, 6), 8, 0.0, None)
    save_agents(Path("weights.safetensors"), {"speaker": speaker})
    assert isinstance(load_agent(Path("weights.safetensors"), "speaker"), HubDecoder)
    original = speaker.arguments["config"]
    for config in (original | values, original | {"decoder": original["decoder"] | values}):
        speaker.arguments["config"] = config
        save_agents(Path("weights.safetensors"), {"speaker": speaker})
        with pytest.raises(
            UserError, match=r"^weights\.safetensors: its config: has [\w ]+, which loads code"
        ) as caught:
            load_agent(Path("weights.safetensors"), "speaker")
        assert "\n" not in caught.value.args[0]
    assert not (folder.parent / "made").exists()


@needs_hub
def test_a_whole_folder_loads_without_a_request(folder):
    load_captioner("captioner")
    for entry_point in ENTRY_POINTS.values():
        entry_point()


AUDIO = {"audio_tokenizer_class": "AutoModel", "audio_tokenizer_name_or_path": "elsewhere"}
UNCHECKED_REFERENCES = [
    ("processor_config.json", {"audio_tokenizer": AUDIO}, "has audio_tokenizer"),
    ("audio_tokenizer_config.json", AUDIO, "names another repository"),
    ("config.json", {"configuration_files": ["config.4.0.0.json"]}, "has configuration_files"),
    ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.4.0.0.json"]}, "has fast_tokenizer_files"),
]


@pytest.fixture
def models_folder(tmp_path, monkeypatch) -> Iterator[Path]:
    """Yield a folder of three complete models and one with Python code; prompts and connections fail meanwhile."""
    from tiny_judges import write_judge
    from tiny_pretrained import write_pretrained

    write_judge("clip", tmp_path / "clip")
    for family in ("blip", "idefics3"):
        write_pretrained(family, tmp_path / family)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/config.json").write_text(json.dumps({"model_type": "own", "auto_map": AUTO}))
    own = "from transformers import PretrainedConfig, PreTrainedModel\n"
    own += "class AutoConfig(PretrainedConfig): model_type = 'own'\nclass AutoModel(PreTrainedModel): pass\n"
    (tmp_path / "elsewhere/own.py").write_text(CODE.format(str(tmp_path / "made")) + own)
    monkeypatch.chdir(tmp_path)
    with forbid_requests(monkeypatch):
        yield tmp_path


def make_openers() -> dict[str, Callable[[], object]]:
    from saywhich.judging.hub_judge import HubJudge
    from saywhich.pretrained.pretrained_speaker import PretrainedSpeaker

    return {
        "blip": lambda: PretrainedSpeaker("blip"),
        "idefics3": lambda: open_network(NetworkSettings("hub/idefics3")),
        "clip": lambda: HubJudge("clip"),
    }


@needs_hub
@pytest.mark.parametrize("model", ["blip", "idefics3", "clip"])
@pytest.mark.parametrize(
    ("file", "values", "line"), UNCHECKED_REFERENCES, ids=[line for *_, line in UNCHECKED_REFERENCES]
)
def test_a_file_that_refers_to_unchecked_files_is_refused(models_folder, model, file, values, line):
    path = models_folder / model / file
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | values))
    with pytest.raises(UserError, match=line) as caught:
        make_openers()[model]()
    assert "\n" not in caught.value.args[0]
    assert not (models_folder / "made").exists()


@needs_hub
@pytest.mark.parametrize("elsewhere", ["elsewhere", "attacker/repository"])
def test_transformers_itself_neither_executes_nor_asks_nor_connects(models_folder, monkeypatch, elsewhere):
    """The code loader of transformers is disabled, so a reference that no check covers executes no code."""
    from transformers import dynamic_module_utils

    attributes = vars(dynamic_module_utils).copy()
    monkeypatch.setattr(hub_loading, "_check_files", lambda *_: None)
    path = models_folder / "blip/processor_config.json"
    values = json.loads(path.read_text()) if path.exists() else {}
    load_pretrained("AutoProcessor", "blip")  # without the reference, the processor loads
    path.write_text(json.dumps(values | {"audio_tokenizer": {**AUDIO, "audio_tokenizer_name_or_path": elsewhere}}))
    with pytest.raises(UserError):
        load_pretrained("AutoProcessor", "blip")
    assert not (models_folder / "made").exists()
    assert vars(dynamic_module_utils) == attributes, "transformers must be restored afterwards"


@needs_hub
def test_code_is_not_executed_even_with_permission(models_folder):
    from transformers import AutoModel

    with hub_loading.forbid_remote_code(offline=True), pytest.raises(ValueError, match="is never executed"):
        AutoModel.from_pretrained("elsewhere", trust_remote_code=True)
    assert not (models_folder / "made").exists()


@needs_hub
def test_transformers_is_as_before_after_two_threads_have_loaded():
    from huggingface_hub import constants
    from transformers import dynamic_module_utils

    before = vars(dynamic_module_utils).copy(), constants.HF_HUB_OFFLINE
    inside, main_left = threading.Event(), threading.Event()

    def load_slowly():
        with hub_loading.forbid_remote_code(offline=True):
            inside.set()
            main_left.wait(1)  # without a lock, the main thread would leave its block meanwhile

    thread = threading.Thread(target=load_slowly)
    with hub_loading.forbid_remote_code(offline=True):
        thread.start()
        inside.wait(0.3)
    main_left.set()
    thread.join()
    assert (vars(dynamic_module_utils), constants.HF_HUB_OFFLINE) == before


def test_every_call_that_may_load_code_forbids_it():
    """Every `from_pretrained` or `from_config` sets `trust_remote_code=False`.

    Every `from_pretrained` also sets `local_files_only`.
    """
    loads, checked = ("from_pretrained", "from_config"), 0
    for file in [file for package in ("pipeline", "saywhich", "stages") for file in (ROOT / package).rglob("*.py")]:
        for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if name not in loads or ast.unparse(call.func) == "nn.Embedding.from_pretrained":
                continue
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert keywords.get("trust_remote_code") == "False", f"{file}, line {call.lineno}"
            assert name == "from_config" or "local_files_only" in keywords, f"{file}, line {call.lineno}"
            checked += 1
    assert checked > 3
