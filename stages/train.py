"""Train speaker and listener together, by one method.

python -m stages.train --method psst_multinomial → data/models/psst_multinomial: weights, history and metrics.
"""

import sys

from pipeline.stage import Stage, main


def run(stage: Stage) -> None:
    """Train and write the agents of one method."""
    import torch

    from pipeline import build
    from pipeline.params import method_settings
    from pipeline.training import tracking
    from pipeline.training.fit import fit

    assert stage.instance is not None
    settings = method_settings(stage.params, stage.instance)
    prepared, store = build.data(stage.root)
    torch.manual_seed(stage.seed)  # a critic is drawn
    method = build.method(settings, stage.root, prepared, stage.device)
    optimisation = build.optimisation(settings.optimisation)
    training = build.training(method, optimisation, prepared, store, stage.seed, stage.device)
    names = ("prepared", "features", "models/speaker/weights.safetensors", "models/listener/weights.safetensors")
    inputs = [stage.root / name for name in names]
    with tracking.run(stage.title, stage.params.plain(), inputs=stage.digests(inputs)) as record:
        fit(training, stage.out, stage.root / "checkpoints" / stage.key(inputs), record, stage.checkpoint_seconds)


if __name__ == "__main__":
    sys.exit(main("train", run))
