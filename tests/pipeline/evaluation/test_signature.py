from types import SimpleNamespace

import torch

from pipeline.evaluation.evaluation_settings import RerankSettings
from pipeline.evaluation.signature import format_protocol_signature

PREPARED = SimpleNamespace(manifest={"dataset": "toy", "images": {"test": 8}}, max_words=6)
OBJECTIVE = SimpleNamespace(eos_in_reward=True, document_frequencies="train")


def test_the_signature_does_not_name_the_matmul_precision():
    signatures = []
    for precision in ("highest", "medium"):
        torch.set_float32_matmul_precision(precision)
        signatures.append(format_protocol_signature(PREPARED, 2, OBJECTIVE, ["test"], ["own"]))
    torch.set_float32_matmul_precision("highest")
    assert signatures[0] == signatures[1]


def test_the_signature_names_guidance_the_hard_gallery_and_reranking_if_used():
    plain = format_protocol_signature(PREPARED, 2, OBJECTIVE, ["test"], ["own"])
    assert "guidance" not in plain
    assert format_protocol_signature(PREPARED, 2, OBJECTIVE, ["test"], ["own"], gamma=1.0) == plain
    guided = format_protocol_signature(PREPARED, 2, OBJECTIVE, ["test"], ["own"], gamma=1.5)
    assert guided == plain.replace("|decode=beam:2|", "|decode=beam:2|guidance=1.5|")
    with_gallery = format_protocol_signature(PREPARED, 2, OBJECTIVE, ["test"], ["own"], hard_gallery="features:10")
    assert with_gallery == plain.replace("|judges=own|", "|hard-gallery=features:10|judges=own|")
    ranked = format_protocol_signature(PREPARED, 2, OBJECTIVE, ["test"], ["own"], rerank=RerankSettings(samples=20))
    assert ranked == plain.replace("|words=", "|rerank=samples:20,among:split|words=")
    tempered = format_protocol_signature(
        PREPARED, 2, OBJECTIVE, ["test"], ["own"], rerank=RerankSettings(samples=20, temperature=0.3)
    )
    assert tempered == ranked.replace("among:split|", "among:split,temperature:0.3|")
    by_similarity = format_protocol_signature(
        PREPARED, 2, OBJECTIVE, ["test"], ["own"], rerank=RerankSettings(samples=20, score="similarity")
    )
    assert by_similarity == ranked.replace("among:split", "by:similarity")
