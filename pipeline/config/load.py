"""Reading and checking of params.yaml before anything runs, and the settings of a method's block."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import ValidationError, create_model

from pipeline.composition.method_modules import METHODS, find_method_modules
from pipeline.composition.objective import Objective
from pipeline.config.data_schema import MAIN
from pipeline.config.reading import describe_error, list_keys, override, read_mapping, show_value, suggest_words
from pipeline.config.schema import (
    ListenerBlock,
    Params,
    PragmaticSettings,
    Seeds,
    SpeakerBlock,
    TrainSettings,
)
from pipeline.errors import UserError
from pipeline.evaluation.evaluation_settings import RerankSettings
from pipeline.evaluation.judge_names import OWN
from pipeline.extension import AgentSections
from pipeline.models.model_settings import PretrainedJudgeSettings
from pipeline.ranges import Distinct, NonNegative
from pipeline.section import Name, Section
from pipeline.slices.agent_sections import SLICE_AGENTS
from pipeline.training.optimisation import Optimisation

if TYPE_CHECKING:
    from pipeline.composition.method import Method  # imports torch

T = TypeVar("T", bound=Section)
CAPTIONS = AgentSections("speakers", SpeakerBlock, ListenerBlock, (PretrainedJudgeSettings,))
AGENTS = (CAPTIONS, *SLICE_AGENTS)
# The keys that every block of `methods` may have; all others are options of its composition.
COMMON_KEYS = ("from", "method", "speaker", "train", "gamma", "rerank", "pragmatic")
REWARDS = "rewards"  # the argument of compositions that takes the reward models of the section `retriever`


@dataclass(frozen=True)
class MethodSettings:
    """Settings of a method's block: its composition, the arguments, the training and the decoding."""

    composition: Callable[..., Method]  # agents, objective and `arguments` → a method
    arguments: dict[str, Any]  # by the composition's own names: `lam` for lambda
    optimisation: Optimisation
    objective: Objective
    gamma: float  # guidance scale, at decoding by the trained speaker
    rerank: RerankSettings | None  # at evaluation: captions sampled per image, which a listener ranks
    pragmatic: PragmaticSettings | None  # at evaluation: pragmatic decoding
    speaker: str  # the pretrained speaker, by its name in `pretrain`
    takes_rewards: bool  # whether the composition takes reward models

    @property
    def named_arguments(self) -> dict[str, Any]:
        """Return the arguments as params.yaml names them, with gamma, rerank and pragmatic where they are used."""
        arguments = {"lambda" if key == "lam" else key: value for key, value in self.arguments.items()}
        arguments |= {} if self.gamma == 1 else {"gamma": self.gamma}
        arguments |= {} if self.rerank is None else {"rerank": self.rerank.model_dump(exclude_defaults=True)}
        return arguments if self.pragmatic is None else arguments | {"pragmatic": self.pragmatic.model_dump()}


def resolve_method_settings(params: Params, name: str) -> MethodSettings:
    """Return the settings of `methods.<name>`. The block's `train:` overrides the train section."""
    block = params.methods[name]
    train = TrainSettings.model_validate(_merge(params.train.model_dump(), block["train"]))
    arguments = {"lam" if key == "lambda" else key: value for key, value in block.items() if key not in COMMON_KEYS}
    composition = _find_composition(name, block)
    takes_rewards = REWARDS in inspect.signature(composition).parameters
    rerank = block["rerank"] and RerankSettings.model_validate(block["rerank"])
    pragmatic = block["pragmatic"] and PragmaticSettings.model_validate(block["pragmatic"])
    block_settings = block["gamma"], rerank, pragmatic, block["speaker"], takes_rewards
    return MethodSettings(composition, arguments, train.optimisation, train.objective, *block_settings)


def load(path: Path, overrides: Iterable[str] = ()) -> Params:
    """Read and check a parameter file with "a.b=value" `overrides`.

    The schema of a block of `methods` is the signature of its composition, with COMMON_KEYS. `from` names a module of
    pipeline/methods or of a slice's methods, which is imported. `method` names a function in it (default: the block's
    own name). Raises UserError for one problem, in one line with the key and, where they exist, its value and the
    allowed values.
    """
    raw = read_mapping(Path(path))
    origins = override(raw, overrides)
    try:
        return _check_params(raw)
    except _ParameterError as error:
        keys = error.keys
        # the overrides at, above or below the wrong key; the message names the last of them
        sources = [
            source
            for set_keys, source in origins.items()
            if set_keys == keys[: len(set_keys)] or keys == set_keys[: len(keys)]
        ]
        raise UserError(f"{sources[-1] if sources else path}: {error}") from error.__cause__


