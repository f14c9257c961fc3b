"""One question at a time gets the answer that it gets in a whole batch."""

from __future__ import annotations

import torch
from small_dialogs import VOCABULARY, batch, generator

from pipeline.channels.hard import BanToken, Beam
from pipeline.dialog.evaluation.answer_question import answer_question
from pipeline.models.unroll import generate
from pipeline.vocabulary import Vocabulary

WORDS = Vocabulary((*(f"w{n}" for n in range(1, VOCABULARY)), "UNK"))


def words(tokens: torch.Tensor) -> list[str]:
    return [WORDS.words[token - 1] for token in tokens.tolist() if token]


def test_an_answer_is_the_one_of_its_round():
    given, speaker = batch(dialogs=1, rounds=3), generator().eval()
    with torch.no_grad():
        said = generate(speaker, given, BanToken(Beam(3), WORDS.unk), torch.Generator()).tokens
    caption, *items = (words(item) for item in given.asked.history[0])
    for number in range(3):
        # how an item is divided into question and answer makes no difference
        history = [(item[:1], item[1:]) for item in items[:number]]
        question = words(given.asked.questions[number])
        found = answer_question(speaker, WORDS, given.regions[0], caption, history, question, beam=3)
        assert found == WORDS.decode(said[number].tolist())
