"""From parameters and files to parts: the only place, with params.py, that knows both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import ranks
from pipeline.channels import ScheduledSampling
from pipeline.data.batches import Batches, everything
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared, numbers, read_columns
from pipeline.errors import UserError
from pipeline.evaluation.validation import Validation
from pipeline.methods import METHODS
from pipeline.methods.method import Agents, Method, Objective
from pipeline.methods.pretraining import matching, teacher_forcing
from pipeline.methods.psst import frozen_speaker
from pipeline.methods.relax import relaxed
from pipeline.metrics.cider import CiderD
from pipeline.metrics.texts import Texts
from pipeline.models.listener import Listener
from pipeline.models.speaker import Speaker
from pipeline.models.weights import load_agent
from pipeline.protocols import Score
from pipeline.scores.discriminability import Hinge, InfoNCE, Recovering
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation

if TYPE_CHECKING:
    import torch

    from pipeline.evaluation.evaluate import Evaluation
    from pipeline.params import MethodSettings
    from pipeline.reporting.results import Point, Run
    from pipeline.views import Node

VALIDATION_BATCH = 256
WORTH_THREADS = 2_000_000  # parameters; a smaller model's operations end sooner than threads meet


def data(root: Path) -> tuple[Prepared, FeatureStore]:
    """The prepared data set and its features below `root`."""
    prepared, store = Prepared.load(root / "prepared"), FeatureStore(root / "features")
    if len(prepared) != len(store):
        raise UserError(
            f"{root}: {len(prepared)} prepared images, but features of {len(store)}; run the features stage again"
        )
    return prepared, store


def cider(prepared: Prepared, eos: bool = True, frequencies: str = "train") -> CiderD:
    """CIDEr-D against all human captions; document frequencies as the prepare stage counted them."""
    counted = read_columns(prepared.folder / "document_frequencies.parquet", ["key", "count"])
    references = [prepared.captions(image) for image in range(len(prepared))]
    return CiderD.build(
        references,
        numbers(counted["key"]),
        numbers(counted["count"]),
        len(prepared.rows("train")),
        max_words=prepared.max_words,
        eos=eos,
        frequencies="batch" if frequencies == "batch" else "train",
    )


def texts(prepared: Prepared) -> Texts:
    """Metrics that read text, against all human captions, unclipped."""
    return Texts(prepared.vocabulary.decode, lambda image: [" ".join(words) for words in prepared.words(image)])


def optimisation(section: Any) -> Optimisation:
    """From a params node or a checked block."""
    return Optimisation(**{f.name: getattr(section, f.name) for f in fields(Optimisation)})


def pretraining(section: Node, role: str, prepared: Prepared, store: FeatureStore, device: torch.device) -> Method:
    """The method that pretrains `role` (listener, speaker or judge) with the settings of its section."""
    words = len(prepared.vocabulary)
    if role == "speaker":
        schedule = section.scheduled_sampling
        speaker = Speaker(
            words,
            store.regions_shape[1],
            section.words,
            section.hidden,
            section.attention,
            section.dropout,
            prepared.max_words,
        )
        agents = Agents(speaker=speaker, cider=cider(prepared).to(device))
        scheduled = None if schedule is None else ScheduledSampling(**schedule.plain())
        return teacher_forcing(agents, scheduled, section.image_dropout)
    listener = Listener(words, store.pooled_size, section.words, section.hidden, section.encoder)
    steps = max(1, len(prepared.rows("train")) // section.optimisation.batch)
    return matching(Agents(listener=listener), _matching_score(section, listener, steps))


def _matching_score(section: Node, listener: Listener, steps_an_epoch: int) -> Score:
    score = _plain_score(section, listener)
    if isinstance(score, InfoNCE) or score.negatives == "all" or section.recover is None:
        return score
    recover = section.recover
    return Recovering(score, section.warmup_epochs * steps_an_epoch, recover.patience, recover.steps)


def _plain_score(section: Node, listener: Listener) -> InfoNCE | Hinge:
    if section.objective == "infonce":
        return InfoNCE(listener, section.temperature)
    return Hinge(listener, section.margin, section.negatives)


def adaptation(section: Node, model: Path, root: Path, prepared: Prepared, device: torch.device) -> Method:
    """The pretrained listener below `root` gets used to the speaker in the folder `model`."""
    speaker = load_agent(model / "weights.safetensors", "speaker")
    listener = load_agent(root / "models" / "listener" / "weights.safetensors", "listener")
    assert isinstance(speaker, Speaker)
    assert isinstance(listener, Listener)
    agents = Agents(speaker, listener, cider(prepared).to(device))
    return frozen_speaker(agents, _plain_score(section, listener))


def method(settings: MethodSettings, root: Path, prepared: Prepared, device: torch.device) -> Method:
    """A method of joint training, from the pretrained speaker and listener below `root`."""
    objective = settings.objective.model_dump()
    scorer = cider(prepared, objective.pop("eos_in_reward"), objective.pop("document_frequencies"))
    speaker = load_agent(root / "models" / "speaker" / "weights.safetensors", "speaker")
    listener = load_agent(root / "models" / "listener" / "weights.safetensors", "listener")
    assert isinstance(speaker, Speaker)
    assert isinstance(listener, Listener)
    agents = Agents(speaker, listener, scorer.to(device), texts(prepared))
    composed = METHODS[settings.composition](agents, Objective(**objective), **settings.arguments)
    if settings.objective.control == "relax":
        composed = relaxed(composed)
    return replace(composed, gamma=settings.gamma)


def shown(settings: MethodSettings) -> dict[str, Any]:
    """The method's own options under their names in params.yaml, and gamma where the speaker is guided."""
    own = {"lambda" if name == "lam" else name: value for name, value in settings.arguments.items()}
    return own if settings.gamma == 1 else own | {"gamma": settings.gamma}