class _ParameterError(UserError):
    """Error in the parameters, with the path `keys` of the wrong key."""

    def __init__(self, keys: tuple[str, ...], line: str) -> None:
        super().__init__(line)
        self.keys = keys


def _check_params(raw: dict[str, Any]) -> Params:
    params = _validate(Params, raw)
    kinds: dict[str, type[Section]] = {name: type(block) for name, block in params.pretrain.items()}
    agents = _check_pretrained(params, kinds)
    speakers = [name for name, kind in kinds.items() if kind is agents.speaker]
    schemas = {name: _build_schema(name, block) for name, block in params.methods.items()}
    blocks = {}
    for name, block in params.methods.items():
        blocks[name] = _validate(schemas[name], block, "methods", name).model_dump()
        _check_known(blocks[name]["speaker"], speakers, "speaker of pretrain", "methods", name, "speaker")
        if params.retriever is None and REWARDS in inspect.signature(_find_composition(name, block)).parameters:
            raise _ParameterError(
                ("methods", name), f"methods.{name}: its rewards need the section retriever; add the section"
            )
        _validate(TrainSettings, _merge(raw["train"], blocks[name]["train"]), "methods", name, "train")
    for name, grids in params.sweep.grid.items():
        if name not in blocks:
            keys = ("sweep", "grid", name)
            raise _ParameterError(keys, f"unknown method {'.'.join(keys)}; {suggest_words(name, blocks)}")
        for options in grids:
            _validate(_build_grid_schema(schemas[name]), options, "sweep", "grid", name)
    _check_decoding(params, blocks, [name for name, kind in kinds.items() if kind in agents.listeners])
    _check_null_image(params, blocks)
    _check_baselines(params, blocks)
    for value, known, kind, value_keys in params.evaluate.references(blocks, kinds) if blocks else ():
        _check_known(value, known, kind, *value_keys)
    for name, section in params.features.items():
        if section.network == "object_detector" and not params.draw.has_facts:
            needed = "object_detector needs the facts of drawn images; choose another network"
            raise _ParameterError(("features", name, "network"), f"features.{name}.network: {needed}")
    for key, names in (("control", [params.report.control]), ("frozen_speakers", params.report.frozen_speakers)):
        for name in names if blocks else ():
            _check_known(name, blocks, "method", "report", key)
    return params.model_copy(update={"methods": blocks})


