"""Files of trained agents: safetensors with the constructor arguments of the networks; nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import torch
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from safetensors.torch import save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pipeline.errors import UserError, summarise_error
from pipeline.models.architectures import ARCHITECTURES
from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.critic import ControlVariates, Critic
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.guided import GuidedDecoder
from pipeline.models.hub_captioner import HubDecoder
from pipeline.models.hub_dual_encoder import HubDualEncoder
from pipeline.models.listener import Listener
from pipeline.runtime.checksums import HISTORY, INPUTS, MAX_HEADER, ZERO_DIGEST, check_history
from pipeline.runtime.files import compute_sha256, write_atomically
from pipeline.runtime.memory import is_memory_error
from pipeline.runtime.records import Line, Record, describe_first_problem, parse_json, parse_record
from pipeline.runtime.tensors import read_tensors
from pipeline.runtime.untrusted import require_plain_file

Agent = nn.Module  # with the attribute `arguments`, the constructor's arguments as JSON values
SPEAKERS: tuple[type[Agent], ...] = (
    *(each.load() for each in ARCHITECTURES.values()),
    HubDecoder,
    GuidedDecoder,
)
OTHER_NETWORKS: tuple[type[Agent], ...] = (
    Listener,
    DualEncoder,
    HubDualEncoder,
    CaptionClassifier,
    Critic,
    ControlVariates,
)
REMEDY = "run its stage again"
MAX_SIZE, MAX_ENTRIES = 2**24, 4096  # limits on numeric arguments and on entries of a list
MAX_LAYERS, MAX_WORDS = 1000, 1000  # as in params.yaml
LAYERS = frozenset(
    (
        *("layers", "encoder_layers", "decoder_layers", "n_layer", "num_hidden_layers", "num_layers"),
        *("num_encoder_layers", "num_decoder_layers"),
    )
)
KINDS: dict[str, type[Agent]] = {kind.__name__: kind for kind in (*SPEAKERS, *OTHER_NETWORKS)}


def save_agents(
    path: Path, agents: Mapping[str, Agent], history: Path | None = None, data: Mapping[str, str] | None = None
) -> None:
    """Write the parameters and constructor arguments of `agents`, by name; an interruption keeps the earlier file.

    The header stores the digest of `history`, the training record beside `path`, and the digests `data` of
    `checksums.compute_data_digests`. They reveal later changes of these files.
    """
    tensors: dict[str, Tensor] = {}
    for prefix, agent in agents.items():
        for name, value in agent.state_dict().items():
            tensors[f"{prefix}.{name}"] = value.cpu().contiguous()
    specs = {name: {"kind": type(agent).__name__, "arguments": agent.arguments} for name, agent in agents.items()}
    header: dict[str, Any] = {"sha256": ZERO_DIGEST}
    header |= {} if history is None else {HISTORY: [history.name, compute_sha256(history)]}
    header |= {} if data is None else {INPUTS: dict(data)}
    # one entry of metadata: the order of several entries is not fixed
    content = save(tensors, metadata={"agents": json.dumps({**header, **specs})})
    write_atomically(path, content.replace(ZERO_DIGEST.encode(), hashlib.sha256(content).hexdigest().encode(), 1))


def load_agent(
    path: Path, name: str, kinds: Collection[str] | None = None, known: Mapping[str, type[Agent]] = KINDS
) -> Agent:
    """Load the agent that `save_agents` wrote as `name`, on the CPU, in evaluation mode.

    `known` are the classes that the file may name, and `kinds` the classes permitted for this agent (None: all).
    Arguments are checked against their types, and tensors against the resulting shapes, before the network's memory is
    allocated. Raises UserError where the file is missing or damaged, and where memory is exhausted. Raises UserError,
    too, where the agent is missing, of another class or of another version of its class. Raises UserError, too, where
    the history beside the file belongs to another training.
    """
    check_file_digest(path)
    metadata, tensors = read_tensors(path, REMEDY, f"{name}.")
    specs = read_agents(path, metadata)
    if name not in specs:
        raise UserError(f"{path}: holds no {name}, only {', '.join(specs) or 'tensors without an agent'}; {REMEDY}")
    check_history(path)
    permitted = known if kinds is None else kinds
    if (kind := specs[name].kind) not in permitted:
        raise UserError(f"{path}: {name} is a {kind}, and must be one of {', '.join(permitted)}; {REMEDY}")
    try:
        with torch.device("meta"), _SkipInitialisation():
            expected = {key: tuple(value.shape) for key, value in _build_agent(specs[name], known).state_dict().items()}
        _compare_shapes(expected, {key: tuple(value.shape) for key, value in tensors.items()})
        agent = _build_agent(specs[name], known)
        agent.load_state_dict(tensors)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # PyTorch and the networks' libraries raise many types of errors
        if is_memory_error(error):
            raise UserError(f"{path}: too little memory to load {name}; end other programs, or add memory") from None
        detail = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path}: {name} is of another version of this model ({detail}); {REMEDY}") from None
    return agent.eval()


class _SkipInitialisation(TorchFunctionMode):
    """Mode that skips `nn.init.normal_`, which imports torch._dynamo on the meta device and takes 2 seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        return options["tensor"] if func is nn.init.normal_ else func(*args, **options)


