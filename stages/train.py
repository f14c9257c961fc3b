"""Train speaker and listener together, by one method.

python -m stages.train --method psst_multinomial → data/models/psst_multinomial: weights, history and metrics.
"""

import sys
from pathlib import Path

from pipeline.workflow.finished import TRAINED, once
from pipeline.workflow.stage import Stage, main


def inputs(stage: Stage) -> list[Path]:
    """What is read: the data, and the agents that the method begins with."""
    from pipeline.config.load import method_settings
    from pipeline.workflow.build_retriever import files

    settings = method_settings(stage.params, stage.instance or "")
    names = (f"pretrained/{settings.speaker}/weights.safetensors", "pretrained/listener/weights.safetensors")
    read = [stage.root / name for name in ("prepared", "features/main", *names)]
    return read + (files(stage.root) if settings.rewarded else [])


def run(stage: Stage) -> None:
    """Train and write the agents of one method."""
    import torch

    from pipeline.config.load import method_settings
    from pipeline.tracking import recorder
    from pipeline.training.fit import fit
    from pipeline.workflow.build_data import data
    from pipeline.workflow.build_joint import method_of
    from pipeline.workflow.build_training import training_of

    assert stage.instance is not None
    settings = method_settings(stage.params, stage.instance)
    prepared, store = data(stage.root)
    torch.manual_seed(stage.seed)  # a critic is drawn
    method, cider = method_of(settings, stage.root, prepared, stage.device)
    training = training_of(method, cider, settings.optimisation, prepared, store, stage.seed, stage.device)
    checkpoints = stage.root / "checkpoints" / stage.key(inputs(stage))
    with recorder.run(stage.title, stage.params.plain(), inputs=stage.digests(inputs(stage))) as record:
        fit(training, stage.out, checkpoints, record, stage.checkpoint_seconds)


if __name__ == "__main__":
    sys.exit(main("train", once(run, inputs, TRAINED)))
