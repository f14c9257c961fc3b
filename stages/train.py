"""Joint training of speaker and listener by one method.

python -m stages.train --method psst_multinomial → data/models/psst_multinomial: weights, history and metrics.
"""

import sys
from pathlib import Path

from pipeline.config.load import method_settings
from pipeline.runtime.checksums import data_digests
from pipeline.tracking import recorder
from pipeline.workflow.reuse import TRAINED, reuse_finished
from pipeline.workflow.stage import Stage, main


def inputs(stage: Stage) -> list[Path]:
    """Return the inputs: the data, the pretrained agents, and for methods with reward models the retriever's files."""
    from pipeline.workflow.build_retriever import retriever_files

    settings = method_settings(stage.settings, stage.instance or "")
    names = (f"pretrained/{settings.speaker}/weights.safetensors", "pretrained/listener/weights.safetensors")
    read = [stage.root / name for name in ("prepared", "features/main", *names)]
    return read + (retriever_files(stage.root) if settings.rewarded else [])


def run(stage: Stage) -> None:
    """Train and write the agents of one method."""
    import torch

    from pipeline.training.fit import run_training
    from pipeline.workflow.build_data import load_data
    from pipeline.workflow.build_joint import build_method
    from pipeline.workflow.build_training import build_training

    assert stage.instance is not None
    settings = method_settings(stage.settings, stage.instance)
    prepared, store = load_data(stage.root)
    torch.manual_seed(stage.seed)  # a critic's weights are drawn at random
    method, cider = build_method(settings, stage.root, prepared, stage.device)
    training = build_training(method, cider, settings.optimisation, prepared, store, stage.seed, stage.device)
    checkpoints = stage.root / "checkpoints" / stage.key(inputs(stage))
    with recorder.record_run(stage.title, stage.params.plain(), inputs=stage.digests(inputs(stage))) as record:
        run_training(training, stage.out, checkpoints, record, stage.checkpoint_seconds, data=data_digests(stage.root))


if __name__ == "__main__":
    sys.exit(main("train", reuse_finished(run, inputs, TRAINED)))
