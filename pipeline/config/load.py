"""params.yaml, read and checked before anything runs, and what a method's block in it means."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError, create_model

from pipeline.config.reading import did_you_mean, one_line, override, read_mapping
from pipeline.config.schema import Name, Objective, Optimisation, Section, Sections, Seeds, Train
from pipeline.config.views import View, listed_keys
from pipeline.errors import UserError
from pipeline.ranges import NonNegative

OWN = ("from", "method", "train", "gamma")  # keys of every block of `methods`; the others are its composition's options


class Params(Sections):
    """A whole parameter file, checked. A method's block holds all options of its composition, defaults filled in."""

    def for_stage(self, stage: str, instance: str | None = None, *, dvc_yaml: Path = Path("dvc.yaml")) -> View:
        """The parameters that `dvc_yaml` lists for `stage` (`instance`: the item or key of its foreach)."""
        tree = self.model_dump(mode="json")
        listed = listed_keys(read_mapping(dvc_yaml), stage, instance, tree)
        return View(tree, listed, stage if instance is None else f"{stage}@{instance}")


@dataclass(frozen=True)
class MethodSettings:
    """A method's block, understood: which composition, with what, trained how."""

    composition: Callable[..., Any]  # agents, objective and `arguments` → a method
    arguments: dict[str, Any]  # by the composition's own names: lambda is lam
    optimisation: Optimisation
    objective: Objective
    gamma: float  # guidance of the trained speaker

    @property
    def shown(self) -> dict[str, Any]:
        """The arguments as params.yaml names them, and gamma where the speaker is guided."""
        own = {"lambda" if key == "lam" else key: value for key, value in self.arguments.items()}
        return own if self.gamma == 1 else own | {"gamma": self.gamma}


def method_settings(view: View, name: str) -> MethodSettings:
    """The settings of `methods.<name>`: its options, and the train section with the block's `train:` laid over it."""
    block = view.methods[name].plain()
    train = Train.model_validate(_laid_over(view.train.plain(), block.pop("train")))
    composition, gamma = _composition(block.pop("from"), block.pop("method")), block.pop("gamma")
    arguments = {"lam" if key == "lambda" else key: value for key, value in block.items()}
    return MethodSettings(composition, arguments, train.optimisation, train.objective, gamma)


def load(path: Path, overrides: Iterable[str] = ()) -> Params:
    """Read and check a parameter file, "a.b=value" `overrides` laid over it.

    The schema of a block of `methods` is the signature of its composition: `from` names a module of pipeline/methods,
    which is imported, `method` a function in it (default: the block's own name). The first problem is a UserError in
    one line with the key, the value and what is allowed.
    """
    path = Path(path)
    raw = read_mapping(path)
    origins = override(raw, overrides)

    def refuse(keys: tuple[str, ...], line: str) -> UserError:
        where = [origin for set_, origin in origins.items() if set_ == keys[: len(set_)] or keys == set_[: len(keys)]]
        return UserError(f"{where[-1] if where else path}: {line}")

    params = _checked(Params, raw, (), refuse)
    blocks, schemas = {}, {}
    for name, block in params.methods.items():
        keys = ("methods", name)
        if name in ("speaker", "listener", "judge"):
            raise refuse(keys, f"methods.{name}: the name is taken by {name}'s pretraining; call the method otherwise")
        _checked(Named, {key: block[key] for key in ("from", "method") if key in block}, keys, refuse)
        try:
            schemas[name] = _schema(name, block["from"], block.get("method", name))
        except UserError as mistake:
            raise refuse(keys, f"methods.{name}: {mistake}") from None
        blocks[name] = _checked(schemas[name], block, keys, refuse).model_dump()
        train = _laid_over(raw["train"], blocks[name]["train"])
        _checked(Train, train, (*keys, "train"), refuse)
    for name, options in ((name, one) for name, grids in params.sweep.grid.items() for one in grids):
        place = ("sweep", "grid", name)
        if name not in blocks:
            raise refuse(place, f"unknown method sweep.grid.{name}; {did_you_mean(name, blocks)}")
        allowed = [key for key in schemas[name].model_fields if key not in OWN[:3]]
        for option, values in options.items():
            if option == "seed":
                _checked(Seeds, {"seed": values}, place, refuse)
                continue
            if option not in allowed:
                raise refuse(
                    (*place, option), f"unknown key {'.'.join(place)}.{option}; {did_you_mean(option, allowed)}"
                )
            for value in values:
                _checked(schemas[name], params.methods[name] | {option: value}, place, refuse)
    _check_null_image(params, blocks, refuse)
    for key, names in (("control", [params.report.control]), ("frozen", params.report.frozen)):
        for name in names if blocks else ():
            if name not in blocks:
                line = f"report.{key} = {name} is no method; {did_you_mean(name, blocks)}"
                raise refuse(("report", key), line)
    return params.model_copy(update={"methods": blocks})


