"""Recalls of validation, and its warnings of a collapsed speaker and of a constant listener."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pipeline.evaluation.judges import ListenerJudge
from pipeline.evaluation.validation import MIN_COUNT, Validation, _warn_of_collapse

CPU = torch.device("cpu")


def validate(toy, agents, listener_only: bool = False) -> None:
    speaker, cider = (None, None) if listener_only else (agents.speaker, toy.cider)
    Validation(speaker, agents.listener, cider, lambda: [toy.batch()], CPU, unk=-1)()


def test_a_listener_with_different_embeddings_gives_no_warning(toy, capsys):
    validate(toy, toy.agents(), listener_only=True)
    assert capsys.readouterr().err == ""


def test_recall_in_the_hard_gallery_is_among_its_images(toy, monkeypatch):
    """Only image 2 precedes image 0, no image precedes image 1, and one image precedes each of the others."""
    agents, nearest = toy.agents(), torch.eye(8)
    nearest[0, 2] = 2.0
    nearest[range(2, 8), [3, 4, 5, 6, 7, 2]] = 2.0
    monkeypatch.setattr(ListenerJudge, "embed", lambda judge, captions, rows: (nearest, torch.eye(8)))
    gallery = torch.tensor([[1, -1], [0, -1], [3, 4], [2, -1], *[[-1, -1]] * 4])
    validation = Validation(None, agents.listener, None, lambda: [toy.batch()], CPU, -1, hard_gallery=gallery)
    found = validation()
    # four images have distractors; of these, 0, 1 and 3 are first, since only image 4 precedes image 3
    assert found["hard_recall@1"] == 75.0
    assert found["recall@1"] == 12.5
    assert "hard_recall@1" not in Validation(None, agents.listener, None, lambda: [toy.batch()], CPU, unk=-1)()


def test_a_validation_judge_ranks_the_vectors_of_the_splits_images(toy):
    """Each caption is encoded as the vector of its image; no image's row equals the image's number in the split."""
    rows, agents = torch.arange(8).flip(0), toy.agents()
    judge = SimpleNamespace(vectors=torch.eye(8), encode_text=lambda message: torch.eye(8)[rows])
    batches = [replace(toy.batch(), images=rows)]
    found = Validation(agents.speaker, None, toy.cider, lambda: batches, CPU, -1, validation_judges={"judged": judge})()
    assert found["judged_recall@1"] == 100


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (0, "images of the validation split: it has collapsed; if this stays so, lower its learning rate"),
        (3, "do not end before 6 words; if this stays so, train longer"),
    ],
)
def test_a_constant_or_endless_speaker_gives_a_warning(toy, capsys, word, message):
    agents = toy.agents()
    with torch.no_grad():
        agents.speaker.logit.bias[word] = 100.0
    validate(toy, agents)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("gru", "gives all 8 compared captions of the validation split the same"),
        ("image", "gives all 8 compared images of the validation split the same"),
    ],
)
def test_a_constant_listener_gives_a_warning(toy, capsys, part, message):
    agents = toy.agents()
    with torch.no_grad():
        for name, weight in agents.listener.named_parameters():
            if name.startswith(part):
                weight.fill_(float(name == "image.bias"))
    validate(toy, agents, listener_only=True)
    assert message in capsys.readouterr().err


def test_captions_without_eos_are_counted_and_more_than_half_give_a_warning(capsys):
    ended, endless = [3, 4, 0, 0], [3, 4, 5, 6]
    for count in (4, 5):
        _warn_of_collapse(torch.tensor([endless] * count + [ended] * (8 - count)))
    assert MIN_COUNT <= 8
    assert capsys.readouterr().err == (
        "warning: 5 of 8 captions of the validation split do not end before 4 words; if this stays so, train longer, "
        "or raise prepare.max_words\n"
    )  # fmt: skip


def test_two_captions_or_few_images_give_no_warning(capsys):
    _warn_of_collapse(torch.tensor([[3, 0]] * 7 + [[4, 0]]))
    _warn_of_collapse(torch.tensor([[3, 0]] * (MIN_COUNT - 1)))
    assert capsys.readouterr().err == ""
    _warn_of_collapse(torch.tensor([[3, 0]] * MIN_COUNT))
    assert f"gives the same caption to all {MIN_COUNT} images" in capsys.readouterr().err
