"""Train a listener, a speaker or an independent judge on human captions.

python -m stages.pretrain --role listener → data/models/listener: weights, history and metrics.
"""

import sys

from pipeline.stage import Stage, main


def run(stage: Stage) -> None:
    """Train and write the model of one role."""
    import torch

    from pipeline import build
    from pipeline.training import tracking
    from pipeline.training.fit import fit

    assert stage.instance is not None
    section = stage.params.pretrain[stage.instance]
    seed = stage.seed + (0 if stage.instance == "speaker" else section.seed)
    prepared, store = build.data(stage.root)
    torch.manual_seed(seed)
    method = build.pretraining(section, stage.instance, prepared, store, stage.device)
    training = build.training(method, build.optimisation(section.optimisation), prepared, store, seed, stage.device)
    inputs = [stage.root / "prepared", stage.root / "features"]
    with tracking.run(stage.title, stage.params.plain(), inputs=stage.digests(inputs)) as record:
        fit(training, stage.out, stage.root / "checkpoints" / stage.key(inputs), record, stage.checkpoint_seconds)


if __name__ == "__main__":
    sys.exit(main("pretrain", run))