def _validate(model: type[T], raw: Mapping[str, Any], *keys: str) -> T:
    """Return the mapping at `keys` of the file as a `model`. Raises _ParameterError where it does not fit."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise _ParameterError(*describe_error(error, model, keys)) from None


def _check_known(value: str, known: Iterable[str], kind: str, *keys: str) -> None:
    if value not in known:
        raise _ParameterError(keys, f"{'.'.join(keys)} = {value} is no {kind}; {suggest_words(value, known)}")


def _check_pretrained(params: Params, kinds: Mapping[str, type[Section]]) -> AgentSections:
    """Check the blocks of `pretrain` and their names in `retriever` and `evaluate`; return the joint agents' schemas.

    `kinds` are the schemas of the blocks. Raises _ParameterError for a missing listener, an unknown name, a judge with
    a method's name, or features or a model that do not fit.
    """
    from pipeline.slices.judge_kinds import JUDGES  # imports torch, as the methods' modules do

    agents = next((each for each in AGENTS if kinds.get("listener") is each.listener), None)
    if agents is None:
        line = "pretrain.listener must be a listener, with which joint training begins; add or correct its block"
        raise _ParameterError(("pretrain",), line)
    for name, block in params.pretrain.items():
        features_key = ("pretrain", name, "features")
        _check_known(block.features, params.features, "set of features", *features_key)
        if block.features != MAIN and kinds[name] not in CAPTIONS.listeners:
            raise _ParameterError(
                features_key,
                f"{'.'.join(features_key)} = {block.features}: {agents.title} use {MAIN}; set it to {MAIN}",
            )
        model, given = getattr(block, "model", None), (params.prepare.tokenizer, params.features[MAIN].network)
        if model and given != (model, f"hub/{model}"):
            needed = f"goes with prepare.tokenizer: {model} and features.{MAIN}.network: hub/{model}; set both"
            raise _ParameterError(("pretrain", name, "model"), f"pretrain.{name}.model {model} {needed}")
    captions = agents is CAPTIONS
    listeners = [name for name, kind in kinds.items() if kind in agents.listeners]
    if params.retriever:
        roles = (("model", params.retriever.model), ("judge", params.retriever.judge))
        for key, listener in roles if params.retriever.judge else roles[:1]:
            _check_known(
                str(listener), listeners if captions else [], "listener of captions in pretrain", "retriever", key
            )
        speakers = [name for name, kind in kinds.items() if kind is SpeakerBlock]
        _check_known(params.retriever.speaker, speakers, "speaker of pretrain", "retriever", "speaker")
    has_facts = params.draw.has_facts and captions
    judges = [kind.name for kind in JUDGES if not kind.needs_facts] + listeners
    judges += [kind.name for kind in JUDGES if has_facts and kind.needs_facts]
    for name, judge in params.evaluate.judges.items():
        _check_known(judge, judges, "judge", "evaluate", "judges", name)
        if judge != OWN and name in params.methods:  # the two would share a column of the cross-play table
            line = f"evaluate.judges.{name}: a method has this name, too; rename the judge"
            raise _ParameterError(("evaluate", "judges", name), line)
    if gallery := params.evaluate.hard_gallery:
        # models that judge, reward or are trained further
        excluded_names = {"listener", *params.evaluate.judges.values()}
        if params.retriever:
            excluded_names |= {name for name in (params.retriever.model, params.retriever.judge) if name}
        known = [
            "features",
            *(["facts"] if params.draw.has_facts else []),
            *(name for name in listeners if name not in excluded_names),
        ]
        _check_known(gallery.similarity, known, "similarity of images", "evaluate", "hard_gallery", "similarity")
    return agents


def _check_baselines(params: Params, blocks: Mapping[str, Any]) -> None:
    """Refuse baselines of unknown methods, unknown baselines, and baselines that need facts without drawn scenes."""
    if not blocks or not params.evaluate.baselines:
        return
    from pipeline.slices.evaluation_parts import EVALUATION  # imports torch, as the methods' modules do

    kinds = {kind.name: kind for kind in EVALUATION.baselines}
    for name, baselines in params.evaluate.baselines.items():
        keys = ("evaluate", "baselines", name)
        _check_known(name, blocks, "method", "evaluate", "baselines")
        for baseline in baselines:
            _check_known(baseline, kinds, "baseline", *keys)
            if params.draw.scenes is None and kinds[baseline].needs_facts:
                needed = "needs the facts of drawn scenes; remove it"
                raise _ParameterError(keys, f"{'.'.join(keys)} = {baseline} {needed}")


def _check_decoding(params: Params, blocks: Mapping[str, Any], listeners: Sequence[str]) -> None:
    """Refuse unknown listeners, and pragmatic decoding together with reranking, in a block or with its grid."""
    for name, block in blocks.items():
        grid_reranks = [rerank for grid in params.sweep.grid.get(name, ()) for rerank in grid.get("rerank", ())]
        for keys, reranks in (("methods", name), [block["rerank"]]), (("sweep", "grid", name), grid_reranks):
            for rerank in filter(None, reranks):
                listener = RerankSettings.model_validate(rerank).listener
                _check_known(listener, [OWN, *listeners], "listener of pretrain", *keys, "rerank", "listener")
        grids: list[tuple[tuple[str, ...], Mapping[str, Sequence[Any]]]] = [(("methods", name, "pragmatic"), {})]
        grids += [(("sweep", "grid", name), grid) for grid in params.sweep.grid.get(name, ())]
        for grid_keys, grid in grids:
            if all(any(grid.get(key, [block[key]])) for key in ("rerank", "pragmatic")):
                wrong = "pragmatic decoding replaces the samples that rerank ranks; remove one of them"
                wrong += ", or list two grids, one for each" if grid else ""
                raise _ParameterError(grid_keys, f"{'.'.join(grid_keys)}: {wrong}")


def _check_null_image(params: Params, blocks: Mapping[str, Any]) -> None:
    """Refuse guidance (`gamma` other than 1) of a speaker that is trained without a null image."""
    for name, block in blocks.items():
        if getattr(params.pretrain[block["speaker"]], "image_dropout", 0):
            continue
        grids: list[tuple[tuple[str, ...], Mapping[str, Sequence[Any]]]] = [(("methods", name, "gamma"), {})]
        grids += [(("sweep", "grid", name, "gamma"), grid) for grid in params.sweep.grid.get(name, ())]
        for keys, grid in grids:
            trained = all(grid.get("image_dropout", [block.get("image_dropout")]))
            for gamma in grid.get("gamma", [block["gamma"]]):
                if gamma != 1 and not trained:
                    needed = f"needs a null image; set pretrain.{block['speaker']}.image_dropout, for example to 0.1, "
                    needed += "or set gamma to 1"
                    raise _ParameterError(keys, f"{'.'.join(keys)} = {gamma:g} {needed}")


def _find_composition(name: str, block: Mapping[str, Any]) -> Callable[..., Method]:
    """Return the function `method` (default: `name`) of the module `from` that a method's block names.

    The import of the module loads torch. Raises UserError for an unknown module or function.
    """
    module, method, modules = block.get("from"), block.get("method", name), find_method_modules()
    if not isinstance(module, str) or module not in modules:
        wrong = f"from = {show_value(module)} is no" if "from" in block else "from is missing: a"
        raise UserError(f"methods.{name}.{wrong} module of {METHODS}; {suggest_words(str(module), modules)}")
    functions = dict(inspect.getmembers(import_module(modules[module]), inspect.isfunction))
    compositions = {
        key: f for key, f in functions.items() if f.__module__ == modules[module] and not key.startswith("_")
    }
    if method not in list(compositions):
        key = f"{name}.method = {show_value(method)}" if "method" in block else name
        raise UserError(
            f"methods.{key} is no method of {_locate_module(block)}; {suggest_words(str(method), compositions)}"
        )
    return compositions[method]


def _locate_module(block: Mapping[str, Any]) -> str:
    """Return the path of the module that a method's block names."""
    return f"{find_method_modules()[block['from']].replace('.', '/')}.py"


