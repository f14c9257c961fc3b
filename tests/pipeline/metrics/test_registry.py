"""Each metric is one registry entry, from which the lists of metrics are derived."""

import subprocess
import sys

import numpy as np
import pytest

from pipeline.metrics import registry
from pipeline.metrics.language import LanguageScorer
from pipeline.metrics.registry import (
    BY_NAME,
    COUNT_METRICS,
    MEAN_METRICS,
    METRIC_NAMES,
    METRICS,
    REWARDS,
    TABLE_METRICS,
)

HUMAN = [["a dog runs through the grass", "a brown dog is running"], ["two people ride bicycles", "people on bikes"]]


def test_derived_lists_of_metrics_have_a_fixed_order():
    assert tuple(TABLE_METRICS) == ("CIDEr", "BLEU-4", "METEOR", "ROUGE-L", "SPICE", "SPIDEr")
    assert MEAN_METRICS == ("CIDEr", "METEOR", "ROUGE-L", "SPICE", "SPIDEr")
    assert METRIC_NAMES == ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr", "SPICE")
    assert METRIC_NAMES[:4] == COUNT_METRICS
    assert [metric.name for metric in METRICS if metric.best_of_beam] == ["METEOR", "CIDEr", "SPICE"]
    assert REWARDS[1:] == tuple(name for name in METRIC_NAMES if name != "CIDEr")


def test_a_metric_is_computed_in_one_way_and_a_sum_is_of_others():
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert sum(map(bool, (metric.compute, metric.start, metric.parts))) == 1, metric.name
        assert {*metric.parts} <= {*METRIC_NAMES}


@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric.compute and not metric.check])
def test_numbers_lie_in_the_range_and_higher_is_better_is_true(metric):
    with LanguageScorer(metric.names) as scorer:
        right, wrong = (
            scorer.score(captions, HUMAN) for captions in (["a dog runs", "people on bikes"], ["people", "a dog"])
        )
    low, high = metric.range
    for name in metric.names:
        each = np.concatenate([right.per_caption[name], wrong.per_caption[name]])
        assert ((each >= low) & (each <= high + 1e-9)).all(), name
        assert (right.scores[name] > wrong.scores[name]) == metric.higher_is_better, name


def test_scores_are_written_in_one_order():
    with LanguageScorer(["CIDEr", "ROUGE-L", *COUNT_METRICS]) as scorer:
        found = scorer.score(["a dog", "a cat"], HUMAN)
    assert tuple(found.scores) == (*COUNT_METRICS, "ROUGE-L", "CIDEr")


def test_the_registry_imports_no_large_package():
    code = (
        f"import sys, {registry.__name__}\n"
        "sys.exit(', '.join({'torch', 'numpy', 'pycocoevalcap', 'pandas'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
