"""Say what each image of a split is, and let its judges look for the images; in dialogs, answer and rank candidates.

python -m stages.evaluate --method psst_multinomial → data/evaluation/psst_multinomial: metrics, a summary of
the last of its splits, and captions.
"""

import sys
from pathlib import Path

from pipeline.workflow.finished import once
from pipeline.workflow.stage import Stage, main

OUTPUTS = ("metrics.json", "summary.json", "captions.parquet")


def inputs(stage: Stage) -> list[Path]:
    """What is read: the data, all that was pretrained, and the model, with the listener that got used to it."""
    models = (stage.model / name for name in ("weights.safetensors", "adapted/weights.safetensors"))
    data = (stage.root / name for name in ("prepared", "features", "pretrained"))
    return [*data, *(path for path in models if path.exists())]


def run(stage: Stage) -> None:
    """Evaluate the agents of one method on the splits of params.yaml."""
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline.config.load import method_settings
    from pipeline.evaluation.summary import summary
    from pipeline.runtime import products
    from pipeline.runtime.files import atomic_path, sha256, write_atomically
    from pipeline.runtime.seal import CAPTIONS, sealed_json
    from pipeline.tracking import recorder
    from pipeline.workflow.build_data import data
    from pipeline.workflow.build_evaluation import evaluation_of, flat_numbers, speaker_in

    assert stage.instance is not None
    p = stage.params.evaluate
    settings = method_settings(stage.params, stage.instance)
    prepared, store = data(stage.root)
    speaker = speaker_in(stage.model)
    products.choose([speaker], stage.device)
    with (
        recorder.run(stage.title, stage.params.plain(), inputs=stage.digests(inputs(stage))) as record,
        evaluation_of(p, stage, speaker, prepared, store, settings.rerank) as evaluation,
    ):
        record.tags({"products": products.chosen()})
        results, tables = {}, []
        for split in p.splits:
            results[split], columns = evaluation.split(speaker, split)
            tables.append(pa.table(columns))
        with atomic_path(stage.out / "captions.parquet") as path:
            pq.write_table(pa.concat_tables(tables), path, compression="zstd", write_page_checksum=True)
        metrics = {
            "method": stage.instance,
            "settings": {**settings.shown, "seed": stage.seed},
            "signature": evaluation.signature(p.splits, settings.objective, settings.gamma),
            **results,
            "not_computed": evaluation.not_computed,
            CAPTIONS: sha256(stage.out / "captions.parquet"),
        }
        write_atomically(stage.out / "metrics.json", sealed_json(metrics))
        shown = summary(results[p.splits[-1]])
        write_atomically(stage.out / "summary.json", json.dumps(shown, indent=2) + "\n")
        record.metrics(flat_numbers(results), 0)
        record.table({k: v[:100] for k, v in columns.items()}, "captions.json")
        record.outputs([stage.out / name for name in OUTPUTS])


if __name__ == "__main__":
    sys.exit(main("evaluate", once(run, inputs, OUTPUTS)))