def _check_null_image(params: Params, blocks: Mapping[str, Any], refuse: Callable[..., UserError]) -> None:
    """Refuse to guide a speaker that has learned no null image."""
    for name, block in blocks.items():
        if params.pretrain.speaker.image_dropout or block.get("image_dropout"):
            continue
        grids = params.sweep.grid.get(name, ())
        swept = [gamma for grid in grids for gamma in grid.get("gamma", ())]
        for keys, gammas in (("methods", name, "gamma"), [block["gamma"]]), (("sweep", "grid", name, "gamma"), swept):
            for gamma in gammas:
                if gamma != 1:
                    needed = "needs a null image; set pretrain.speaker.image_dropout to 0.1, say"
                    raise refuse(keys, f"{'.'.join(keys)} = {gamma:g} {needed}")


def _checked(
    model: type[Section], raw: Mapping[str, Any], below: tuple[str, ...], refuse: Callable[..., UserError]
) -> Any:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        keys, line = one_line(error, model, raw)
        if below:  # the line names keys of the block; put the block before them
            name = ".".join(keys)
            line = line.replace(name, ".".join((*below, *keys)), 1) if name else f"{'.'.join(below)}: {line}"
        raise refuse((*below, *keys), line) from None


Named = create_model("Named", __base__=Section, **{"from": (Name, ...), "method": (Name, "")})  # where a composition is


def _composition(module: str, name: str) -> Callable[..., Any]:
    """The function `name` of pipeline/methods/`module`.py; imports torch."""
    modules = sorted(file.stem for file in (Path(__file__).parents[1] / "methods").glob("[!_]*.py"))
    if module not in modules:
        raise UserError(f"from = {module}: no such file in pipeline/methods; {did_you_mean(module, modules)}")
    functions = dict(inspect.getmembers(import_module(f"pipeline.methods.{module}"), inspect.isfunction))
    named = {key: f for key, f in functions.items() if f.__module__.endswith(f".{module}") and not key.startswith("_")}
    if name not in named:
        raise UserError(f"unknown method {name} in pipeline/methods/{module}.py; {did_you_mean(name, named)}")
    return named[name]


def _schema(name: str, module: str, method: str) -> type[Section]:
    """The block of a composition: its keyword options under their own names (lam is `lambda`), and what all take."""
    fields: dict[str, Any] = {"from": (str, ...), "method": (str, method), "train": (dict[str, Any], {})}
    for option in inspect.signature(_composition(module, method), eval_str=True).parameters.values():
        if option.name in ("agents", "objective"):
            continue
        if option.annotation is option.empty:
            raise UserError(
                f"option {option.name} of {method} in {module}.py has no type; write {option.name}: float, say"
            )
        default = ... if option.default is option.empty else option.default
        fields["lambda" if option.name == "lam" else option.name] = (option.annotation, default)
    fields["gamma"] = (NonNegative, 1.0)
    return create_model(name, __base__=Section, **fields)


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, mapping by mapping; neither is changed."""
    merged = copy.deepcopy(dict(below))
    for key, value in above.items():
        inner = merged.get(key)
        merged[key] = _laid_over(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return merged
