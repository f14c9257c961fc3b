"""Extraction of image features by a network, import of features, or their computation from facts.

    python -m stages.features → data/features/main
    python -m stages.features --features judge → data/features/judge

A folder of features has a vector and a set of regions per image, and the network's settings. A judge has its own
features if it does not use the main ones.

With --shard 3/8 the stage extracts the third of eight parts. A run without --shard joins the parts. features.smk
extracts shards in parallel. Until they are joined, parts lie in data/checkpoints/features.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import UserError
from pipeline.runtime.checksums import check_checksums
from pipeline.runtime.command import end_process
from pipeline.tracking import recorder
from pipeline.workflow.stage import Stage, main

KEY = re.compile(r"\bfeatures\.(network|weights|options|image_size|pca_dim)\b")


@contextmanager
def name_keys(name: str) -> Iterator[None]:
    """Insert the name of the set of features into a UserError: features.network becomes features.main.network."""
    try:
        yield
    except UserError as error:
        raise UserError(KEY.sub(rf"features.{name}.\1", str(error))) from error


def list_inputs(stage: Stage) -> list[Path]:
    """Return the prepared data, and the file of weights or the folder of a hub/ network, if given.

    The list omits images and files of imported features.
    """
    assert stage.instance is not None
    section = stage.settings.features[stage.instance]
    own_files = [Path(section.weights)] if section.weights and Path(section.weights).is_file() else []
    captioner = Path(section.network.removeprefix("hub/"))
    if section.network.startswith("hub/") and captioner.is_dir():
        own_files.append(captioner)
    return [stage.root / "prepared", *own_files]


def run(stage: Stage) -> None:
    """Extract the features of all prepared images or of one shard, import features, or compute them from facts.

    Raises UserError for a shard of imported features or of facts.
    """
    from pipeline.data.prepared import PreparedData
    from pipeline.features.extract import extract
    from pipeline.features.extractor import NetworkSettings
    from pipeline.features.imported import import_features
    from pipeline.features.network_weights import HUB
    from pipeline.slices.feature_formats import FEATURE_FORMATS
    from pipeline.worlds.annotated_objects import list_annotated_objects
    from pipeline.worlds.scenes.fact_features import write_fact_features

    assert stage.instance is not None
    section = stage.settings.features[stage.instance]
    corpus, images = Path(stage.settings.prepare.root), stage.settings.prepare.images
    if stage.root / "raw" in corpus.parents:
        check_checksums(corpus, "run the draw stage again")
    prepared = PreparedData.load(stage.root / "prepared")
    input_paths, imported = list_inputs(stage), section.imported
    if stage.shard is not None and section.network in ("imported", "facts"):
        raise UserError(f"--shard: {section.network} features are not extracted; run the stage without it")
    digests = stage.compute_digests(input_paths)
    with (
        name_keys(stage.instance),
        recorder.record_run(stage.title, stage.params.as_dict(), inputs=digests) as record,
    ):
        if imported is not None:
            import_features(
                prepared.ids.to_pylist(),
                stage.out,
                feature_format=FEATURE_FORMATS[imported.format],
                regions=imported.regions,
                max_regions=imported.max_regions,
                pooled=imported.pooled,
            )
        elif section.network == "facts":
            write_fact_features(prepared, stage.out)
        else:
            assert images is not None  # prepare.images may be null for imported features only
            assert section.batch is not None
            network = NetworkSettings(
                section.network,
                section.image_size or 0,
                section.weights or HUB,
                section.options,
                section.mean,
                section.std,
                section.grid_size,
                section.boxes.model_dump() if section.boxes else None,
                section.vector,
                section.frames,
                section.frames_per_second,
            )
            extract(
                prepared,
                corpus / images,
                stage.out,
                stage.root / "checkpoints" / "features" / stage.compute_key(input_paths),
                network,
                batch=section.batch,
                name=stage.instance,
                pca_dim=section.pca_dim,
                horizontal_flip=section.horizontal_flip,
                detector=section.detector.model_dump() if section.detector else None,
                objects=list_annotated_objects(prepared, section.frames)
                if section.network == "object_detector"
                else (),
                device=stage.device,
                on_epoch=lambda epoch, report: record.log_metrics(report, epoch),
                shard=stage.shard,
            )
        if stage.shard is None:
            record.log_outputs([stage.out / "manifest.json"])


if __name__ == "__main__":
    end_process(main("features", run))
