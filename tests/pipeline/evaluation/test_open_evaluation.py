"""Evaluations that are opened with settings, and the protocol that each setting gives."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.evaluation import open_evaluation as module
from pipeline.evaluation.baseline_captions import BaselineKind
from pipeline.evaluation.evaluation_settings import EvaluationSettings, GallerySettings, RerankSettings
from pipeline.evaluation.judges import JudgeKind, JudgeSources
from pipeline.evaluation.multi_sample import MultiSample
from pipeline.evaluation.open_evaluation import EvaluationParts, open_evaluation
from pipeline.evaluation.pragmatic_captions import PragmaticCaptions
from pipeline.evaluation.rerank import Reranker
from pipeline.evaluation.set_sizes import SetSizes

PREPARED = SimpleNamespace(folder=Path("prepared"))
SOURCES = JudgeSources(Path("model"), Path("root"), PREPARED, torch.device("cpu"))
ANGLES = {"features": [0.0, 0.1, 1.0, 1.1], "retriever": [0.0, 1.0, 1.1, 0.1]}  # in radians, of image vectors


def make_vectors(kind: str, rows) -> np.ndarray:
    angles = np.array(ANGLES[kind], np.float32)[np.asarray(rows)]
    return np.stack([np.cos(angles), np.sin(angles)], 1)


STORE = SimpleNamespace(pooled=lambda rows: make_vectors("features", rows))
PARTS = EvaluationParts(
    judges=(JudgeKind("toy", lambda sources: ("judge", sources)), JudgeKind("other", lambda sources: "other judge")),
    baselines=(BaselineKind("random", lambda prepared, store: ("captioner", prepared, store)),),
    galleries={"facts": lambda prepared: ("by facts", prepared)},
    truth=lambda prepared: ("truth", prepared),
)


def make_settings(**options) -> EvaluationSettings:
    return EvaluationSettings(beam=3, metrics=("BLEU", "CIDEr"), judges={"own": "toy"}, **options)


@pytest.fixture(autouse=True)
def judges(monkeypatch):
    """Replace the own and the pretrained judges by objects that need no file."""

    def load_pretrained_judge(role, sources):
        assert sources is SOURCES
        return SimpleNamespace(encode_image=lambda rows: torch.from_numpy(make_vectors(role, rows)))

    monkeypatch.setattr(module, "open_own_judge", lambda sources: ("own listener", sources))
    monkeypatch.setattr(module, "open_pretrained_judge", load_pretrained_judge)


def test_settings_judges_and_baselines_of_a_method_reach_the_protocol():
    settings = make_settings(
        no_repeat_ngram_size=2,
        hard_gallery=GallerySettings(similarity="facts"),
        baselines={"luo": ("random",)},
        multi_sample=SetSizes(4, 5),
    )
    reranking = RerankSettings(samples=7, temperature=0.5, score="similarity")
    with open_evaluation(settings, "luo", reranking, PARTS, SOURCES, STORE) as found:
        assert (found.prepared, found.store, found.device) == (PREPARED, STORE, SOURCES.device)
        assert found.judges == {"own": ("judge", SOURCES)}
        assert (found.beam, found.no_repeat, found.multi_sample) == (3, 2, MultiSample(4, 5))
        assert (found.hard_gallery, found.hard_gallery_name) == (("by facts", PREPARED), "facts")
        assert found.baselines == {"random": ("captioner", PREPARED, STORE)}
        assert found.truth == ("truth", PREPARED)
        assert (found.rerank, found.pragmatic) == (Reranker(reranking, ("own listener", SOURCES)), None)
        assert found.language._metrics == ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr")
    with open_evaluation(settings, "mle", None, PARTS, SOURCES, STORE, (0.5, 3, "listener")) as found:
        assert found.baselines == {}
        assert found.pragmatic == PragmaticCaptions(0.5, 3, "listener", ("own listener", SOURCES))
        assert found.rerank is None


def test_a_pretrained_listener_can_rerank_samples(monkeypatch):
    monkeypatch.setattr(module, "open_pretrained_judge", lambda role, sources: (role, sources))
    reranking = RerankSettings(samples=7, listener="clip")
    with open_evaluation(make_settings(), "luo", reranking, PARTS, SOURCES, STORE) as found:
        assert found.rerank == Reranker(reranking, ("clip", SOURCES))


def test_omitted_settings_leave_parts_out():
    with open_evaluation(make_settings(), "luo", None, EvaluationParts(PARTS.judges), SOURCES, STORE) as found:
        optional_parts = (found.no_repeat, found.multi_sample, found.hard_gallery, found.hard_gallery_name, found.truth)
        assert optional_parts == (None,) * 5
        assert (found.rerank, found.pragmatic, found.baselines) == (None, None, {})


@pytest.mark.parametrize(("similarity", "nearest"), [("features", [1, 0, 3, 2]), ("retriever", [3, 2, 1, 0])])
def test_a_hard_gallery_uses_features_or_vectors_of_a_pretrained_model(similarity, nearest):
    gallery = GallerySettings(similarity=similarity, images=2)
    with open_evaluation(make_settings(hard_gallery=gallery), "luo", None, PARTS, SOURCES, STORE) as found:
        assert found.hard_gallery_name == f"{similarity}:2"
        assert found.hard_gallery(np.arange(4)).tolist() == [[each] for each in nearest]
