"""Ranks equal a count of one pair at a time; galleries and recalls equal values computed by hand."""

import subprocess
import tracemalloc

import pytest
import torch
from preloaded_python import find_program

from pipeline.errors import UserError
from pipeline.metrics import retrieval
from pipeline.metrics.retrieval import (
    compute_recall,
    compute_recall_among,
    draw_distractors,
    find_nearest_images,
    find_similar_distractors,
    rank_captions_among,
    rank_gallery,
)

IMAGES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])


@pytest.fixture(params=[None, 1, 300])
def block_size(request, monkeypatch):
    """Set the number of scores per block: the default, 1 (one row per block), or 300."""
    if request.param is not None:
        monkeypatch.setattr(retrieval, "BLOCK_SCORES", request.param)


def rank_pairs(captions, images, owners):
    """Compute the ranks of captions and of images, one pair at a time."""
    scores, owners = (captions.double() @ images.double().T).float(), owners.tolist()
    by_caption = [sum(bool(score >= row[own]) for score in row) for row, own in zip(scores, owners, strict=True)]
    by_image = []
    for image, column in enumerate(scores.T):
        other_scores = [score for score, own in zip(column, owners, strict=True) if own != image]
        own_scores = [score for score, own in zip(column, owners, strict=True) if own == image]
        by_image.append(min(1 + sum(bool(score >= own) for score in other_scores) for own in own_scores))
    return by_caption, by_image


def test_ranks_equal_values_computed_by_hand():
    captions = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    # scores: 1, 0, .6 for the first two; 0, 1, .8; -1, 0, -.6
    found = rank_gallery(captions, IMAGES, torch.tensor([0, 1, 2, 0]))
    assert found.by_caption.tolist() == [1, 3, 2, 3]
    # image 0: its own scores 1, -1 and the others 1, 0; image 1: 0 against 0, 1, 0; image 2: .8 against .6, .6, -.6
    assert found.by_image.tolist() == [2, 4, 1]


