"""Trained agents on disk: safetensors with the arguments that rebuild the models; nothing is unpickled."""

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

from pipeline.errors import UserError, reason
from pipeline.models.architectures import ARCHITECTURES
from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.critic import ControlVariates, Critic
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.guided import GuidedDecoder
from pipeline.models.hub_captioner import HubDecoder
from pipeline.models.listener import Listener
from pipeline.runtime.checksums import HISTORY, INPUTS, LONGEST, NONE, check_history
from pipeline.runtime.files import sha256, write_atomically
from pipeline.runtime.records import Line, Record, first_problem, parse_json, parse_record
from pipeline.runtime.tensors import read_tensors
from pipeline.runtime.untrusted import require_plain_file

Agent = nn.Module  # with its constructor's `arguments`, which JSON can hold
SPEAKERS: tuple[type[Agent], ...] = (
    *(each.load() for each in ARCHITECTURES.values()),
    HubDecoder,
    GuidedDecoder,
)
OTHERS: tuple[type[Agent], ...] = (
    Listener,
    DualEncoder,
    CaptionClassifier,
    Critic,
    ControlVariates,
)
AGAIN = "run its stage again"
MOST_SIZE, MOST_LISTED = 2**24, 4096  # limits on numeric arguments and on entries of a list
MOST_LAYERS, MOST_WORDS = 128, 1000
LAYERS = frozenset(
    (
        *("layers", "encoder_layers", "decoder_layers", "n_layer", "num_hidden_layers", "num_layers"),
        *("num_encoder_layers", "num_decoder_layers"),
    )
)
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (*SPEAKERS, *OTHERS)}


def save_agents(
    path: Path, agents: Mapping[str, Agent], history: Path | None = None, data: Mapping[str, str] | None = None
) -> None:
    """Write the parameters and constructor arguments of `agents`, by name; the file is complete or absent.

    `history` is the training record beside `path`, and `data` are digests of the data (`checksums.data_digests`); they
    are stored, so that later changes are detected.
    """
    tensors: dict[str, Tensor] = {}
    for prefix, agent in agents.items():
        for name, value in agent.state_dict().items():
            tensors[f"{prefix}.{name}"] = value.cpu().contiguous()
    built = {name: {"kind": type(agent).__name__, "arguments": agent.arguments} for name, agent in agents.items()}
    header: dict[str, Any] = {"sha256": NONE}
    header |= {} if history is None else {HISTORY: [history.name, sha256(history)]}
    header |= {} if data is None else {INPUTS: dict(data)}
    # one entry of metadata, since the order of several varies
    content = save(tensors, metadata={"agents": json.dumps({**header, **built})})
    write_atomically(path, content.replace(NONE.encode(), hashlib.sha256(content).hexdigest().encode(), 1))


def load_agent(path: Path, name: str, kinds: Collection[str] | None = None, known: Mapping[str, Any] = KINDS) -> Agent:
    """Load the agent that `save_agents` wrote as `name`, on the CPU, in evaluation mode.

    `known` are the classes that the file may name, and `kinds` those permitted for this agent (None: all). Arguments
    are checked against their types, and tensors against the resulting shapes, before memory is allocated. Raises
    UserError where the file is damaged, or the history beside it belongs to another training.
    """
    check_own_bytes(path)
    metadata, tensors = read_tensors(path, AGAIN, f"{name}.")
    built = read_agents(path, metadata)
    if name not in built:
        raise UserError(f"{path}: holds no {name}, only {', '.join(built) or 'foreign tensors'}; {AGAIN}")
    check_history(path)
    if (kind := built[name].kind) not in (permitted := known if kinds is None else kinds):
        raise UserError(f"{path}: {name} is a {kind}, and must be one of {', '.join(permitted)}")
    try:
        with torch.device("meta"), _SkipInitialisation():
            wanted = {key: tuple(value.shape) for key, value in _build(built[name], known).state_dict().items()}
        _compare(wanted, {key: tuple(value.shape) for key, value in tensors.items()})
        agent = _build(built[name], known)
        agent.load_state_dict(tensors)
    except UserError as problem:
        raise UserError(f"{path}: {problem}") from None
    except Exception as problem:  # PyTorch and the libraries of networks raise many types
        detail = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise UserError(f"{path}: {name} is of another version of this model ({detail}); {AGAIN}") from None
    return agent.eval()


