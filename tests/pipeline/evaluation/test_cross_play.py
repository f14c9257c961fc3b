from __future__ import annotations

import torch

from pipeline.evaluation.cross_play import cross_play
from pipeline.evaluation.judges import JudgedCaptions, ListenerJudge

CPU = torch.device("cpu")


class Shifted(torch.nn.Module):
    """A listener that takes the first token, plus `by`, as the number of the image."""

    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by

    def encode_image(self, pooled):
        return torch.eye(30)

    def encode_text(self, message):
        return torch.eye(30)[(message.tokens[:, 0] + self.by) % 30]


def test_every_listener_ranks_every_speakers_captions():
    numbers = torch.arange(30)
    captions = {"plain": numbers[:, None], "shifted": ((numbers - 4) % 30)[:, None]}
    texts = {name: JudgedCaptions(tokens, ()) for name, tokens in captions.items()}
    judges = {
        name: ListenerJudge(Shifted(by), lambda rows: torch.zeros(30, 1), CPU)
        for name, by in (("naive", 0), ("used to it", 4))
    }
    found = cross_play(texts, judges, numbers)
    # a listener of another number ranks the image last: 28 others tie with it, and one is better
    assert found == {
        "plain": {"naive": 100.0, "used to it": 0.0},
        "shifted": {"naive": 0.0, "used to it": 100.0},
    }