def _build_schema(name: str, block: Mapping[str, Any]) -> type[Section]:
    """Return the schema of a method's block: its composition's options, `lam` as `lambda`, and COMMON_KEYS.

    Raises _ParameterError where the composition is unknown, its module fails, or an option has no type or a reserved
    name.
    """
    fields: dict[str, Any] = {"from": (str, ...), "method": (str, name), "speaker": (Name, "speaker")}
    fields["train"] = (dict[str, Any], {})
    try:
        composition = _find_composition(name, block)
        for option in inspect.signature(composition, eval_str=True).parameters.values():
            if option.name in ("agents", "objective", REWARDS):
                continue
            position = f"{_locate_module(block)}: option {option.name} of {composition.__name__}"
            if option.annotation is option.empty:
                raise UserError(
                    f"{position} has no type; write for example {option.name}: float, or a range of pipeline/ranges.py"
                )
            if option.name in COMMON_KEYS:
                raise UserError(f"{position}: the name is reserved for a key of every method; rename the option")
            default = ... if option.default is option.empty else option.default
            fields["lambda" if option.name == "lam" else option.name] = (option.annotation, default)
        return create_model(
            name,
            __base__=Section,
            **fields,
            gamma=(NonNegative, 1.0),
            rerank=(RerankSettings | None, None),
            pragmatic=(PragmaticSettings | None, None),
        )
    except UserError as error:
        raise _ParameterError(("methods", name), str(error)) from None
    except Exception as error:  # raised by the method's own file
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        line = f"methods.{name}: {_locate_module(block)}: {problem}; correct the module"
        raise _ParameterError(("methods", name), line) from error


def _build_grid_schema(schema: type[Section]) -> type[Section]:
    """Return the schema of a method's grid: values of each option, gamma, rerank and pragmatic, and its own seeds."""
    kinds = {
        key: GenericAlias(tuple, (kind, ...)) for key, kind in list_keys(schema).items() if key not in COMMON_KEYS[:4]
    }
    lists: dict[str, Any] = {key: (Annotated[kind, *Distinct], ()) for key, kind in kinds.items()}
    return create_model(schema.__name__, __base__=Section, **lists, seed=(Seeds, ()))


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `base` with the values of `changes`; nested mappings are merged."""
    merged = copy.deepcopy(dict(base))
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _merge(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return merged
