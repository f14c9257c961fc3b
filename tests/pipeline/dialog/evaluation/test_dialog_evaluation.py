"""The protocol of visual dialog on a small data set: rankers, candidates, and statistics of the answers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from module_modes import record_modes
from small_dialogs import make_dialogs, make_encoder, write_dialog_corpus

from pipeline.channels.hard import Beam
from pipeline.dialog.data.dialog_batches import iterate_rounds
from pipeline.dialog.data.prepared_dialogs import DialogLengths, PreparedDialogs
from pipeline.dialog.evaluation.candidate_ranking import compute_candidate_ranks, compute_ndcg, summarise_ranking
from pipeline.dialog.evaluation.dialog_evaluation import DialogEvaluation, _measure_human_preference
from pipeline.dialog.evaluation.priors import compute_prior_scores
from pipeline.dialog.models.dialog_decoder import DialogDecoder
from pipeline.dialog.models.dialog_lstm import DialogLstm
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.evaluation.generate import generate_captions
from pipeline.models.unroll import teacher_force

CPU, ROUNDS, OPTIONS = torch.device("cpu"), 3, 5
WORDS = 9  # V, UNK included


@pytest.fixture(scope="module")
def prepared_corpus(tmp_path_factory):
    return write_dialog_corpus(tmp_path_factory.mktemp("dialogs"), make_dialogs(images=150), DialogLengths(4, 3, 3))


@pytest.fixture(scope="module")
def dialogs(prepared_corpus) -> PreparedDialogs:
    return PreparedDialogs.load(prepared_corpus[0].folder)


@pytest.fixture(scope="module")
def speaker() -> DialogDecoder:
    torch.manual_seed(0)
    decoder = DialogDecoder(make_encoder("hciae", 0.4), DialogLstm(WORDS, 8, 7, 0.4, 4))
    with torch.no_grad():
        decoder.logit.weight *= 4
        decoder.logit.bias[WORDS] += 3  # UNK
    return decoder.train()


@pytest.fixture(scope="module")
def judges() -> dict[str, Discriminator]:
    torch.manual_seed(1)
    return {name: Discriminator(make_encoder("hciae", 0.4), WORDS, "last", 0.4) for name in ("own", "other")}


@pytest.fixture(scope="module")
def evaluated_split(prepared_corpus, speaker, judges):
    rankers = {"d": judges["other"], "prior": "prior"}
    evaluation = DialogEvaluation(*prepared_corpus, {"own": judges["own"]}, 3, CPU, rankers)
    with record_modes() as modes:
        split = evaluation.evaluate_split(speaker, "val")
    assert set(modes) == {(False, False)}, "networks must run without dropout and without a graph"
    return evaluation, *split


@pytest.fixture(scope="module")
def batch(prepared_corpus, dialogs):
    (whole,) = iterate_rounds(*prepared_corpus[:1], dialogs, prepared_corpus[1], prepared_corpus[0].rows("val"), 1000)
    return whole


def compute_likelihoods(speaker, batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (N, O) twice: log p of every candidate, and its number of tokens with EOS."""
    sums, counts = [], []
    for option in range(OPTIONS):
        with torch.no_grad():
            message = teacher_force(
                speaker.eval(), replace(batch, captions=batch.questions.answers[batch.questions.options[:, option]])
            )
        sums.append(message.log_probs.sum(1))
        counts.append(message.mask.sum(1))
    return torch.stack(sums, 1), torch.stack(counts, 1)


def rank_human_answers(scores: torch.Tensor, batch) -> list[int]:
    """Return 1 + the number of other candidates that score at least as much as the human answer."""
    own = scores.gather(1, batch.questions.truth.unsqueeze(1))
    return (scores >= own - 1e-6).sum(1).tolist()


def test_candidates_are_ranked_by_summed_and_by_mean_likelihood(
    evaluated_split, speaker, batch, dialogs, prepared_corpus
):
    _, results, columns = evaluated_split
    sums, counts = compute_likelihoods(speaker, batch)
    assert columns["rank"] == rank_human_answers(sums, batch)
    assert results["ranking_per_word"] == summarise_ranking(torch.tensor(rank_human_answers(sums / counts, batch)))
    relevance = torch.from_numpy(dialogs.relevance[prepared_corpus[0].rows("val")]).flatten(0, 1)
    gains = compute_ndcg(sums, relevance)
    torch.testing.assert_close(torch.tensor(columns["ndcg"]), gains, equal_nan=True)
    assert results["ranking"] == pytest.approx(
        summarise_ranking(compute_candidate_ranks(sums, batch.questions.truth), gains)
    )
    for n, row in enumerate(sums.tolist()):
        options = dialogs.options[int(batch.images[n]), n % ROUNDS]
        score_of = dict(zip((dialogs.texts[k] for k in options), row, strict=True))
        found = [score_of[text] for text in columns["best"][n]]
        assert found == pytest.approx(sorted(row, reverse=True), abs=1e-5)  # the best candidate is first
    kinds = dialogs.column("kind")[prepared_corpus[0].rows("val")].ravel()
    for kind in ("colour", "count"):
        reciprocals = [1 / rank for rank, other in zip(columns["rank"], kinds, strict=True) if other == kind]
        assert results["kinds"][kind] == pytest.approx(sum(reciprocals) / len(reciprocals))


