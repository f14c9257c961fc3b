from types import SimpleNamespace

from pipeline.evaluation.signature import signature


def test_guidance_is_said_where_there_is_some():
    prepared = SimpleNamespace(manifest={"dataset": "toy", "images": {"test": 8}}, max_words=6)
    objective = SimpleNamespace(eos_in_reward=True, document_frequencies="train")
    plain = signature(prepared, 2, objective, ["test"], ["own"])
    assert "guidance" not in plain
    assert signature(prepared, 2, objective, ["test"], ["own"], gamma=1.0) == plain
    guided = signature(prepared, 2, objective, ["test"], ["own"], gamma=1.5)
    assert guided == plain.replace("|decode=beam:2|", "|decode=beam:2|guidance=1.5|")
    near = signature(prepared, 2, objective, ["test"], ["own"], near="features:10")
    assert near == plain.replace("|judges=own|", "|near=features:10|judges=own|")