class _SkipInitialisation(TorchFunctionMode):
    """A mode without normal initialisation, which imports torch._dynamo on the meta device: 2 seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        return given["tensor"] if func is nn.init.normal_ else func(*args, **given)


class AgentSpec(Record):
    """The class and the constructor arguments of an agent."""

    kind: Line
    arguments: dict[str, Any]


def read_agents(path: Path, metadata: Mapping[str, str]) -> dict[str, AgentSpec]:
    """Return the specifications of a file's agents, by name. Raises UserError where its metadata hold none."""
    header = parse_json(metadata.get("agents", "{}"), str(path), AGAIN)
    if not isinstance(header, dict):
        raise UserError(f"{path}: its header names no agents; {AGAIN}")
    named = {name: value for name, value in header.items() if name not in ("sha256", HISTORY, INPUTS)}
    return {name: parse_record(value, AgentSpec, f"{path}, {name}", AGAIN) for name, value in named.items()}


def check_own_bytes(path: Path) -> None:
    """Compare the file's SHA-256 with the digest in its header; the digest is computed with zeros in its place.

    Raises UserError where the file is missing, unreadable or damaged.
    """
    try:
        with open(require_plain_file(path), "rb") as file:
            head = file.read(8)
            head += file.read(min(int.from_bytes(head, "little"), LONGEST))
            stated = re.search(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"', head)
            digest = hashlib.sha256(head.replace(stated[1], NONE.encode(), 1) if stated else head)
            while part := file.read(1 << 20):
                digest.update(part)
    except FileNotFoundError:
        raise UserError(f"{path}: no such weights; run the stage that trains them first") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({reason(error)}); {AGAIN}") from None
    if stated is None or digest.hexdigest().encode() != stated[1]:
        raise UserError(
            f"{path}: not a whole safetensors file of ours: its bytes are not those that were written; run "
            "its stage again"
        )


def _build(made: AgentSpec, known: Mapping[str, Any]) -> Agent:
    """Build an agent from its kind and arguments; an argument may be the specification of a further agent."""
    if made.kind not in known:
        raise UserError(f"there is no kind of agent {made.kind}")
    given = {
        name: _build(AgentSpec(**value), known)
        if isinstance(value, dict) and value.keys() == AgentSpec.model_fields.keys()
        else value
        for name, value in made.arguments.items()
    }
    _refuse_odd(given, made.kind)
    try:
        _arguments_of(known[made.kind]).model_validate(given)
    except ValidationError as error:
        raise UserError(f"a {made.kind} is not built so: {first_problem(error)}; {AGAIN}") from None
    agent: Agent = known[made.kind](**given)
    return agent


@cache
def _arguments_of(kind: type) -> type[BaseModel]:
    """Return a pydantic model of a kind's arguments, from its constructor and the base constructors that it calls."""
    given: dict[str, Any] = {}
    for constructor in [vars(each)["__init__"] for each in kind.__mro__ if "__init__" in vars(each)]:
        hints, parameters = get_type_hints(constructor), list(signature(constructor).parameters.values())[1:]
        own = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        given |= {each.name: (hints[each.name], ... if each.default is each.empty else each.default) for each in own}
        if len(own) == len(parameters):  # no *args or **kwargs for a base class
            break
    config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
    return create_model("Arguments", __config__=config, **given)


def _refuse_odd(value: Any, where: str, key: str = "") -> None:
    """Raise UserError for sizes, layers or words above the limits."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        layers = key in LAYERS
        most = MOST_LAYERS if layers else MOST_WORDS if key == "max_words" else MOST_SIZE
        if abs(value) > most or (value < 1 and key == "max_words"):
            raise UserError(f"{where}: {key} is {str(value)[:20]}, and {most:,} is the largest possible; {AGAIN}")
    inner = (
        value.items() if isinstance(value, dict) else ((key, each) for each in value) if isinstance(value, list) else ()
    )
    if isinstance(value, list) and len(value) > MOST_LISTED:
        raise UserError(f"{where}: {key} has {len(value)} entries, and {MOST_LISTED} are possible; {AGAIN}")
    for name, each in inner:
        _refuse_odd(each, where, name)


def _compare(wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError for the first tensor that is missing, unexpected, or of another shape."""
    for key in (*wanted, *given):
        if wanted.get(key) != given.get(key):
            raise ValueError(f"{key} has the shape {given.get(key)}, and {wanted.get(key)} is needed")
