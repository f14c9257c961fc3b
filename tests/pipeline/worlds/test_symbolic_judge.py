"""The symbolic judge against scores by hand."""

from math import log
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline.errors import UserError
from pipeline.evaluation.hard_gallery import find_galleries_by_key
from pipeline.evaluation.judges import JudgedCaptions, judge_retrieval
from pipeline.worlds.scenes.known_scenes import require_facts
from pipeline.worlds.scenes.scene_claims import SceneClaims
from pipeline.worlds.scenes.scene_facts import Scene, Thing
from pipeline.worlds.symbolic_judge import SYMBOLIC, SymbolicJudge

BOX = (0.1, 0.5, 0.3, 0.8)


def make_scene(category: str, colour: str, setting: str = "park", weather: str = "sunny") -> Scene:
    thing = Thing(category, colour, "plain", "medium", 1, "standing", "ground", "left", (BOX,), BOX)
    return Scene(setting, weather, "day", 0.45, 0.45, {}, (thing,))


# images 0 … 3 are for training, and 4 … 7 are the gallery
SCENES = [
    make_scene("dog", "brown"),
    make_scene("dog", "black"),
    make_scene("cat", "black", "beach"),
    make_scene("cat", "white"),
    make_scene("dog", "brown"),
    make_scene("dog", "white"),
    make_scene("cat", "brown", "beach"),
    make_scene("cat", "brown", "beach"),
]
PREPARED = SimpleNamespace(
    folder=Path("prepared"),
    ids=pa.array([str(n) for n in range(8)]),
    rows=lambda split: {"train": np.arange(4), "test": np.arange(4, 8)}[split],
)


FACTS = {str(n): scene for n, scene in enumerate(SCENES)}
GALLERY = torch.arange(4, 8)


@pytest.fixture
def judge():
    return SymbolicJudge(SceneClaims(SCENES), PREPARED.rows("train"))


def compute_scores(judge, *texts):
    text_vectors, image_vectors = judge.embed(JudgedCaptions(torch.zeros(len(texts), 1), texts), GALLERY)
    return (text_vectors @ image_vectors.T).numpy()


def test_claims_add_or_subtract_their_weight_by_their_truth(judge):
    # weights of claims that are true of two, one and none of four images
    two, one, none = -log(2.5 / 5), -log(1.5 / 5), -log(0.5 / 5)
    found = compute_scores(judge, "a dog", "a brown dog", "on the beach", "two dogs", "the weather")
    # “a dog” claims the category and the count 1
    np.testing.assert_allclose(found[0], 2 * two * np.array([1, 1, -1, -1]), atol=1e-3)
    # “a brown dog” also claims the colour, which is true of one dog in training
    np.testing.assert_allclose(found[1], [2 * two + one, 2 * two - one, -2 * two - one, -2 * two - one], atol=1e-3)
    np.testing.assert_allclose(found[2], one * np.array([-1, -1, 1, 1]), atol=1e-3)
    np.testing.assert_allclose(found[3], [two - none] * 2 + [-two - none] * 2, atol=1e-3)
    np.testing.assert_array_equal(found[4], [0, 0, 0, 0])


def test_ties_count_against_the_caption_among_all_images_and_in_the_hard_gallery(judge):
    captions = JudgedCaptions(
        torch.zeros(4, 1), ["a brown dog", "a dog in the park", "a cat on the beach", "at the park"]
    )
    galleries = {"hard": find_galleries_by_key([(s.setting, s.weather, s.light) for s in SCENES[4:]])}
    found = judge_retrieval(judge, captions, torch.arange(4), GALLERY, galleries)
    # the second dog ties with the first, and the two cats tie; the last caption is false of its image
    assert found.by_caption.tolist() == [1, 2, 2, 4]
    assert found.among["hard"].tolist() == [1, 2, 2, 2]
    assert found.galleries["hard"] == {"R@1": 25.0, "MRR": 62.5, "random": 50.0, "alone": 0.0}


def test_the_order_of_claims_changes_no_bit_of_a_score(judge):
    """The sums of these weights would depend on the order if the weights were not rounded."""
    phrases = ("a brown dog", "a black cat", "three black horses")
    one, other = compute_scores(judge, " and ".join(phrases), " and ".join(reversed(phrases)))
    assert (one == other).all()


def test_an_image_without_facts_is_reported():
    assert SYMBOLIC.needs_facts, "photos must not have this judge"
    with pytest.raises(UserError, match="prepared: no facts of image 7; run the prepare stage again"):
        require_facts(PREPARED, {name: FACTS[name] for name in list(FACTS)[:7]}, np.arange(8))
