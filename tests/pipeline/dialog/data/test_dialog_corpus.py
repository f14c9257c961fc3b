"""Dialogs in the prepared form and in batches: every table against the annotations, round by round."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_dialogs import make_dialogs, write_dialog_corpus

from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.dialog.data.dialog_batches import DialogBatches, iterate_rounds
from pipeline.dialog.data.prepared_dialogs import DialogLengths, PreparedDialogs
from pipeline.errors import UserError

LENGTHS = DialogLengths(caption=4, question=3, answer=3)
IMAGES, ROUNDS, OPTIONS = 7, 3, 5


@pytest.fixture(scope="module")
def raw_corpus():
    return make_dialogs()


@pytest.fixture(scope="module")
def prepared_corpus(tmp_path_factory, raw_corpus):
    return write_dialog_corpus(tmp_path_factory.mktemp("dialogs"), raw_corpus, LENGTHS)


@pytest.fixture(scope="module")
def dialogs(prepared_corpus) -> PreparedDialogs:
    return PreparedDialogs.load(prepared_corpus[0].folder)


def encode_text(prepared, text, max_tokens: int) -> list[int]:
    return prepared.vocabulary.encode(text)[:max_tokens]


def strip_padding(row) -> list[int]:
    return [int(token) for token in row if token]


def test_texts_are_clipped_and_answers_equal_after_clipping_are_merged(prepared_corpus, dialogs, raw_corpus):
    prepared, _ = prepared_corpus
    tokens = [encode_text(prepared, text, 3) for text in raw_corpus.answers]
    assert tokens[0] == tokens[1]  # "a b c d" and "a b c e"
    assert len(dialogs.answers) == len({tuple(each) for each in tokens}) < len(raw_corpus.answers)
    assert dialogs.answers.shape[1] == 4
    assert not dialogs.answers[:, 3].any()  # each ends in EOS
    assert dialogs.texts[0] == "a b c d"  # the first of the equal texts
    for i in range(IMAGES):
        assert strip_padding(dialogs.captions[i]) == encode_text(prepared, raw_corpus.captions[i], 4)
        for r in range(ROUNDS):
            assert strip_padding(dialogs.questions[i, r]) == encode_text(
                prepared, raw_corpus.questions[raw_corpus.question[i, r]], 3
            )
            candidates = [strip_padding(dialogs.answers[k]) for k in dialogs.options[i, r]]
            assert candidates == [tokens[k] for k in raw_corpus.options[i, r]]
            assert (
                strip_padding(dialogs.answers[dialogs.human_answers[i, r]])
                == tokens[raw_corpus.options[i, r][raw_corpus.truth[i, r]]]
            )
    assert (dialogs.truth == raw_corpus.truth).all()
    np.testing.assert_array_equal(dialogs.relevance, raw_corpus.relevance)
    assert (dialogs.column("kind") == raw_corpus.kinds).all()
    assert dialogs.column("refers") is None
    assert dialogs.answer_relevance() == [
        raw_corpus.answer_relevance[i, r] for i in range(IMAGES) for r in range(ROUNDS)
    ]
    assert dialogs.rounds == ROUNDS


def test_the_history_is_the_caption_and_then_each_question_with_its_answer(dialogs):
    rows = np.array([5, 0, 2])
    found = dialogs.history(rows)
    assert found.shape[:2] == (3, ROUNDS)
    for n, i in enumerate(rows):
        expected = [strip_padding(dialogs.captions[i])]
        for r in range(ROUNDS - 1):
            expected.append(
                strip_padding(dialogs.questions[i, r]) + strip_padding(dialogs.answers[dialogs.human_answers[i, r]])
            )
        for r, item in enumerate(expected):
            assert strip_padding(found[n, r]) == item
            assert found[n, r, : len(item)].tolist() == item  # words precede the padding


def test_a_batch_holds_every_round_of_its_dialogs(prepared_corpus, dialogs):
    prepared, store = prepared_corpus
    rows = np.array([1, 4, 6])
    batches = list(iterate_rounds(prepared, dialogs, store, rows, 2))
    assert [(len(batch), batch.step, batch.epoch) for batch in batches] == [(6, 0, 0), (3, 1, 0)]
    for first, batch in ((0, batches[0]), (2, batches[1])):
        for n in range(len(batch)):
            i, r = int(rows[first + n // ROUNDS]), n % ROUNDS
            assert int(batch.images[n]) == i
            torch.testing.assert_close(batch.pooled[n], torch.from_numpy(store.pooled(np.array([i]))[0]))
            assert torch.equal(batch.regions[n], batch.regions[n - r])
            assert strip_padding(batch.captions[n]) == strip_padding(dialogs.answers[dialogs.human_answers[i, r]])
            rounds = batch.questions
            assert strip_padding(rounds.questions[n]) == strip_padding(dialogs.questions[i, r])
            candidates = [strip_padding(rounds.answers[k]) for k in rounds.options[n]]
            assert candidates == [strip_padding(dialogs.answers[k]) for k in dialogs.options[i, r]]
            assert int(rounds.truth[n]) == dialogs.truth[i, r]
            assert strip_padding(rounds.history[n // ROUNDS, r]) == strip_padding(
                dialogs.history(rows)[first + n // ROUNDS, r]
            )
        assert len(batch.questions.answers) == len(np.unique(dialogs.options[batch.images[::ROUNDS].numpy()]))


def test_training_batches_are_shuffled_dialogs_with_their_rounds_together(prepared_corpus, dialogs):
    prepared, store = prepared_corpus
    rows = np.arange(IMAGES)

    def list_batches(seed: int, epoch: int = 0) -> list:
        return list(DialogBatches(prepared, dialogs, store, rows, 2, seed).epoch(epoch))

    found = list_batches(1)
    assert [(len(b), b.step) for b in found] == [(6, 0), (6, 1), (6, 2)]
    order = [b.images[::ROUNDS].tolist() for b in found]
    assert all(
        b.images.tolist() == [i for i in each for _ in range(ROUNDS)] for b, each in zip(found, order, strict=True)
    )
    assert len({i for each in order for i in each}) == 6  # seven dialogs, three batches of two
    assert order != [b.images[::ROUNDS].tolist() for b in list_batches(2)]
    later = list_batches(1, epoch=2)
    assert [(b.step, b.epoch) for b in later] == [(6, 2), (7, 2), (8, 2)]
    (in_order,) = iterate_rounds(prepared, dialogs, store, np.array(order[1]), 2)
    shuffled = found[1]
    assert torch.equal(in_order.questions.options, shuffled.questions.options)
    assert torch.equal(in_order.questions.history, shuffled.questions.history)
    assert torch.equal(in_order.captions, shuffled.captions)


def test_captions_without_dialogs_are_reported(tmp_path):
    with pytest.raises(
        UserError, match=r"the data have no dialogs; set prepare\.format: visdial and run the prepare stage"
    ):
        PreparedDialogs.load(tmp_path)


def test_the_texts_of_selected_dialogs_are_listed_with_repetitions(raw_corpus):
    mask = [False] * IMAGES
    mask[2] = mask[5] = True
    expected = []
    for i in (2, 5):
        expected.append(raw_corpus.captions[i])
        for r in range(ROUNDS):
            expected += [
                raw_corpus.questions[raw_corpus.question[i, r]],
                raw_corpus.answers[raw_corpus.options[i, r][raw_corpus.truth[i, r]]],
            ]
    assert list(raw_corpus.texts(mask)) == expected


def test_images_of_dialogs_are_never_mirrored(prepared_corpus, dialogs, tmp_path):
    # The features of image i are i, and those of its mirror image are IMAGES + i.
    prepared, rows = prepared_corpus[0], np.arange(2 * IMAGES)
    with FeatureWriter(tmp_path, IMAGES, 1, (1, 1), mirrored=True) as writer:
        writer.write(rows, rows[:, None], rows[:, None, None])
    batches = DialogBatches(prepared, dialogs, FeatureStore(tmp_path), np.arange(IMAGES), 2, seed=1)
    for epoch in range(3):
        for batch in batches.epoch(epoch):
            assert torch.equal(batch.regions[:, 0, 0], batch.images.float())
            assert torch.equal(batch.pooled[:, 0], batch.images.float())
