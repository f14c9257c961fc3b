"""Pretraining of a speaker, listener, judge or dialog agent on human texts, or import of a trained judge.

python -m stages.pretrain --role listener → data/pretrained/listener: weights, history and metrics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config.schema import ListenerBlock, PretrainedJudgeSettings, PretrainSettings, SpeakerBlock
from pipeline.runtime.command import end_process
from pipeline.runtime.files import write_atomically
from pipeline.tracking import recorder
from pipeline.workflow.stage import Stage, main

if TYPE_CHECKING:
    import torch

    from pipeline.composition.method import Method
    from pipeline.data.feature_store import FeatureStore
    from pipeline.data.prepared import PreparedData
    from pipeline.metrics.cider import CiderD


def run(stage: Stage) -> None:
    """Train and write the model of one role, or import a judge."""
    assert stage.instance is not None
    settings = stage.settings.pretrain[stage.instance]
    if isinstance(settings, PretrainedJudgeSettings):
        return import_judge(stage, settings)
    import torch

    from pipeline.data.image_features import load_data
    from pipeline.training.fit import run_training
    from pipeline.workflow.training import build_training

    seed = stage.seed + getattr(settings, "seed", 0)  # speakers have no seed of their own
    prepared, store = load_data(stage.root, settings.features)
    torch.manual_seed(seed)
    method, cider = build_pretraining(settings, prepared, store, stage.device)
    training = build_training(method, cider, settings.optimisation, prepared, store, seed, stage.device)
    inputs = [stage.root / "prepared", stage.root / "features" / settings.features]
    if isinstance(settings, SpeakerBlock) and settings.model and Path(settings.model).is_dir():
        inputs.append(Path(settings.model))
    with recorder.record_run(stage.title, stage.params.as_dict(), inputs=stage.compute_digests(inputs)) as record:
        run_training(
            training,
            stage.out,
            stage.root / "checkpoints" / stage.compute_key(inputs),
            record,
            stage.checkpoint_seconds,
        )


def build_pretraining(
    settings: PretrainSettings, prepared: PreparedData, store: FeatureStore, device: torch.device
) -> tuple[Method, CiderD | None]:
    """Build the agent and the method that pretrains it, and the CIDEr-D of captions; None for listeners and slices."""
    from pipeline.composition.caption_pretraining import build_listener_pretraining, build_speaker_pretraining
    from pipeline.composition.reference_cider import build_reference_cider
    from pipeline.slices.slice_training import TRAINING

    for each in TRAINING:
        if each.trains(settings):
            return each.build_pretraining(settings, prepared, store), None
    if isinstance(settings, SpeakerBlock):
        return build_speaker_pretraining(settings, prepared, store), build_reference_cider(prepared).to(device)
    assert isinstance(settings, ListenerBlock)
    batch, captions = settings.optimisation.batch, settings.optimisation.captions
    return build_listener_pretraining(settings, batch, captions, prepared, store), None


def import_judge(stage: Stage, settings: PretrainedJudgeSettings) -> None:
    """Import a judge that was trained elsewhere, without any training."""
    from pipeline.data.image_features import load_data
    from pipeline.models.agent_files import save_agents
    from pipeline.models.pretrained_encoder import load_pretrained_encoder

    _, store = load_data(stage.root, settings.features)
    inputs = [stage.root / "features" / settings.features]
    with recorder.record_run(stage.title, stage.params.as_dict(), inputs=stage.compute_digests(inputs)) as record:
        encoder = load_pretrained_encoder(settings, store, stage.device)
        save_agents(stage.out / "weights.safetensors", {"listener": encoder})
        write_atomically(stage.out / "history.jsonl", "")
        write_atomically(stage.out / "metrics.json", json.dumps({"images": len(store)}) + "\n")
        record.log_outputs([stage.out / "weights.safetensors"])


if __name__ == "__main__":
    end_process(main("pretrain", run))
