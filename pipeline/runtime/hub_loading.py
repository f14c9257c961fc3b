"""Captioners, dual encoders and tokenizers of transformers, by their name on the Hugging Face hub or from a folder.

No code from a model's folder or repository is executed. The JSON files that select the loaded classes and weights
are checked first. A file that names code, another file of settings or another repository is refused before transformers
reads it. While transformers loads, its function that loads such code is disabled, too: transformers loads some parts of
a model without `trust_remote_code=False`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as shorten
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import BeforeValidator, Field

from pipeline.errors import UserError, summarise_error
from pipeline.ranges import Channels, Pixels
from pipeline.runtime.memory import is_memory_error
from pipeline.runtime.records import Record, parse_record, read_bytes, read_json
from pipeline.runtime.torchvision_cpu import declare_operators

CAPTIONERS = {
    "blip": "BlipForConditionalGeneration",
    "blip-2": "Blip2ForConditionalGeneration",
    "florence2": "Florence2ForConditionalGeneration",
    "git": "GitForCausalLM",
    "idefics3": "Idefics3ForConditionalGeneration",  # SmolVLM's first generation, too
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "smolvlm": "SmolVLMForConditionalGeneration",  # SmolVLM2
    "vision-encoder-decoder": "VisionEncoderDecoderModel",
}
DUAL_ENCODERS = {"clip": "CLIPModel", "siglip": "SiglipModel", "siglip2": "Siglip2Model"}
# parts of a VisionEncoderDecoderModel: decoders that attend to regions, and encoders; none fetches another model
DECODERS = frozenset(
    (
        *("bart", "bert", "bert-generation", "big_bird", "biogpt", "blenderbot", "camembert", "data2vec-text"),
        *("electra", "ernie", "gpt2", "marian", "mbart", "megatron-bert", "opt", "pegasus", "prophetnet", "rembert"),
        *("roberta", "roformer", "trocr", "xlm-roberta", "xmod"),
    )
)
ENCODERS = frozenset(
    (
        *("beit", "clip_vision_model", "data2vec-vision", "deit", "dinov2", "donut-swin"),
        *("siglip_vision_model", "swin", "swinv2", "vit", "vit_mae", "vit_msn"),
    )
)
CONFIGS = (
    *("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json"),
    *("generation_config.json", "video_preprocessor_config.json"),
)
MAX_CONFIG_BYTES = 16 * 2**20  # bytes of one of CONFIGS
TOKENIZERS = ("tokenizer.json", "vocab.json", "added_tokens.json")
MAX_TOKENIZER_BYTES = 2**28  # bytes of one of TOKENIZERS
# a token's number, or a length, that a tokenizer would reserve memory for: no model has ten million tokens
HUGE_NUMBER = re.compile(rb'[^\\]"\s*:\s*([0-9]{8,})')
# files that name another repository, and the error for each
REFERENCES = {
    "adapter_config.json": "an adapter's model lies in another repository; give the model with the adapter merged",
    "audio_tokenizer_config.json": "it names another repository, of an audio tokenizer; remove the file",
}
REMEDY = "take the model from its publisher"
# keys that make transformers run code, or open another repository or a file that is not checked here
REMOTE_KEYS = frozenset(
    (
        *("auto_map", "custom_pipelines", "quantization_config", "transformers_weights", "per_layer_config"),
        *("backbone", "backbone_kwargs", "use_pretrained_backbone", "use_timm_backbone", "base_model_name_or_path"),
        *("audio_tokenizer", "configuration_files", "fast_tokenizer_files"),
    )
)
IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")  # these may load kernels from the hub
# keys of numbers that set the time to build a network or the size of an image, and their largest values
MAX_PIXELS = 2**25
BOUNDS = (
    (re.compile(r"(.*_)?(layers?|depths?|blocks|stages)"), 1_000),
    (re.compile(r"(max_)?(height|width|shortest_edge|longest_edge)|image_size"), 4_096),
    (re.compile(r"(min|max)_pixels|max_num_patches|.*image_seq_len(gth)?"), MAX_PIXELS),
)
EDGES = ("shortest_edge", "longest_edge")
AREA_FAMILIES = ("Qwen", "Glm", "VideoLlama3", "PaddleOCR", "Ernie", "Keye")  # models whose "edges" are areas in pixels
LOADING = threading.RLock()  # held while functions of transformers are replaced
TIMM = ("timm_backbone", "timm_wrapper")  # timm opens the repository that such a part names


def import_transformers() -> Any:
    """Import transformers, a package of the extra `hub`. Raises UserError where transformers is not installed."""
    try:
        import transformers
    except ImportError:
        raise UserError(
            "models of the Hugging Face hub need transformers, which is not installed: pip install 'saywhich[hub]'"
        ) from None
    declare_operators()  # its models import torchvision
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # its warnings, such as of missing tokens, do not concern users
    return transformers


def load_pretrained(kind: str, name: str, **options: Any) -> Any:
    """Load `name`, a folder or a repository of the hub, as the class `kind` of transformers.

    No code of the model is executed, and nothing is fetched for a local folder. Raises UserError where the files cannot
    be found or loaded, and where `check_config` or `_check_files` refuses them. Exhausted memory raises its own error.
    """
    loader, local = getattr(import_transformers(), kind), Path(name).is_dir()
    if not local and (name.count("/") > 1 or name.startswith(("/", ".", "~"))):
        raise UserError(f"{name}: no such folder; give a folder, or a name of the Hugging Face hub, OWNER/NAME")
    try:
        commit, cached = (None, True) if local else locate_repository(name)
        _check_files(name, local, commit, cached)
        options = options if commit is None else {"revision": commit, **options}
        fault = f"{name}: its files are not a complete {kind}"
        with explain_load_errors(fault, (OSError, ValueError, KeyError)), forbid_remote_code(offline=cached):
            return loader.from_pretrained(name, local_files_only=cached, trust_remote_code=False, **options)
    except UserError:
        raise
    except (OSError, ValueError, KeyError) as error:
        if type(error.__cause__).__name__ == "GatedRepoError":
            raise UserError(
                f"{name}: its publisher asks who downloads it; accept the terms at https://huggingface.co/{name}, then "
                "run hf auth login, or set HF_TOKEN"
            ) from None
        if local:
            raise UserError(
                f"{name}: this folder holds no complete model of transformers ({summarise_error(error)}); give "
                "another folder"
            ) from None
        raise UserError(
            f"{name}: no {kind} in a folder of this name, in the hub's cache or on the hub ({summarise_error(error)}); "
            f"correct the name, or run hf download {name} --local-dir FOLDER on a machine with internet access, put "
            "the folder on this machine and give its path instead of the name"
        ) from None


@contextmanager
def forbid_remote_code(offline: bool) -> Iterator[None]:
    """Prevent transformers from running a model's Python code and, if `offline`, from using the network.

    transformers loads parts of a model, such as the tokenizer of a processor, without the arguments
    `trust_remote_code` and `local_files_only`. A model with code raises ValueError; the user is not asked. Only one
    thread at a time enters the block, because the change applies to the whole process.
    """
    from huggingface_hub import constants
    from transformers import dynamic_module_utils

    dynamic: Any = dynamic_module_utils

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("it contains Python code, which is never executed")

    with LOADING:
        originals = dynamic.get_class_in_module, dynamic.TIME_OUT_REMOTE_CODE, constants.HF_HUB_OFFLINE
        # with no time to answer, transformers raises an error and asks nothing
        dynamic.get_class_in_module, dynamic.TIME_OUT_REMOTE_CODE = refuse, 0
        constants.HF_HUB_OFFLINE = originals[2] or offline
        try:
            yield
        finally:
            dynamic.get_class_in_module, dynamic.TIME_OUT_REMOTE_CODE, constants.HF_HUB_OFFLINE = originals


@contextmanager
def explain_load_errors(fault: str, exempt: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raise UserError with `fault` for any error of a library that reads a model's files.

    Bad values raise errors of any type. ImportError, exhausted memory and the error types `exempt` pass.
    """
    try:
        yield
    except BaseException as error:
        panic = type(error).__name__ == "PanicException"  # raised by a library in Rust; it is no subclass of Exception
        passes = isinstance(error, (UserError, ImportError, *exempt)) or is_memory_error(error)
        if passes or not (panic or isinstance(error, Exception)):
            raise
        raise UserError(f"{fault} ({summarise_error(error)}); {REMEDY}") from None


