"""Make what rewards captions: a retriever's vectors of all images, those like each one, and two heads on its vectors.

python -m stages.retriever → data/retriever: images, weights of the heads, history and metrics, and the SHA-256 of
each of them; without a section `retriever` in params.yaml a note that there is none.
"""

import sys
from pathlib import Path

from pipeline.workflow.stage import Stage, main


def inputs(stage: Stage) -> list[Path]:
    """What is read: the data, the retriever, and the speaker whose captions the discriminator learns to know."""
    section = stage.params.retriever
    named = (section.model, section.speaker, section.judge)
    models = (f"pretrained/{name}/weights.safetensors" for name in named if name)
    return [stage.root / name for name in ("prepared", "features", *models)]


def run(stage: Stage) -> None:
    """Mine, and train and write the heads."""
    from pipeline.runtime.files import write_atomically
    from pipeline.runtime.seal import SEAL, seal

    section = stage.params.retriever
    if section is None:
        write_atomically(stage.out / "settings.json", "null\n")
        return seal(stage.out)
    import torch

    from pipeline.runtime import ranks
    from pipeline.tracking import recorder
    from pipeline.training.fit import fit
    from pipeline.training.optimisation import Optimisation
    from pipeline.workflow.build_data import data
    from pipeline.workflow.build_retriever import make, save
    from pipeline.workflow.build_training import training_of

    prepared, store = data(stage.root)
    torch.manual_seed(stage.seed)
    method, rewards, settings = make(section, stage.root, prepared, stage.device)
    settled = Optimisation(**{**section.optimisation.plain(), "validate_every": 0})
    training = training_of(method, None, settled, prepared, store, stage.seed, stage.device)
    checkpoints, roles = stage.root / "checkpoints" / stage.key(inputs(stage)), frozenset({"discriminator", "grammar"})
    with recorder.run(stage.title, stage.params.plain(), inputs=stage.digests(inputs(stage))) as record:
        if not ranks.rank():
            (stage.out / SEAL).unlink(missing_ok=True)
            save(stage.out, rewards, settings)
        fit(training, stage.out, checkpoints, record, stage.checkpoint_seconds, roles)
        if not ranks.rank():
            seal(stage.out)


if __name__ == "__main__":
    sys.exit(main("retriever", run))
