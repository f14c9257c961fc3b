"""Scores of `saywhich.judge` for captions that the pipeline evaluated: they equal the pipeline's numbers exactly."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import saywhich
from pipeline.data.prepared import PreparedData
from pipeline.metrics.registry import METRIC_NAMES
from pipeline.worlds.fact_galleries import build_galleries_by_facts
from saywhich.evaluation_summary import read_evaluation
from saywhich.exporting import export_model
from saywhich.judging.caption_scores import ScoreKey

METRICS = ("BLEU", "ROUGE-L", "CIDEr")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mle", "psst_multinomial"])
def test_an_exported_listener_gives_the_pipelines_numbers(toy_repository, tmp_path, monkeypatch, method):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = toy_repository[0] / "data"
    export_model(data / "models" / method, tmp_path / "own")
    prepared = PreparedData.load(data / "prepared")
    rows = prepared.rows("test")
    files = prepared.files.take(rows).to_pylist()
    evaluation = data / "evaluation" / method
    table = pq.read_table(evaluation / "captions.parquet", filters=[("split", "==", "test")])
    assert table["file"].to_pylist() == files
    galleries = build_galleries_by_facts(prepared)(rows).tolist()
    found = saywhich.judge(
        dict(zip(files, table["caption"].to_pylist(), strict=True)),
        data / "raw/scenes/images",
        references={file: prepared.texts(row) for file, row in zip(files, rows, strict=True)},
        judges=[str(tmp_path / "own")],
        galleries={
            file: [files[other] for other in others if other >= 0]
            for file, others in zip(files, galleries, strict=True)
        },
        metrics=METRICS,
    )
    (row,) = found.rows
    assert [path.name for path in found.files] == [name.rpartition("/")[2] for name in files]
    expected = json.loads((evaluation / "metrics.json").read_text())["test"]
    assert row.ranks["own"].among_all.tolist() == table["rank_own"].to_pylist()
    assert row.ranks["own"].among_hard.tolist() == table["neighbourhood_own"].to_pylist()
    own = expected["judges"]["own"]
    for recall in ("R@1", "R@5", "R@10"):
        assert row.value("own", recall) == own["text_to_image"][recall]
        assert row.value("own", f"{recall} image → text") == own["image_to_text"][recall]
    assert row.value("own", "R@1 (hard)") == own["galleries"]["neighbourhood"]["R@1"]
    language = {name: row.value("", name) for name in METRIC_NAMES if ScoreKey("", name) in row.scores}
    assert language == {name: value for name, value in expected["language"].items() if name in language}
    assert len(language) == 6
    assert row.value("", "Self-BLEU") == expected["diversity"]["Self-BLEU"]
    assert row.value("", "distinct captions, %") == 100 * expected["diversity"]["distinct_captions"]
    assert row.value("", "distinct words") == expected["diversity"]["words_used"]
    assert row.value("", "with absent objects, % (CHAIR_s)") == 100 * expected["chair"]["CHAIR_s"]
    intervals = {metric["name"]: (metric["low"], metric["high"]) for metric in read_evaluation(evaluation)["metrics"]}
    assert row.compute_interval(ScoreKey("own", "R@10")) == intervals["R@10, own listener"]
    assert row.compute_interval(ScoreKey("own", "R@1 (hard)")) == intervals["R@1 (hard), own listener"]
    assert row.compute_interval(ScoreKey("", "CIDEr")) == pytest.approx(intervals["CIDEr"], abs=1e-12)
    assert np.isfinite([values.value for values in row.scores.values()]).all()