def load_captioner(name: str) -> Any:
    """Load the captioner `name` in evaluation mode and float32.

    Raises UserError for another kind or missing weights, and as `load_pretrained` does.
    """
    kind = load_pretrained("AutoConfig", name).model_type
    if kind not in CAPTIONERS:
        raise UserError(f"{name}: expected a captioner ({', '.join(CAPTIONERS)}), found the kind {kind}; give one")
    model, missing = load_weights(CAPTIONERS[kind], name, optional="pooler")
    model.has_pooler = not missing  # an untrained pooler gives no useful feature
    return model


def load_dual_encoder(name: str) -> Any:
    """Load the dual encoder `name` in evaluation mode and float32.

    Raises UserError for another kind or missing weights, and as `load_pretrained` does.
    """
    kind = load_pretrained("AutoConfig", name).model_type
    if kind not in DUAL_ENCODERS:
        raise UserError(
            f"{name}: expected a dual encoder ({', '.join(DUAL_ENCODERS)}), found the kind {kind}; give one"
        )
    return load_weights(DUAL_ENCODERS[kind], name)[0]


def load_weights(kind: str, name: str, dtype: str = "float32", optional: str | None = None) -> tuple[Any, list[str]]:
    """Load `name` as the class `kind` of transformers in evaluation mode, from safetensors.

    Also return the names of missing weights, which contain `optional`. Raises UserError for other missing weights, and
    as `load_pretrained` does.
    """
    model, report = load_pretrained(kind, name, dtype=dtype, output_loading_info=True, use_safetensors=True)
    missing = sorted(report["missing_keys"])
    if required := [key for key in missing if optional is None or optional not in key]:
        raise UserError(f"{name}: its weights lack {required[0]}; give a complete model")
    return model.eval(), missing


