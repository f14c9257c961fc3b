import pytest
import torch

from pipeline.errors import UserError
from pipeline.metrics.retrieval import best, best_of, random_distractors, ranks, recall, similar_distractors

GALLERY = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])


def test_ranks_by_hand():
    queries = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    # scores: 1, 0, .6 for the first two; 0, 1, .8; −1, 0, −.6
    assert ranks(queries, GALLERY, torch.tensor([0, 1, 2, 0])).tolist() == [1, 3, 2, 3]


@pytest.mark.parametrize("block", [1, 7, 512])
def test_equal_scores_count_against_the_caption(block):
    torch.manual_seed(0)
    one = torch.randn(1, 300)
    collapsed = one.expand(50, 300).contiguous()
    assert ranks(collapsed, collapsed, torch.arange(50), block=block).tolist() == [50] * 50
    queries = torch.randn(9, 300)
    assert ranks(queries, collapsed, torch.arange(9), block=block).tolist() == [50] * 9


def test_blocks_change_nothing():
    torch.manual_seed(1)
    queries, gallery, targets = torch.randn(23, 8), torch.randn(40, 8), torch.randint(0, 40, (23,))
    scores = queries @ gallery.T
    expected = [int((row >= row[target]).sum()) for row, target in zip(scores, targets, strict=True)]
    assert ranks(queries, gallery, targets).tolist() == expected
    assert ranks(queries, gallery, targets, block=5).tolist() == expected


def test_equal_captions_of_one_image_do_not_compete():
    images = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    captions = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
    owners = torch.tensor([0, 0, 1, 1])
    targets = torch.arange(4)
    assert ranks(images[owners], captions, targets).tolist() == [3, 3, 4, 1]
    assert ranks(images[owners], captions, targets, owners=owners).tolist() == [2, 2, 3, 1]


def test_best_of_takes_the_best_caption_of_each_image():
    assert best_of(torch.tensor([4, 2, 9, 1, 3]), torch.tensor([0, 0, 2, 1, 2]), 3).tolist() == [2, 1, 3]
    with pytest.raises(UserError, match="image 1 of 3"):
        best_of(torch.tensor([4, 2]), torch.tensor([0, 2]), 3)


def test_recall_by_hand():
    assert recall(torch.tensor([1, 1, 3, 5, 6, 10, 11, 40])) == {
        "R@1": 25.0,
        "R@5": 50.0,
        "R@10": 75.0,
        "median_rank": 5.5,
        "mean_rank": 77 / 8,
    }
    with pytest.raises(UserError, match="no ranks"):
        recall(torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_diverged_model_has_no_ranks(bad):
    broken = GALLERY.clone()
    broken[1, 1] = bad
    with pytest.raises(UserError, match="gallery hold NaN"):
        ranks(GALLERY, broken, torch.arange(3))
    with pytest.raises(UserError, match="queries hold NaN"):
        ranks(broken, GALLERY, torch.arange(3))


def test_ranks_among_distractors_count_those_only():
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    gallery = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.1]])
    among = torch.tensor([[1, 2], [0, 2], [0, 1], [0, 1]])
    assert ranks(queries, gallery, torch.tensor([0, 2])).tolist() == [2, 2]
    assert ranks(queries, gallery, torch.tensor([0, 2]), among=among).tolist() == [1, 2]
    everyone = torch.tensor([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])
    torch.manual_seed(2)
    queries, gallery, targets = torch.randn(30, 5), torch.randn(4, 5), torch.randint(0, 4, (30,))
    whole = ranks(queries, gallery, targets)
    assert torch.equal(ranks(queries, gallery, targets, among=everyone, block=7), whole)


def test_the_best_come_first():
    assert best(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), GALLERY, 2).tolist() == [[0, 2], [1, 2]]
    assert best(torch.tensor([[1.0, 0.0]]), GALLERY, 9).tolist() == [[0, 2, 1]]


def test_random_distractors_are_others_and_different():
    drawn = random_distractors(60, 20, seed=1)
    assert drawn.shape == (60, 20)
    assert all(len(set(row.tolist())) == 20 and n not in row for n, row in enumerate(drawn))
    assert int(drawn.min()) == 0
    assert int(drawn.max()) == 59
    assert torch.equal(drawn, random_distractors(60, 20, seed=1))
    assert not torch.equal(drawn, random_distractors(60, 20, seed=2))
    assert sorted(random_distractors(4, 3, seed=0)[2].tolist()) == [0, 1, 3]
    with pytest.raises(UserError, match="4 distractors an image, but there are only 3"):
        random_distractors(4, 4, seed=0)


@pytest.mark.parametrize("block", [1, 3, 512])
def test_similar_distractors_are_the_nearest_others(block):
    features = torch.tensor([[10.0, 0.0], [10.1, 0.1], [0.0, 10.0], [0.2, 10.0], [5.0, 5.0]])
    found = similar_distractors(features, 1, block=block)
    assert found[:4].squeeze(1).tolist() == [1, 0, 3, 2]
    with pytest.raises(UserError, match="only 4 other images"):
        similar_distractors(features, 5)
