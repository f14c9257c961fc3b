"""Claims checked on many scenes at once have the truth values of claims checked on each scene."""

import pytest

from pipeline.worlds.scenes.faithfulness import check_claims
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_captions import describe_scene
from pipeline.worlds.scenes.scene_claims import SceneClaims

ODD_CAPTIONS = [
    "two people and a dog next to a dog",
    "a man and a man behind a man on the sand",
    "a dog near a dog and a man near a man",  # a thing is not near itself
    "there is a red on the red",  # attributes without a noun
    "some animals to the right of a vehicle in the rain at night",
    "several dogs are brown and standing",
    "a bird above a bird below a kite",
    "nothing that is known",
    "",
]


@pytest.mark.parametrize("seed", [1, 2])
def test_claims_of_many_scenes_have_the_truth_values_of_each_scene(seed):
    scenes = [sample_scene(seed, n) for n in range(60)]
    captions = [caption.raw for n, scene in enumerate(scenes[:12]) for caption in describe_scene(scene, seed, n)]
    claims = SceneClaims(scenes)
    for caption in captions + ODD_CAPTIONS:
        found = claims.check(caption)
        assert all(truth.shape == (60,) for truth in found.values())
        for n, scene in enumerate(scenes):
            assert {claim: bool(truth[n]) for claim, truth in found.items()} == check_claims(caption, scene)[0], caption


def test_the_claims_of_annotators_are_true_of_their_scene():
    scenes = [sample_scene(3, n) for n in range(30)]
    claims = SceneClaims(scenes)
    for n, scene in enumerate(scenes):
        for caption in describe_scene(scene, 3, n):
            truths = claims.check(caption.raw)
            assert truths
            assert all(truth[n] for truth in truths.values())