def _convert_to_sides(size: Any) -> Any:
    """Convert a single number, which older versions of transformers wrote, to the sides of a square."""
    return {"height": size, "width": size} if type(size) is int else size


class ImageProcessor(Record):
    """Settings of a captioner's image processor that preprocessing uses."""

    size: Annotated[dict[str, Pixels], Field(min_length=1), BeforeValidator(_convert_to_sides)]
    image_mean: Channels
    image_std: Channels
    resample: Annotated[int, Ge(0), Le(5)] = 3  # number of Pillow's filter

    @property
    def side(self) -> int:
        """Return the side of the square that images are resized to, in pixels."""
        return min(self.size.values())


def read_processor(name: str) -> ImageProcessor:
    """Read the image processor's settings of the captioner `name`. Raises UserError where its files lack them."""
    import_transformers()
    from transformers.image_processing_base import ImageProcessingMixin

    try:
        commit, cached = (None, True) if Path(name).is_dir() else locate_repository(name)
        settings, _ = ImageProcessingMixin.get_image_processor_dict(name, revision=commit, local_files_only=cached)
    except OSError as error:
        raise UserError(
            f"{name}: preprocessor_config.json cannot be read ({summarise_error(error)}); {REMEDY}"
        ) from None
    used = {key: settings[key] for key in ImageProcessor.model_fields if key in settings}
    return parse_record(used, ImageProcessor, f"{name}, preprocessor_config.json", REMEDY)


