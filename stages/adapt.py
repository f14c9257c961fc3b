"""Let the pretrained listener get used to what the speaker of one method says, while that speaker stays as it is.

python -m stages.adapt --method luo → data/models/luo/adapted: weights, history and metrics.
"""

import sys
from pathlib import Path

from pipeline.workflow.finished import TRAINED, once
from pipeline.workflow.stage import Stage, main


def inputs(stage: Stage) -> list[Path]:
    """What is read: the data, the listener, and the model whose speaker it gets used to."""
    names = ("prepared", "features/main", "pretrained/listener/weights.safetensors")
    return [*(stage.root / name for name in names), stage.model / "weights.safetensors"]


def run(stage: Stage) -> None:
    """Train and write the listener of a frozen speaker."""
    from pipeline.tracking import recorder
    from pipeline.training.fit import fit
    from pipeline.training.optimisation import Optimisation
    from pipeline.workflow.build_data import data
    from pipeline.workflow.build_pretraining import adaptation
    from pipeline.workflow.build_training import training_of

    section = stage.params.adapt
    prepared, store = data(stage.root)
    method, cider = adaptation(section, stage.model, stage.root, prepared, stage.device)
    settled = Optimisation(**section.optimisation.plain())
    training = training_of(method, cider, settled, prepared, store, stage.seed, stage.device)
    checkpoints = stage.root / "checkpoints" / stage.key(inputs(stage))
    with recorder.run(stage.title, stage.params.plain(), inputs=stage.digests(inputs(stage))) as record:
        fit(training, stage.out, checkpoints, record, stage.checkpoint_seconds, frozenset({"listener"}))


if __name__ == "__main__":
    sys.exit(main("adapt", once(run, inputs, TRAINED)))
