"""Let a network see every image.

python -m stages.features → data/features: a vector and a set of regions an image, and what they were made with.
With --shard 3/8 it sees the third eighth of them, for the whole to be put together without; features.smk runs shards
in parallel. What was seen lies in data/checkpoints/features until then.
"""

import sys
from pathlib import Path

from pipeline.stage import Stage, main


def inputs(stage: Stage) -> list[Path]:
    """What the features are made from, beside the images themselves: the prepared data, and a file of weights."""
    weights = stage.params.features.weights
    return [stage.root / "prepared", *([Path(weights)] if weights and Path(weights).is_file() else [])]


def run(stage: Stage) -> None:
    """Extract the features of all prepared images, or of a shard of them."""
    from pipeline.data.feature_store import FeatureWriter
    from pipeline.data.prepared import Prepared
    from pipeline.features.extract import extract
    from pipeline.training import tracking

    p = stage.params
    prepared = Prepared.load(stage.root / "prepared")
    read = inputs(stage)
    with tracking.run(stage.title, p.plain(), inputs=stage.digests(read)) as record:
        extract(
            prepared,
            Path(p.prepare.root) / p.prepare.images,
            stage.out,
            FeatureWriter,
            stage.root / "checkpoints" / "features" / stage.key(read),
            **p.features.plain(),
            seed=stage.seed,
            device=stage.device,
            on_epoch=lambda epoch, report: record.metrics(report, epoch),
            shard=stage.shard,
        )
        if stage.shard is None:
            record.outputs([stage.out / "manifest.json"])


if __name__ == "__main__":
    sys.exit(main("features", run))
