from __future__ import annotations

import torch

from pipeline.evaluation.cross_play import compute_cross_play
from pipeline.evaluation.judges import JudgedCaptions, ListenerJudge

CPU = torch.device("cpu")


class ShiftedListener(torch.nn.Module):
    """A listener that takes the first token, plus `offset`, as the number of the image."""

    def __init__(self, offset: int) -> None:
        super().__init__()
        self.offset = offset

    def encode_image(self, pooled):
        return torch.eye(30)

    def encode_text(self, message):
        return torch.eye(30)[(message.tokens[:, 0] + self.offset) % 30]


def test_every_listener_ranks_every_speakers_captions():
    numbers = torch.arange(30)
    captions = {"plain": numbers[:, None], "shifted": ((numbers - 4) % 30)[:, None]}
    texts = {name: JudgedCaptions(tokens, ()) for name, tokens in captions.items()}
    judges = {
        name: ListenerJudge(ShiftedListener(offset), lambda rows: torch.zeros(30, 1), CPU)
        for name, offset in (("naive", 0), ("adapted", 4))
    }
    found = compute_cross_play(texts, judges, numbers)
    # with a wrong offset, the target ranks last: another image is better, and the other 28 tie with the target
    assert found == {
        "plain": {"naive": 100.0, "adapted": 0.0},
        "shifted": {"naive": 0.0, "adapted": 100.0},
    }
