"""Priors of answers from the training dialogs as scores of candidates, against values by hand."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.dialog.data.prepared_dialogs import PreparedDialogs
from pipeline.dialog.evaluation.priors import compute_prior_scores

YES, NO, TWO, RED = range(4)


def make_dialogs() -> PreparedDialogs:
    """Return two training dialogs and a dialog to rank, whose question 3 occurs in no training dialog."""
    questions = np.array([[[1], [1], [2]], [[1], [2], [2]], [[1], [2], [3]]], np.int32)
    truth = np.array([[YES, NO, TWO], [NO, TWO, NO], [RED, RED, RED]])
    options = np.tile(np.array([YES, NO, TWO, RED], np.int32), (3, 3, 1))
    answers = np.array([[1, 0], [2, 0], [3, 0], [4, 0]], np.int32)
    return PreparedDialogs(Path(), np.ones((3, 1), np.int32), questions, options, truth.astype(np.int32), answers, None)


def test_the_prior_counts_answers_of_training_dialogs_alone():
    found = compute_prior_scores("prior", make_dialogs(), np.array([0, 1]), np.array([2]))
    assert found.tolist() == [[1, 3, 2, 0]] * 3  # RED occurs in the ranked dialog only


def test_answers_are_counted_by_question_and_then_overall():
    found = compute_prior_scores("question_prior", make_dialogs(), np.array([0, 1]), np.array([2]))
    assert found[0].tolist() == pytest.approx([1 + 1 / 7, 2 + 3 / 7, 0 + 2 / 7, 0])
    assert found[1].tolist() == pytest.approx([0 + 1 / 7, 1 + 3 / 7, 2 + 2 / 7, 0])
    assert found[2].tolist() == pytest.approx([1 / 7, 3 / 7, 2 / 7, 0])  # an unknown question


def test_chance_is_repeatable_and_differs_by_round():
    first, second = (compute_prior_scores("chance", make_dialogs(), np.array([0, 1]), np.array([2])) for _ in range(2))
    assert (first == second).all()
    assert len(np.unique(first)) == first.size
