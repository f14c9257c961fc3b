"""Judges by name, from params.yaml and trained models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.evaluation.judges import Judge, ListenerJudge, TextJudge, judge_of
from pipeline.evaluation.symbolic import SymbolicJudge, Truths, facts_of
from pipeline.films.claims import FilmClaims
from pipeline.films.facts import FACTS as FILM_FACTS
from pipeline.films.facts import read_films
from pipeline.models.discriminator import Discriminator
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.listener import Listener
from pipeline.models.weights import load_agent
from pipeline.scenes.claims import Claims
from pipeline.scenes.facts import FACTS, Scene, read_facts
from pipeline.workflow.build_data import store_of

OWN, ADAPTED = "own", "adapted"  # judges that a method trains
SYMBOLIC = "symbolic"  # nobody trains it; all others are pretrained


def judges_of(
    chosen: Mapping[str, str], model: Path, root: Path, prepared: Prepared, device: torch.device
) -> dict[str, Judge]:
    """Judges by name, as `evaluate.judges` has them.

    own: the listener that was trained with the speaker in the folder `model`; adapted: the pretrained one after it got
    used to this speaker; symbolic: the judge that reads the facts of what was drawn; any other word: the pretrained
    model of that name.
    """

    def judge(which: str) -> Judge:
        if which == SYMBOLIC:
            return SymbolicJudge(_claims(prepared), prepared.rows("train"))
        return judge_in(folder_of(which, model, root), root, prepared, device)

    return {name: judge(which) for name, which in chosen.items()}


def folder_of(which: str, model: Path, root: Path) -> Path:
    """Where a judge's weights are: with those of the speaker, or among the pretrained ones."""
    return {OWN: model, ADAPTED: model / "adapted"}.get(which, root / "pretrained" / which)


def known_facts(prepared: Prepared) -> dict[str, Scene]:
    """The facts of drawn scenes by the images' ids; of other images none."""
    path = prepared.folder / FACTS
    return read_facts(path) if path.exists() else {}


def _claims(prepared: Prepared) -> Truths:
    """What is known of all images, for captions' claims: drawn films or scenes."""
    every, films = np.arange(len(prepared)), prepared.folder / FILM_FACTS
    if films.exists():
        return FilmClaims([known.film for known in facts_of(prepared, read_films(films), every)])
    return Claims(facts_of(prepared, known_facts(prepared), every))


def judge_in(folder: Path, root: Path, prepared: Prepared, device: torch.device) -> ListenerJudge | TextJudge:
    """The judge whose weights are in `folder`, with the features below `root` that it sees.

    UserError where what is there can judge nobody.
    """
    agent = load_agent(folder / "weights.safetensors", "listener")
    if isinstance(agent, Listener | DualEncoder):
        return judge_of(agent, store_of(root, agent.features, prepared), device)
    raise UserError(
        f"{folder}: a {type(agent).__name__} is no judge: it must have hear and look (evaluation/judges.py)"
    )


def discriminator_in(folder: Path) -> Discriminator:
    """The discriminator whose weights are in `folder`."""
    found = load_agent(folder / "weights.safetensors", "listener")
    assert isinstance(found, Discriminator)
    return found
