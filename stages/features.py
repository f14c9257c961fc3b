"""Let a network see every image.

python -m stages.features → data/features: a vector and a grid an image, and what they were made with.
"""

import sys
from pathlib import Path

from pipeline.stage import Stage, main


def run(stage: Stage) -> None:
    """Extract the features of all prepared images."""
    from pipeline.data.feature_store import FeatureWriter
    from pipeline.data.prepared import Prepared
    from pipeline.features.extract import extract
    from pipeline.training import tracking

    p = stage.params
    prepared = Prepared.load(stage.root / "prepared")
    inputs = [stage.root / "prepared"]
    with tracking.run(stage.title, p.plain(), inputs=stage.digests(inputs)) as record:
        extract(
            prepared,
            Path(p.prepare.root) / p.prepare.images,
            stage.out,
            FeatureWriter,
            **p.features.plain(),
            seed=stage.seed,
            device=stage.device,
            on_epoch=lambda epoch, report: record.metrics(report, epoch),
        )
        record.outputs([stage.out / "manifest.json"])


if __name__ == "__main__":
    sys.exit(main("features", run))