def training(
    method: Method, settings: Optimisation, prepared: Prepared, store: FeatureStore, seed: int, device: torch.device
) -> Training:
    """The run that trains `method` on the training split and looks at the validation split.

    Small models get one thread (scenes: half the time of two), by their size alone, so that a seed gives the same bits.
    """
    import torch

    if sum(p.numel() for agent in method.agents.present().values() for p in agent.parameters()) < WORTH_THREADS:
        torch.set_num_threads(1)
    part, pinned = (ranks.rank(), ranks.size()), device.type == "cuda"
    rows, dropped = prepared.rows("train"), method.image_dropout
    batches = Batches(prepared, store, rows, settings.batch, seed, pinned=pinned, part=part, image_dropout=dropped)
    held_out = prepared.rows("val")
    validate = Validation(method.agents, lambda: everything(prepared, store, held_out, VALIDATION_BATCH), device)
    return Training(method, batches, settings, seed, device, validate)


def evaluated(model: Path, root: Path) -> tuple[Speaker, dict[str, Listener]]:
    """The speaker in the folder `model`, and who judges it: its own listener, the one before joint training, that one
    after it got used to this speaker, and an independent one.
    """
    speaker = load_agent(model / "weights.safetensors", "speaker")
    models = root / "models"
    paths = {"own": model, "adapted": model / "adapted", "before": models / "listener", "judge": models / "judge"}
    judges = {name: load_agent(path / "weights.safetensors", "listener") for name, path in paths.items()}
    assert isinstance(speaker, Speaker)
    return speaker, {name: judge for name, judge in judges.items() if isinstance(judge, Listener)}


@contextmanager
def evaluation(
    section: Node, prepared: Prepared, store: FeatureStore, judges: dict[str, Listener], device: torch.device
) -> Iterator[Evaluation]:
    """The protocol of the section `evaluate`, with its Java programs running."""
    from pipeline.data.scenes.faithfulness import read_facts  # what only evaluations need, trainings do not import
    from pipeline.data.scenes.write import FACTS
    from pipeline.evaluation.evaluate import Evaluation
    from pipeline.evaluation.several import Several
    from pipeline.metrics.language import BLEU, LanguageScorer

    metrics = [name for group in section.metrics for name in (BLEU if group == "BLEU" else (group,))]
    with LanguageScorer(metrics) as language:
        known = read_facts(prepared.folder / FACTS) if (prepared.folder / FACTS).exists() else {}
        several = Several(**section.several) if section.several else None
        yield Evaluation(prepared, store, judges, language, section.beam, device, several, known)


def crossing(
    chosen: Mapping[str, Point], prepared: Prepared, store: FeatureStore, root: Path, device: torch.device
) -> dict[str, Any]:
    """R@10 of each chosen method's test captions by each one's listener, by `before` and `judge`, and by the listener
    that got used to that speaker (`adapted`).

    There is a value for each seed that all of the methods were run with, or one for the first run of each.
    """
    import torch

    from pipeline.evaluation.crossed import crossed
    from pipeline.reporting.captions import texts

    runs = {method: {run.settings.get("seed"): run for run in point.runs} for method, point in chosen.items()}
    shared = [seed for seed in next(iter(runs.values()), {}) if all(seed in by_seed for by_seed in runs.values())]
    rounds: list[dict[str, Run]] = [{m: by_seed[seed] for m, by_seed in runs.items()} for seed in shared]
    rounds = rounds or [{m: next(iter(by_seed.values())) for m, by_seed in runs.items()}]
    rows = prepared.rows("test")
    pooled = torch.from_numpy(store.pooled(rows))
    common = {
        name: _listener(root / "models" / folder) for name, folder in (("before", "listener"), ("judge", "judge"))
    }
    readers = [*common, *runs, "adapted"]
    matrix: list[list[list[float]]] = [[[] for _ in readers] for _ in runs]
    for by_method in rounds:
        said = {method: _tokens(texts(run, rows.tolist()), prepared) for method, run in by_method.items()}
        found = crossed(said, common, pooled, device)
        for reader, run in by_method.items():
            folder = root / "cells" / run.method / run.cell if run.cell else root / "models" / run.method
            own = crossed(said, {reader: _listener(folder)}, pooled, device)
            adapted = crossed({reader: said[reader]}, {"adapted": _listener(folder / "adapted")}, pooled, device)
            for method in by_method:
                found[method] |= own[method]
            found[reader] |= adapted[reader]
        for row, method in zip(matrix, by_method, strict=True):
            for values, reader in zip(row, readers, strict=True):
                values.append(found[method][reader])
    return {
        "split": "test",
        "recall": "R@10",
        "captions": list(runs),
        "listeners": readers,
        "seeds": shared,
        "signature": " / ".join(dict.fromkeys(run.protocol for by_method in rounds for run in by_method.values())),
        "matrix": matrix,
    }


def _listener(folder: Path) -> Listener:
    listener = load_agent(folder / "weights.safetensors", "listener")
    assert isinstance(listener, Listener)
    return listener


def _tokens(captions: Sequence[str], prepared: Prepared) -> torch.Tensor:
    """(M, T): captions as ids."""
    import torch

    tokens = torch.zeros(len(captions), prepared.max_words, dtype=torch.int64)
    for row, caption in zip(tokens, captions, strict=True):
        words = prepared.vocabulary.encode(caption.split())
        row[: len(words)] = torch.tensor(words)
    return tokens


def flat_numbers(results: Mapping[str, Any], below: str = "") -> dict[str, float]:
    """The numbers in nested `results`, names joined by slashes."""
    found: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            found |= flat_numbers(value, f"{below}{name}/")
        else:
            found[f"{below}{name}"] = float(value)
    return found
