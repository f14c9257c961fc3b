"""Evaluation of one method: captions and retrieval by its judges, or a slice's protocol (ranked answers in dialogs).

python -m stages.evaluate --method psst_multinomial → data/evaluation/psst_multinomial: metrics, a summary of
the last split, and captions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config.load import resolve_method_settings
from pipeline.errors import UserError
from pipeline.runtime.checksums import CAPTIONS, serialise_with_checksum
from pipeline.runtime.command import end_process
from pipeline.runtime.files import atomic_path, compute_sha256, write_atomically
from pipeline.tracking import recorder
from pipeline.workflow.reuse import reuse_finished
from pipeline.workflow.stage import Stage, main

if TYPE_CHECKING:
    from pipeline.config.schema import EvaluateSection, PragmaticSettings
    from pipeline.data.feature_store import FeatureStore
    from pipeline.data.prepared import PreparedData
    from pipeline.evaluation.evaluation_settings import RerankSettings
    from pipeline.extension import SplitEvaluation
    from pipeline.models.decoder import Decoder

OUTPUTS = ("metrics.json", "summary.json", "captions.parquet")


def list_inputs(stage: Stage) -> list[Path]:
    """Return the inputs: the data, all pretrained models, and the model with its adapted listener if there is one."""
    models = (stage.model / name for name in ("weights.safetensors", "adapted/weights.safetensors"))
    data = (stage.root / name for name in ("prepared", "features", "pretrained"))
    return [*data, *(path for path in models if path.exists())]


def run(stage: Stage) -> None:
    """Evaluate the agents of one method on the splits of params.yaml."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline.data.image_features import load_data
    from pipeline.runtime import matmul_precision
    from pipeline.slices.slice_agents import load_speaker

    assert stage.instance is not None
    section = stage.settings.evaluate
    settings = resolve_method_settings(stage.settings, stage.instance)
    params = {"method": stage.instance, **settings.named_arguments, **stage.params.as_dict()}
    prepared, store = load_data(stage.root)
    speaker = load_speaker(stage.model)
    matmul_precision.choose_precision([speaker], stage.device)
    with (
        recorder.record_run(stage.title, params, inputs=stage.compute_digests(list_inputs(stage))) as record,
        build_evaluation(section, stage, speaker, prepared, store, settings.rerank, settings.pragmatic) as evaluation,
    ):
        record.set_tags({"matmul_precision": matmul_precision.get_current_precision()})
        results: dict[str, dict[str, Any]] = {}
        tables = []
        for split in section.splits:
            results[split], columns = evaluation.evaluate_split(speaker, split)
            tables.append(pa.table(columns))
        with atomic_path(stage.out / "captions.parquet") as path:
            pq.write_table(pa.concat_tables(tables), path, compression="zstd", write_page_checksum=True)
        metrics = {
            "method": stage.instance,
            "settings": {**settings.named_arguments, "seed": stage.seed},
            "signature": evaluation.signature(section.splits, settings.objective, settings.gamma),
            **results,
            "not_computed": evaluation.not_computed,
            CAPTIONS: compute_sha256(stage.out / "captions.parquet"),
        }
        write_atomically(stage.out / "metrics.json", serialise_with_checksum(metrics))
        summary = evaluation.summarise(results[section.splits[-1]])
        write_atomically(stage.out / "summary.json", json.dumps(summary, indent=2) + "\n")
        record.log_metrics(summary | flatten_numbers(results), 0)
        record.log_table({k: v[:100] for k, v in columns.items()}, "captions.json")
        record.log_outputs([stage.out / name for name in OUTPUTS])


@contextmanager
def build_evaluation(
    settings: EvaluateSection,
    stage: Stage,
    speaker: Decoder,
    prepared: PreparedData,
    store: FeatureStore,
    rerank: RerankSettings | None = None,
    pragmatic: PragmaticSettings | None = None,
) -> Iterator[SplitEvaluation]:
    """Yield the evaluation protocol for captions, or the protocol of the slice that owns the speaker.

    Raises UserError for `pragmatic` with a slice's speaker, and for `rerank` where the slice does not support it.
    """
    from pipeline.evaluation.judge_names import ADAPTED, OWN
    from pipeline.evaluation.judges import JudgeSources
    from pipeline.evaluation.open_evaluation import open_evaluation
    from pipeline.slices.evaluation_parts import EVALUATION
    from pipeline.slices.slice_agents import SLICES, find_owner

    method, device = str(stage.instance), stage.device
    if owner := find_owner(SLICES, [speaker]):
        if pragmatic is not None:
            raise UserError(f"methods.{method}.pragmatic: applies to captions only; remove it from the method's block")
        pretrained, own_folders = stage.root / "pretrained", {OWN: stage.model, ADAPTED: stage.model / "adapted"}
        folders = {name: own_folders.get(source, pretrained / source) for name, source in settings.judges.items()}
        samples = None if rerank is None else rerank.samples
        yield owner.build_evaluation(settings, prepared, store, folders, pretrained, method, samples, device)
        return
    sources = JudgeSources(stage.model, stage.root, prepared, device)
    decoding = None if pragmatic is None else (pragmatic.alpha, pragmatic.distractors, pragmatic.posterior)
    with open_evaluation(settings, method, rerank, EVALUATION, sources, store, decoding) as evaluation:
        yield evaluation


def flatten_numbers(results: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers in nested `results` by their names, joined by slashes."""
    numbers: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            numbers |= flatten_numbers(value, f"{prefix}{name}/")
        else:
            numbers[f"{prefix}{name}"] = float(value)
    return numbers


if __name__ == "__main__":
    end_process(main("evaluate", reuse_finished(run, list_inputs, OUTPUTS)))
