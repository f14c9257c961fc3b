"""Train a listener, a speaker or an independent judge on human captions.

python -m stages.pretrain --role listener → data/pretrained/listener: weights, history and metrics.
"""

import sys

from pipeline.workflow.stage import Stage, main


def run(stage: Stage) -> None:
    """Train and write the model of one role."""
    import torch

    from pipeline.tracking import recorder
    from pipeline.training.fit import fit
    from pipeline.training.optimisation import Optimisation
    from pipeline.workflow.build_data import data
    from pipeline.workflow.build_pretraining import pretraining
    from pipeline.workflow.build_training import training_of

    assert stage.instance is not None
    section = stage.params.pretrain[stage.instance]
    seed = stage.seed + (0 if stage.instance == "speaker" else section.seed)
    prepared, store = data(stage.root)
    torch.manual_seed(seed)
    method, cider = pretraining(section, stage.instance, prepared, store, stage.device)
    settled = Optimisation(**section.optimisation.plain())
    training = training_of(method, cider, settled, prepared, store, seed, stage.device)
    inputs = [stage.root / "prepared", stage.root / "features"]
    with recorder.run(stage.title, stage.params.plain(), inputs=stage.digests(inputs)) as record:
        fit(training, stage.out, stage.root / "checkpoints" / stage.key(inputs), record, stage.checkpoint_seconds)


if __name__ == "__main__":
    sys.exit(main("pretrain", run))
