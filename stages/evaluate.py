"""Evaluation of one method: captions and retrieval by its judges, or, in dialogs, answers and ranked candidates.

python -m stages.evaluate --method psst_multinomial → data/evaluation/psst_multinomial: metrics, a summary of
the last of its splits, and captions.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pipeline.config.load import method_settings
from pipeline.runtime.checksums import CAPTIONS, checksummed_json
from pipeline.runtime.files import atomic_path, sha256, write_atomically
from pipeline.tracking import recorder
from pipeline.workflow.reuse import reuse_finished
from pipeline.workflow.stage import Stage, main

OUTPUTS = ("metrics.json", "summary.json", "captions.parquet")


def inputs(stage: Stage) -> list[Path]:
    """Return the inputs: the data, all pretrained models, and the model with its adapted listener if there is one."""
    models = (stage.model / name for name in ("weights.safetensors", "adapted/weights.safetensors"))
    data = (stage.root / name for name in ("prepared", "features", "pretrained"))
    return [*data, *(path for path in models if path.exists())]


def run(stage: Stage) -> None:
    """Evaluate the agents of one method on the splits of params.yaml."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline.data.image_features import load_data
    from pipeline.evaluation.summary import summary_metrics
    from pipeline.runtime import matmul_precision
    from pipeline.workflow.build_evaluation import build_evaluation, flat_numbers, load_speaker

    assert stage.instance is not None
    p = stage.settings.evaluate
    settings = method_settings(stage.settings, stage.instance)
    prepared, store = load_data(stage.root)
    speaker = load_speaker(stage.model)
    matmul_precision.choose_precision([speaker], stage.device)
    with (
        recorder.record_run(stage.title, stage.params.plain(), inputs=stage.digests(inputs(stage))) as record,
        build_evaluation(p, stage, speaker, prepared, store, settings.rerank) as evaluation,
    ):
        record.tags({"products": matmul_precision.current_precision()})
        results: dict[str, dict[str, Any]] = {}
        tables = []
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
        write_atomically(stage.out / "metrics.json", checksummed_json(metrics))
        shown = summary_metrics(results[p.splits[-1]])
        write_atomically(stage.out / "summary.json", json.dumps(shown, indent=2) + "\n")
        record.metrics(flat_numbers(results), 0)
        record.table({k: v[:100] for k, v in columns.items()}, "captions.json")
        record.outputs([stage.out / name for name in OUTPUTS])


if __name__ == "__main__":
    sys.exit(main("evaluate", reuse_finished(run, inputs, OUTPUTS)))