class AgentSpec(Record):
    """Specification of an agent: its class and constructor arguments."""

    kind: Line
    arguments: dict[str, Any]


def read_agents(path: Path, metadata: Mapping[str, str]) -> dict[str, AgentSpec]:
    """Return the specifications of a file's agents, by name; {} where its metadata have no entry for agents.

    Raises UserError where that entry is damaged.
    """
    header = parse_json(metadata.get("agents", "{}"), str(path), REMEDY)
    if not isinstance(header, dict):
        raise UserError(f"{path}: the header names no agents; {REMEDY}")
    specs = {name: value for name, value in header.items() if name not in ("sha256", HISTORY, INPUTS)}
    return {name: parse_record(value, AgentSpec, f"{path}, {name}", REMEDY) for name, value in specs.items()}


def check_file_digest(path: Path) -> None:
    """Check a weights file against the SHA-256 in its header, computed with zeros in place of that digest.

    Raises UserError where the file is missing, unreadable or damaged.
    """
    try:
        with open(require_plain_file(path), "rb") as file:
            head = file.read(8)
            head += file.read(min(int.from_bytes(head, "little"), MAX_HEADER))
            recorded = re.search(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"', head)
            digest = hashlib.sha256(head.replace(recorded[1], ZERO_DIGEST.encode(), 1) if recorded else head)
            while part := file.read(1 << 20):
                digest.update(part)
    except FileNotFoundError:
        raise UserError(f"{path}: no such weights; run the stage that trains them first") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({summarise_error(error)}); {REMEDY}") from None
    if recorded is None or digest.hexdigest().encode() != recorded[1]:
        raise UserError(f"{path}: not a complete weights file: its SHA-256 is not the recorded SHA-256; {REMEDY}")


def _build_agent(spec: AgentSpec, known: Mapping[str, type[Agent]]) -> Agent:
    """Build an agent from its class and arguments; an argument may be the specification of another agent.

    Raises UserError for an unknown class and for invalid arguments.
    """
    if spec.kind not in known:
        raise UserError(f"unknown class of agent {spec.kind}; expected one of {', '.join(known)}; {REMEDY}")
    arguments = dict(spec.arguments)
    for name, value in arguments.items():
        if isinstance(value, dict) and value.keys() == AgentSpec.model_fields.keys():
            arguments[name] = _build_agent(AgentSpec(**value), known)
    _check_limits(arguments, spec.kind)
    kind: type = known[spec.kind]
    try:
        _create_argument_model(kind).model_validate(arguments)
    except ValidationError as error:
        raise UserError(f"invalid arguments of {spec.kind}: {describe_first_problem(error)}; {REMEDY}") from None
    return known[spec.kind](**arguments)


@cache
def _create_argument_model(kind: type) -> type[BaseModel]:
    """Create a pydantic model of a class's arguments, from its constructor and the base constructors that it calls."""
    arguments: dict[str, Any] = {}
    for constructor in [vars(each)["__init__"] for each in kind.__mro__ if "__init__" in vars(each)]:
        hints, parameters = get_type_hints(constructor), list(signature(constructor).parameters.values())[1:]
        own = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        for each in own:
            arguments[each.name] = hints[each.name], ... if each.default is each.empty else each.default
        if len(own) == len(parameters):  # no *args or **kwargs are passed to a base class
            break
    config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
    return create_model("Arguments", __config__=config, **arguments)


def _check_limits(value: Any, kind: str, key: str = "") -> None:
    """Raise UserError for numbers and lists above their limits, and for `max_words` below 1, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_limits(inner, kind, name)
    elif isinstance(value, list):
        if len(value) > MAX_ENTRIES:
            raise UserError(f"{kind}: {key} has {len(value)} entries, and at most {MAX_ENTRIES} are possible; {REMEDY}")
        for inner in value:
            _check_limits(inner, kind, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        largest = {"max_words": MAX_WORDS, **dict.fromkeys(LAYERS, MAX_LAYERS)}.get(key, MAX_SIZE)
        if abs(value) > largest:
            raise UserError(f"{kind}: {key} is {str(value)[:20]}, and {largest:,} is the largest possible; {REMEDY}")
        if key == "max_words" and value < 1:
            raise UserError(f"{kind}: {key} is {str(value)[:20]}, and 1 is the smallest possible; {REMEDY}")


def _compare_shapes(expected: Mapping[str, tuple[int, ...]], actual: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError for the first tensor that is missing, unexpected, or of another shape."""
    for key in (*expected, *actual):
        if expected.get(key) != actual.get(key):
            raise ValueError(f"{key}: expected shape {expected.get(key)}, got {actual.get(key)}")
