"""Let a network see every image, or import what another one saw.

python -m stages.features → data/features: a vector and regions an image, and what they were made with.
"""

import sys
from pathlib import Path

from pipeline.stage import Stage, main


def run(stage: Stage) -> None:
    """Extract or import the features of all prepared images."""
    from pipeline.data.feature_store import FeatureWriter
    from pipeline.data.prepared import Prepared
    from pipeline.features.extract import extract
    from pipeline.features.imported import import_features
    from pipeline.training import tracking

    p = stage.params
    prepared = Prepared.load(stage.root / "prepared")
    inputs = [stage.root / "prepared"]
    settings = p.features.plain()
    imported = settings.pop("imported")
    with tracking.run(stage.title, p.plain(), inputs=stage.digests(inputs)) as record:
        if imported is not None:
            import_features(prepared.ids.to_pylist(), stage.out, FeatureWriter, **imported)
        else:
            extract(
                prepared,
                Path(p.prepare.root) / p.prepare.images,
                stage.out,
                FeatureWriter,
                **settings,
                seed=stage.seed,
                device=stage.device,
                on_epoch=lambda epoch, report: record.metrics(report, epoch),
            )
        record.outputs([stage.out / "manifest.json"])


if __name__ == "__main__":
    sys.exit(main("features", run))
