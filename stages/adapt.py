"""Let the pretrained listener get used to what the speaker of one method says, while that speaker stays as it is.

python -m stages.adapt --method luo → data/models/luo/adapted: weights, history and metrics.
"""

import sys

from pipeline.stage import Stage, main


def run(stage: Stage) -> None:
    """Train and write the listener of a frozen speaker."""
    from pipeline import build
    from pipeline.training import tracking
    from pipeline.training.fit import fit
    from pipeline.types import Role

    section = stage.params.adapt
    prepared, store = build.data(stage.root)
    method = build.adaptation(section, stage.model, stage.root, prepared, stage.device)
    optimisation = build.optimisation(section.optimisation)
    training = build.training(method, optimisation, prepared, store, stage.seed, stage.device)
    names = ("prepared", "features", "models/listener/weights.safetensors")
    inputs = [*(stage.root / name for name in names), stage.model / "weights.safetensors"]
    checkpoints = stage.root / "checkpoints" / stage.key(inputs)
    with tracking.run(stage.title, stage.params.plain(), inputs=stage.digests(inputs)) as record:
        fit(training, stage.out, checkpoints, record, stage.checkpoint_seconds, frozenset({Role.LISTENER}))


if __name__ == "__main__":
    sys.exit(main("adapt", run))