def test_discriminators_and_priors_rank_the_same_candidates(evaluated_split, judges, batch, dialogs, prepared_corpus):
    _, results, columns = evaluated_split
    for name, judge in (("own", judges["own"]), ("d", judges["other"])):
        with torch.no_grad():
            judge.eval()
            scores = (judge.encode_question(batch) @ judge.encode_answers(batch.questions.answers).T).gather(
                1, batch.questions.options
            )
        assert columns[f"rank_{name}"] == rank_human_answers(scores, batch)
    assert results["judges"]["own"]["ranking"]["MRR"] == pytest.approx(np.mean([1 / p for p in columns["rank_own"]]))
    assert "human_preferred" not in results["rankers"]["d"]
    prepared = prepared_corpus[0]
    scores = torch.from_numpy(compute_prior_scores("prior", dialogs, prepared.rows("train"), prepared.rows("val")))
    assert columns["rank_prior"] == rank_human_answers(scores, batch)
    assert set(results["rankers"]) == {"d", "prior"}


def test_answers_are_generated_by_the_beam_and_compared_with_human_answers(
    evaluated_split, speaker, judges, prepared_corpus, dialogs, batch
):
    _, results, columns = evaluated_split
    prepared, unk = prepared_corpus[0], prepared_corpus[0].vocabulary.unk
    for beam, same in ((3, True), (1, False)):
        rounds = iterate_rounds(prepared, dialogs, prepared_corpus[1], prepared.rows("val"), 16)
        generated = generate_captions(speaker, rounds, Beam(beam), CPU, unk).tokens[:, 0]
        texts = [prepared.vocabulary.decode(row) for row in generated.tolist()]
        assert (columns["answer"] == texts) is same
        if same:
            tokens = generated
    assert not any("UNK" in text for text in columns["answer"])
    human = [prepared.vocabulary.decode(row) for row in batch.captions.tolist()]
    assert columns["human"] == human
    judge, preferences = judges["own"].eval(), []
    with torch.no_grad():
        encodings, answer_vectors, human_vectors = (
            judge.encode_question(batch),
            judge.encode_answers(tokens),
            judge.encode_answers(batch.captions),
        )
    for n in range(len(batch)):
        if columns["answer"][n] != human[n]:
            preferences.append(float(encodings[n] @ (human_vectors[n] - answer_vectors[n])) > 0)
    assert results["judges"]["own"]["human_preferred"] == pytest.approx(100 * sum(preferences) / len(preferences))
    assert 0 < sum(preferences) < len(preferences)
    relevance = dialogs.answer_relevance()
    for source, name in (("answer", "answers"), ("human", "human_answers")):
        relevances = [
            relevance[int(i) * ROUNDS + n % ROUNDS].get(columns[source][n], 0.0)
            for n, i in enumerate(batch.images.tolist())
        ]
        assert columns[f"relevance_{source}"] == relevances
        assert results[name]["true"] == pytest.approx(relevances.count(1.0) / len(relevances))
        assert results[name]["relevance"] == pytest.approx(sum(relevances) / len(relevances))


def test_rows_name_the_image_the_round_and_the_attention(evaluated_split, speaker, prepared_corpus, dialogs, batch):
    evaluation, results, columns = evaluated_split
    rows = prepared_corpus[0].rows("val")
    assert results["images"] == len(rows)
    assert columns["image"] == [int(i) for i in rows for _ in range(ROUNDS)]
    assert columns["id"] == [str(100 + i) for i in rows for _ in range(ROUNDS)]
    assert columns["file"] == [f"{i}.jpg" for i in rows for _ in range(ROUNDS)]
    assert columns["round"] == list(range(1, ROUNDS + 1)) * len(rows)
    assert set(columns["split"]) == {"val"}
    decode = prepared_corpus[0].vocabulary.decode
    assert columns["question"] == [decode(row) for row in batch.questions.questions.tolist()]
    assert columns["caption"] == [decode(row) for row in np.repeat(dialogs.captions[rows], ROUNDS, 0).tolist()]
    history, regions = speaker.eval().encoder.compute_attention_shares(batch, speaker.word)
    np.testing.assert_allclose(columns["history_shares"], history.numpy(), atol=6e-4)
    np.testing.assert_allclose(columns["regions_shares"], regions.numpy(), atol=6e-4)
    assert math.isclose(sum(columns["regions_shares"][0]), 1, abs_tol=5e-3)
    signature = evaluation.signature(("val", "test"), None, 1.0)
    assert f"dialogs=val:{len(rows)}+test:{len(prepared_corpus[0].rows('test'))}|candidates=5|" in signature
    assert "|judges=own|decode=beam:3|words=<=3,no UNK|" in signature


def test_equal_scores_of_both_answers_count_as_no_preference_for_the_human_answer():
    gains = torch.tensor([1.0, 0.0, -1.0, torch.nan, 2.0])  # NaN: both answers of the round are equal
    assert _measure_human_preference(gains) == {"human_preferred": 50.0}
    assert _measure_human_preference(gains[3:4]) == {}
