"""Adaptation of the pretrained listener to the frozen speaker of one method.

python -m stages.adapt --method luo → data/models/luo/adapted: weights, history and metrics.
"""

import sys
from pathlib import Path

from pipeline.tracking import recorder
from pipeline.workflow.reuse import TRAINED, reuse_finished
from pipeline.workflow.stage import Stage, main


def inputs(stage: Stage) -> list[Path]:
    """Return the inputs: the data, the pretrained listener, and the frozen speaker's model."""
    names = ("prepared", "features/main", "pretrained/listener/weights.safetensors")
    return [*(stage.root / name for name in names), stage.model / "weights.safetensors"]


def run(stage: Stage) -> None:
    """Train and write the listener of a frozen speaker."""
    from pipeline.data.image_features import load_data
    from pipeline.training.fit import run_training
    from pipeline.workflow.build_pretraining import build_adaptation
    from pipeline.workflow.training import build_training

    settings = stage.settings.adapt
    prepared, store = load_data(stage.root)
    method, cider = build_adaptation(settings, stage.model, stage.root, prepared, stage.device)
    training = build_training(method, cider, settings.optimisation, prepared, store, stage.seed, stage.device)
    checkpoints = stage.root / "checkpoints" / stage.key(inputs(stage))
    with recorder.record_run(stage.title, stage.params.plain(), inputs=stage.digests(inputs(stage))) as record:
        run_training(training, stage.out, checkpoints, record, stage.checkpoint_seconds, frozenset({"listener"}))


if __name__ == "__main__":
    sys.exit(main("adapt", reuse_finished(run, inputs, TRAINED)))
