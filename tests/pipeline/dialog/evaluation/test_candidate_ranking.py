"""Ranks, NDCG and correlations with truth by hand."""

import math

import pytest
import torch

from pipeline.dialog.evaluation.candidate_ranking import (
    compute_candidate_ranks,
    compute_ndcg,
    correlate_with_truth,
    summarise_ranking,
)


def test_ties_count_against_the_human_answer():
    scores = torch.tensor([[3.0, 1.0, 2.0, 1.0], [5.0, 5.0, 5.0, 5.0], [0.0, 1.0, 2.0, 3.0]])
    assert compute_candidate_ranks(scores, torch.tensor([1, 0, 3])).tolist() == [4, 4, 1]


def test_large_scores_and_nan_are_ranked():
    scores = torch.tensor([[1000.0, -1000.0, 0.0], [torch.nan, 1.0, 2.0], [1.0, torch.nan, 0.0]])
    assert compute_candidate_ranks(scores, torch.tensor([0, 0, 0])).tolist() == [1, 3, 2]


def test_equal_options_do_not_improve_the_rank():
    distinct, tied = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[2.0, 2.0, 0.0]])
    assert (
        compute_candidate_ranks(distinct, torch.tensor([0])).item()
        < compute_candidate_ranks(tied, torch.tensor([0])).item()
    )


def test_a_summary_covers_every_round():
    found = summarise_ranking(torch.tensor([1, 2, 5, 20]))
    assert found["MRR"] == pytest.approx((1 + 1 / 2 + 1 / 5 + 1 / 20) / 4)
    assert [found[f"R@{k}"] for k in (1, 5, 10)] == [25.0, 75.0, 75.0]
    assert found["mean_rank"] == 7.0
    assert "NDCG" not in summarise_ranking(torch.tensor([1]), torch.tensor([torch.nan]))


def test_ndcg_by_hand():
    relevance = torch.tensor([[0.0, 1.0, 0.5, 0.0]])  # two candidates are relevant, so two ranks count
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    best = 1 + 0.5 / math.log2(3)
    assert compute_ndcg(scores, relevance).item() == pytest.approx((1 / math.log2(3)) / best)
    assert compute_ndcg(-relevance, relevance).item() == pytest.approx(0.0)
    assert compute_ndcg(relevance, relevance).item() == pytest.approx(1.0)


def test_ndcg_of_ties_is_the_mean_over_their_orders():
    relevance = torch.tensor([[1.0, 0.0, 0.0]])
    orders = [compute_ndcg(torch.tensor([s]), relevance).item() for s in ([2.0, 1.0, 0.0], [1.0, 2.0, 0.0])]
    tied = compute_ndcg(torch.tensor([[1.0, 1.0, 0.0]]), relevance).item()
    assert tied == pytest.approx(sum(orders) / 2)


def test_ndcg_is_nan_without_relevant_or_annotated_candidates():
    relevance = torch.tensor([[0.0, 0.0], [torch.nan, torch.nan], [0.0, 1.0]])
    found = compute_ndcg(torch.tensor([[1.0, 2.0]] * 3), relevance)
    assert found.isnan().tolist() == [True, True, False]
    assert summarise_ranking(torch.tensor([1, 1, 1]), found)["NDCG"] == pytest.approx(1.0)


def test_nan_scores_rank_last_in_ndcg():
    relevance = torch.tensor([[1.0, 0.0, 0.0]] * 2)
    found = compute_ndcg(torch.tensor([[torch.nan, 1.0, 2.0], [torch.nan] * 3]), relevance)
    assert found.tolist() == pytest.approx([0.0, 1 / 3])  # rank 3 has no weight; all three share the discount of rank 1


def test_equal_scores_have_no_correlation_whatever_their_rounding():
    scores = torch.full((1, 3), 1 / 5, dtype=torch.float64)
    assert correlate_with_truth(scores, torch.tensor([[1.0, 0.0, 0.0]])).isnan().all()


def test_the_correlation_with_truth_by_hand():
    """A hedge, of relevance 0.2, is not true. Without known relevance or a false candidate, the correlation is NaN."""
    scores = torch.tensor([[3.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]])
    relevance = torch.tensor([[1.0, 0.2, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [torch.nan, 0, 0, 1]])
    found = correlate_with_truth(scores, relevance)
    assert found[:2].tolist() == pytest.approx([1.0, -2 / math.sqrt(5)])
    assert found[2:].isnan().all()