def check_config(config: Any, source: str) -> None:
    """Raise UserError for a config that names code, another repository, or a part not in ENCODERS or DECODERS.

    Raises UserError, too, for sizes beyond BOUNDS, which would take hours or all memory.
    """
    for key, value in _iterate_pairs(config):
        for pattern, limit in BOUNDS:
            if not pattern.fullmatch(key):
                continue
            bound = _find_upper_bound(config, key, limit)
            if large := [number for number in _list_integers(value) if number > bound]:
                raise UserError(f"{source}: has {key} {large[0]:,}, expected at most {bound:,}; {REMEDY}")
        from_hub = key.strip("_").startswith(IMPLEMENTATIONS) and value not in (None, False, True, "eager", "sdpa")
        from_timm = key == "model_type" and value in TIMM
        if from_hub or from_timm or (value and key in REMOTE_KEYS):
            if from_timm:
                raise UserError(f"{source}: has {key} {value}, which loads code or unchecked files; give another model")
            raise UserError(
                f"{source}: has {key}, which loads code or unchecked files; {REMEDY}, or "
                f"remove {key} if the model works without it"
            )
    if isinstance(config, dict) and config.get("model_type") == "vision-encoder-decoder":
        for part, known in (("encoder", ENCODERS), ("decoder", DECODERS)):
            inner = config.get(part)
            kind = inner.get("model_type") if isinstance(inner, dict) else None
            if not isinstance(kind, str) or kind not in known:
                raise UserError(
                    f"{source}: the {part} must be one of {', '.join(sorted(known))}, and is {shorten(kind)}; give "
                    "another model"
                )


def locate_repository(name: str) -> tuple[str, bool]:
    """Return the commit of the repository `name`, for all its files, and whether it comes from the hub's cache.

    Only one request is sent, since a request to an unreachable hub takes half a minute. Raises OSError where the
    hub has no such repository, and where neither the hub nor its cache can be read.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return str(HfApi().model_info(name).sha), False
    except Exception as error:  # any error of the hub's client or its transport
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else 500
        if status < 500 and status != 429:  # the hub has answered; 429: too many requests
            raise OSError(summarise_error(error)) from error
        try:
            return str(HfApi().resolve_revision(name, local_files_only=True)), True
        except Exception:
            raise OSError(summarise_error(error)) from error


def _check_files(name: str, local: bool, commit: str | None, cached: bool) -> None:
    """Check every JSON file that decides which classes and weights transformers loads, and the numbers in TOKENIZERS.

    Raises UserError for a file of REFERENCES, for a huge number in TOKENIZERS, and as `check_config` does.
    """
    from transformers.utils import cached_file

    for file in (*CONFIGS, *REFERENCES, *TOKENIZERS):
        options: dict[str, Any] = {"revision": commit, "local_files_only": cached}
        options["_raise_exceptions_for_missing_entries"] = False
        path = Path(name, file) if local else cached_file(name, file, **options)
        if path is None or (local and not Path(path).exists()):
            continue
        if file in REFERENCES:
            raise UserError(f"{path}: {REFERENCES[file]}")
        if file in TOKENIZERS:
            if match := HUGE_NUMBER.search(read_bytes(Path(path), REMEDY, MAX_TOKENIZER_BYTES)):
                raise UserError(
                    f"{path}: has the number {match[1].decode():.20}, expected numbers below 10,000,000; {REMEDY}"
                )
        else:
            check_config(read_json(Path(path), REMEDY, MAX_CONFIG_BYTES), f"{path}")


def _find_upper_bound(config: Any, key: str, limit: int) -> int:
    """Return the largest value that `key` may have: `limit`, or MAX_PIXELS where a processor gives areas as edges."""
    kinds = [
        value for name, value in _iterate_pairs(config) if name in ("image_processor_type", "video_processor_type")
    ]
    areas = any(isinstance(kind, str) and kind.startswith(AREA_FAMILIES) for kind in kinds)
    return MAX_PIXELS if areas and key in EDGES else limit


def _list_integers(value: Any) -> list[int]:
    return [item for item in (value if isinstance(value, list) else [value]) if type(item) is int]


def _iterate_pairs(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield all keys and values at any depth; `read_json` has bounded the depth."""
    values: Iterable[Any] = config if isinstance(config, list) else ()
    if isinstance(config, dict):
        yield from config.items()
        values = config.values()
    for value in values:
        yield from _iterate_pairs(value)
