"""Adaptation of the pretrained listener to the frozen speaker of one method.

python -m stages.adapt --method luo → data/models/luo/adapted: weights, history and metrics.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.runtime.command import end_process
from pipeline.tracking import recorder
from pipeline.workflow.reuse import TRAINING_OUTPUTS, reuse_finished
from pipeline.workflow.stage import Stage, main

if TYPE_CHECKING:
    import torch

    from pipeline.composition.method import Method
    from pipeline.composition.pretraining_settings import MatchingSettings
    from pipeline.data.prepared import PreparedData
    from pipeline.metrics.cider import CiderD


def list_inputs(stage: Stage) -> list[Path]:
    """Return the inputs: the data, the pretrained listener, and the frozen speaker's model."""
    names = ("prepared", "features/main", "pretrained/listener/weights.safetensors")
    return [*(stage.root / name for name in names), stage.model / "weights.safetensors"]


def run(stage: Stage) -> None:
    """Train and write the listener of a frozen speaker."""
    from pipeline.training.fit import run_training
    from pipeline.workflow.training import build_training, load_training_data

    settings = stage.settings.adapt
    prepared, store = load_training_data(stage.root)
    method, cider = build_adaptation(settings, stage.model, stage.root, prepared, stage.device)
    training = build_training(method, cider, settings.optimisation, prepared, store, stage.seed, stage.device)
    checkpoints = stage.root / "checkpoints" / stage.compute_key(list_inputs(stage))
    with recorder.record_run(
        stage.title, stage.params.as_dict(), inputs=stage.compute_digests(list_inputs(stage))
    ) as record:
        run_training(training, stage.out, checkpoints, record, stage.checkpoint_seconds, frozenset({"listener"}))


def build_adaptation(
    settings: MatchingSettings, model: Path, root: Path, prepared: PreparedData, device: torch.device
) -> tuple[Method, CiderD | None]:
    """Build the method that adapts the pretrained listener below `root` to the frozen speaker in the folder `model`.

    Also return the CIDEr-D of captions; None for a slice's agents.
    """
    from pipeline.composition.caption_pretraining import build_adaptation_to_speaker
    from pipeline.composition.reference_cider import build_reference_cider
    from pipeline.slices.slice_agents import find_owner, load_any_agent
    from pipeline.slices.slice_training import TRAINING

    speaker = load_any_agent(model / "weights.safetensors", "speaker")
    listener = load_any_agent(root / "pretrained" / "listener" / "weights.safetensors", "listener")
    if owner := find_owner(TRAINING, (speaker, listener)):
        return owner.build_adaptation(speaker, listener), None
    return build_adaptation_to_speaker(settings, speaker, listener), build_reference_cider(prepared).to(device)


if __name__ == "__main__":
    end_process(main("adapt", reuse_finished(run, list_inputs, TRAINING_OUTPUTS)))
