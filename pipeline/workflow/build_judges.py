"""Judges by name, from params.yaml and trained models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.evaluation.judges import Judge, ListenerJudge, TextJudge, make_judge
from pipeline.evaluation.symbolic import ClaimChecker, SymbolicJudge, require_facts
from pipeline.models.agent_files import load_agent
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.listener import Listener
from pipeline.workflow.build_data import open_store
from pipeline.worlds.films.film_claims import FilmClaims
from pipeline.worlds.films.film_facts import FACTS as FILM_FACTS
from pipeline.worlds.films.film_facts import read_films
from pipeline.worlds.scenes.scene_claims import SceneClaims
from pipeline.worlds.scenes.scene_facts import FACTS, Scene, read_facts

OWN, ADAPTED = "own", "adapted"  # judges that are trained with, or adapted to, a method's speaker
SYMBOLIC = "symbolic"  # not trained; all other names are pretrained models


def build_judges(
    chosen: Mapping[str, str], model: Path, root: Path, prepared: Prepared, device: torch.device
) -> dict[str, Judge]:
    """Build the judges of `evaluate.judges` by name.

    own: the listener trained with the speaker in the folder `model`; adapted: the pretrained listener adapted to this
    speaker; symbolic: the judge that checks captions against the facts of drawn images; any other word: the pretrained
    model of that name.
    """

    def judge(which: str) -> Judge:
        if which == SYMBOLIC:
            return SymbolicJudge(_claims(prepared), prepared.rows("train"))
        return load_judge(judge_folder(which, model, root), root, prepared, device)

    return {name: judge(which) for name, which in chosen.items()}


def judge_folder(which: str, model: Path, root: Path) -> Path:
    """Return the folder of a judge's weights: that of the speaker's model, or one of the pretrained models."""
    return {OWN: model, ADAPTED: model / "adapted"}.get(which, root / "pretrained" / which)


def known_facts(prepared: Prepared) -> dict[str, Scene]:
    """Return the facts of drawn scenes by image id; empty for other images."""
    path = prepared.folder / FACTS
    return read_facts(path) if path.exists() else {}


def _claims(prepared: Prepared) -> ClaimChecker:
    """Return the checker of captions' claims against the facts of all images: drawn films or scenes."""
    every, films = np.arange(len(prepared)), prepared.folder / FILM_FACTS
    if films.exists():
        return FilmClaims([known.film for known in require_facts(prepared, read_films(films), every)])
    return SceneClaims(require_facts(prepared, known_facts(prepared), every))


def load_judge(folder: Path, root: Path, prepared: Prepared, device: torch.device) -> ListenerJudge | TextJudge:
    """Return the judge whose weights are in `folder`, with the features below `root` that it encodes.

    Raises UserError where the agent is neither a `Listener` nor a `DualEncoder`.
    """
    agent = load_agent(folder / "weights.safetensors", "listener")
    if isinstance(agent, Listener | DualEncoder):
        return make_judge(agent, open_store(root, agent.features, prepared), device)
    raise UserError(
        f"{folder}: a {type(agent).__name__} is no judge: it must have hear and look (evaluation/judges.py)"
    )