@pytest.mark.usefixtures("block_size")
def test_equal_scores_count_against_the_caption_and_the_image():
    torch.manual_seed(0)
    collapsed = torch.randn(1, 300).expand(50, 300).contiguous()
    found = rank_gallery(collapsed, collapsed, torch.arange(50))
    assert found.by_caption.tolist() == found.by_image.tolist() == [50] * 50
    captions = torch.randn(50, 300)
    assert rank_gallery(captions, collapsed, torch.arange(50)).by_caption.tolist() == [50] * 50
    assert rank_gallery(collapsed, captions, torch.arange(50)).by_image.tolist() == [50] * 50


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("tied", [False, True])
def test_ranks_equal_a_count_of_pairs_with_several_captions_per_image(tied):
    torch.manual_seed(1)
    owners = torch.cat([torch.arange(20), torch.randint(0, 20, (43,))])[torch.randperm(63)]
    captions, images = torch.randn(63, 8), torch.randn(20, 8)
    if tied:  # signs give few different scores, so that many are equal
        captions, images = captions.sign(), images.sign()
    by_caption, by_image = rank_pairs(captions, images, owners)
    found = rank_gallery(captions, images, owners)
    assert found.by_caption.tolist() == by_caption
    assert found.by_image.tolist() == by_image


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_scores():
    """All scores would take 1 GB in single precision. A block and its intermediate tensors take 200 to 250 MB."""
    code = """
import resource, torch
from pipeline.metrics.retrieval import rank_gallery
vectors = torch.randn(16_000, 2)
rank_gallery(vectors[:100], vectors[:100], torch.arange(100), shown=5)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rank_gallery(vectors, vectors, torch.arange(16_000), shown=5)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    done = subprocess.run([find_program("python"), "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 400


def test_equal_captions_of_one_image_do_not_compete():
    captions = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
    images = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert rank_gallery(captions, images, torch.tensor([0, 0, 0, 1])).by_image.tolist() == [1, 1]
    assert rank_gallery(captions, images, torch.tensor([0, 0, 1, 1])).by_image.tolist() == [2, 1]


def test_an_image_without_a_caption_is_reported():
    with pytest.raises(UserError, match="image 1 of 3 has no caption"):
        rank_gallery(IMAGES, IMAGES, torch.tensor([0, 2, 2]))
    with pytest.raises(UserError, match="image 1 of 3 has no caption"):
        rank_captions_among(IMAGES, IMAGES, torch.tensor([0, 2, 2]), torch.tensor([[1], [2], [0]]))


def test_recall_equals_values_computed_by_hand():
    assert compute_recall(torch.tensor([1, 1, 3, 5, 6, 10, 11, 40])) == {
        "R@1": 25.0,
        "R@5": 50.0,
        "R@10": 75.0,
        "median_rank": 5.5,
        "mean_rank": 77 / 8,
    }
    with pytest.raises(UserError, match="expected one rank or more, got none"):
        compute_recall(torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_diverged_model_has_no_ranks(bad):
    broken = IMAGES.clone()
    broken[1, 1] = bad
    with pytest.raises(UserError, match="vectors of images hold NaN"):
        rank_gallery(IMAGES, broken, torch.arange(3))
    with pytest.raises(UserError, match="vectors of captions hold NaN"):
        rank_gallery(broken, IMAGES, torch.arange(3))


@pytest.mark.usefixtures("block_size")
def test_ranks_among_distractors_count_only_the_distractors():
    captions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.1]])
    images = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.1]])
    few = torch.tensor([[1, 2], [0, 2], [0, 1], [0, 1]])
    found = rank_gallery(captions, images, torch.tensor([0, 1, 2, 3]), among={"few": few})
    assert found.by_caption.tolist() == [2, 1, 2, 1]
    assert found.among["few"].tolist() == [1, 1, 2, 1]
    all_others = torch.tensor([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])
    torch.manual_seed(2)
    captions, images, owners = torch.randn(30, 5), torch.randn(4, 5), torch.arange(30) % 4
    found = rank_gallery(captions, images, owners, among={"all": all_others, "few": few})
    assert torch.equal(found.among["all"], found.by_caption)
    assert not torch.equal(found.among["few"], found.by_caption)


@pytest.mark.usefixtures("block_size")
def test_shown_images_have_the_highest_scores():
    captions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.7, 0.1]])
    assert rank_gallery(captions, IMAGES, torch.arange(3), shown=2).first.tolist() == [[0, 2], [1, 2], [0, 2]]
    assert rank_gallery(captions, IMAGES, torch.arange(3), shown=9).first.tolist() == [
        [0, 2, 1], [1, 2, 0], [0, 2, 1],
    ]  # fmt: skip
    assert rank_gallery(captions, IMAGES, torch.arange(3)).first.shape == (3, 0)


def test_random_distractors_are_others_and_different():
    drawn = draw_distractors(60, 20, seed=1)
    assert drawn.shape == (60, 20)
    assert all(len(set(row.tolist())) == 20 and n not in row for n, row in enumerate(drawn))
    assert int(drawn.min()) == 0
    assert int(drawn.max()) == 59
    assert torch.equal(drawn, draw_distractors(60, 20, seed=1))
    assert not torch.equal(drawn, draw_distractors(60, 20, seed=2))
    assert sorted(draw_distractors(4, 3, seed=0)[2].tolist()) == [0, 1, 3]
    with pytest.raises(UserError, match="galleries: expected 5 images or more for 4 distractors, got 4; use"):
        draw_distractors(4, 4, seed=0)


@pytest.mark.parametrize("images", [1, 3, 512])
def test_similar_distractors_are_the_nearest_others(monkeypatch, images):
    monkeypatch.setattr(retrieval, "BLOCK_SCORES", 5 * images)  # a block has room for the scores of `images` images
    features = torch.tensor([[10.0, 0.0], [10.1, 0.1], [0.0, 10.0], [0.2, 10.0], [5.0, 5.0]])
    found = find_similar_distractors(features, 1)
    assert found[:4].squeeze(1).tolist() == [1, 0, 3, 2]
    with pytest.raises(UserError, match="expected 6 images or more for 5 distractors, got 5; use"):
        find_similar_distractors(features, 5)


def test_similar_distractors_differ_from_the_mean_as_the_image_does():
    """The mean of all images does not count in their similarity.

    Without the mean (0, 10), the features are (1, 0), (3, .3), (1, -.3) and (-5, 0). The first has a cosine of .995
    with the second and of .958 with the third. With the mean, its cosines are .983 and .99999.
    """
    features = torch.tensor([[1.0, 10.0], [3.0, 10.3], [1.0, 9.7], [-5.0, 10.0]])
    assert find_similar_distractors(features, 2)[0].tolist() == [1, 2]


@pytest.mark.usefixtures("block_size")
def test_a_gallery_may_have_fewer_distractors_for_some_images():
    captions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.1]])
    images = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.1]])
    some = torch.tensor([[3, -1], [-1, -1], [1, 3], [-1, 0]])
    found = rank_gallery(captions, images, torch.arange(4), among={"some": some})
    assert found.among["some"].tolist() == [2, 1, 2, 1]  # image 3 ties with image 0, and image 1 ranks before image 2


def test_recall_in_small_galleries_leaves_out_galleries_without_a_possible_miss():
    ranks, sizes = torch.tensor([1, 2, 1, 6, 1, 3]), torch.tensor([2, 2, 1, 8, 8, 8])
    found = compute_recall_among(ranks, sizes)
    assert found["R@1"] == pytest.approx(40)  # 2 of 5: a gallery of one image does not count
    assert found["MRR"] == pytest.approx(100 * (1 + 1 / 2 + 1 / 6 + 1 + 1 / 3) / 5)
    assert found["R@5"] == pytest.approx(200 / 3)  # of the galleries of eight images: ranks 6, 1, 3
    assert "R@10" not in found
    assert found["random"] == pytest.approx(100 * (1 / 2 + 1 / 2 + 3 / 8) / 5)
    assert found["alone"] == 1
    assert compute_recall_among(torch.tensor([1]), torch.tensor([1])) == {"alone": 1}


def test_the_nearest_images_are_those_of_brute_force_in_blocks_of_any_size(block_size):
    vectors = torch.nn.functional.normalize(torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    gallery = torch.arange(3, 40, 2)
    found = find_nearest_images(vectors, gallery, (1, 4))
    for image in range(40):
        candidates = [row for row in gallery.tolist() if row != image]
        candidates.sort(key=lambda row: float(vectors[image] @ vectors[row]), reverse=True)
        assert found[image].tolist() == [candidates[0], candidates[3]]
    assert (found != torch.arange(40).unsqueeze(1)).all()
    vectors[5] = vectors[7]  # equal images are each other's nearest, and not their own
    assert find_nearest_images(vectors, gallery, (1,))[[5, 7]].tolist() == [[7], [5]]
    with pytest.raises(
        UserError, match=r"^retriever.hard_negative_ranks: expected ranks up to 18, .* got 19; lower the largest rank"
    ):
        find_nearest_images(vectors, gallery, (19,))


def test_drawing_a_gallery_needs_memory_for_one_image():
    """The traced memory, which excludes torch's, holds the draw of one image only."""
    tracemalloc.start()
    try:
        draw_distractors(1500, 999, 0)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_captions_are_ranked_among_those_of_an_images_distractors():
    """The second image's caption ties with the first image's best caption, which therefore has rank 2."""
    captions = torch.tensor([[0.2, 0.0, 0.0], [0.5, 0.0, 0.0], [0.5, 0.9, 0.0], [0.4, 0.0, 0.3]])
    owners, among = torch.tensor([0, 0, 1, 2]), torch.tensor([[1, 2], [2, -1], [0, 1]])
    assert rank_captions_among(captions, torch.eye(3), owners, among).tolist() == [2, 1, 1]
