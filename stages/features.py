"""Let a network see every image, or import what another one saw.

python -m stages.features → data/features/main: a vector and a set of regions an image, and what they were made with;
--features judge → data/features/judge, what a judge with eyes of its own sees.
With --shard 3/8 it sees the third eighth of them, for the whole to be put together without; features.smk runs shards
in parallel. What was seen lies in data/checkpoints/features until then.
"""

import sys
from dataclasses import fields
from pathlib import Path

from pipeline.errors import UserError
from pipeline.workflow.stage import Stage, main


def inputs(stage: Stage) -> list[Path]:
    """What features are made from, beside images: the prepared data, and a file of weights or a captioner's folder."""
    assert stage.instance is not None
    p = stage.params.features[stage.instance]
    brought = [Path(p.weights)] if p.weights and Path(p.weights).is_file() else []
    captioner = Path(p.network.removeprefix("hub/"))
    if p.network.startswith("hub/") and captioner.is_dir():
        brought.append(captioner)
    return [stage.root / "prepared", *brought]


def run(stage: Stage) -> None:
    """Extract the features of all prepared images, or of a shard of them, or import them."""
    from pipeline.data.feature_store import FeatureWriter
    from pipeline.data.prepared import Prepared
    from pipeline.features.extract import extract
    from pipeline.features.extractor import NetworkSettings
    from pipeline.features.imported import import_features
    from pipeline.runtime.seal import check_seal
    from pipeline.tracking import recorder
    from pipeline.workflow.build_facts import objects

    assert stage.instance is not None
    p, section = stage.params, stage.params.features[stage.instance]
    if stage.root / "raw" in Path(p.prepare.root).parents:
        check_seal(Path(p.prepare.root), "run the draw stage again")
    prepared = Prepared.load(stage.root / "prepared")
    read, settings = inputs(stage), section.plain()
    imported = settings.pop("imported")
    if imported is not None and stage.shard is not None:
        raise UserError("--shard: imported features are not extracted; run the stage without it")
    with recorder.run(stage.title, p.plain(), inputs=stage.digests(read)) as record:
        if imported is not None:
            import_features(prepared.ids.to_pylist(), stage.out, FeatureWriter, **imported)
        else:
            network = {field.name: settings.pop(field.name) for field in fields(NetworkSettings)}
            extract(
                prepared,
                Path(p.prepare.root) / p.prepare.images,
                stage.out,
                FeatureWriter,
                stage.root / "checkpoints" / "features" / stage.key(read),
                NetworkSettings(**{name: value for name, value in network.items() if value is not None}),
                **settings,
                objects=objects(prepared, section.frames) if section.network == "object_detector" else (),
                seed=stage.seed,
                device=stage.device,
                on_epoch=lambda epoch, report: record.metrics(report, epoch),
                shard=stage.shard,
            )
        if stage.shard is None:
            record.outputs([stage.out / "manifest.json"])


if __name__ == "__main__":
    sys.exit(main("features", run))
