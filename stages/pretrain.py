"""Train a listener, a speaker or an independent judge on human captions, or take in one that was trained elsewhere.

python -m stages.pretrain --role listener → data/pretrained/listener: weights, history and metrics.
"""

import sys
from pathlib import Path

from pipeline.config.views import Node
from pipeline.workflow.stage import Stage, main


def run(stage: Stage) -> None:
    """Train and write the model of one role."""
    assert stage.instance is not None
    section = stage.params.pretrain[stage.instance]
    if "network" in section:
        return take_in(stage, section)
    import torch

    from pipeline.tracking import recorder
    from pipeline.training.fit import fit
    from pipeline.training.optimisation import Optimisation
    from pipeline.workflow.build_data import data
    from pipeline.workflow.build_pretraining import pretraining
    from pipeline.workflow.build_training import training_of

    seed = stage.seed + (section.seed if "seed" in section else 0)
    prepared, store = data(stage.root, section.features)
    torch.manual_seed(seed)
    method, cider = pretraining(section, prepared, store, stage.device)
    settled = Optimisation(**section.optimisation.plain())
    training = training_of(method, cider, settled, prepared, store, seed, stage.device)
    inputs = [stage.root / "prepared", stage.root / "features" / section.features]
    if "model" in section and section.model and Path(section.model).is_dir():
        inputs.append(Path(section.model))
    with recorder.run(stage.title, stage.params.plain(), inputs=stage.digests(inputs)) as record:
        fit(training, stage.out, stage.root / "checkpoints" / stage.key(inputs), record, stage.checkpoint_seconds)


def take_in(stage: Stage, section: Node) -> None:
    """Write a judge that was trained elsewhere; nothing learns."""
    import json

    from pipeline.models.weights import save_agents
    from pipeline.runtime.files import write_atomically
    from pipeline.tracking import recorder
    from pipeline.workflow.build_data import data
    from pipeline.workflow.build_dual_encoder import dual_encoder

    _, store = data(stage.root, section.features)
    inputs = [stage.root / "features" / section.features]
    with recorder.run(stage.title, stage.params.plain(), inputs=stage.digests(inputs)) as record:
        encoder = dual_encoder(section, store, stage.device)
        save_agents(stage.out / "weights.safetensors", {"listener": encoder})
        write_atomically(stage.out / "history.jsonl", "")
        write_atomically(stage.out / "metrics.json", json.dumps({"images": len(store)}) + "\n")
        record.outputs([stage.out / "weights.safetensors"])


if __name__ == "__main__":
    sys.exit(main("pretrain", run))
