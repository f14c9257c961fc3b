"""A check that a pragmatic decoder selects rows and their states together."""

from __future__ import annotations

import torch

from pipeline.models.decoder import RolloutDropout
from pipeline.models.pragmatic_decoder import PragmaticDecoder
from pipeline.models.retrieval_pragmatics import RetrievalPragmaticDecoder
from pipeline.random import BatchRandom
from pipeline.types import Batch


@torch.no_grad()
def check_selected_rows(pragmatic: PragmaticDecoder | RetrievalPragmaticDecoder, batch: Batch) -> None:
    """Check that a step of selected rows equals these rows of a step of all rows, two steps after BOS."""
    drop = RolloutDropout(0.0, BatchRandom(batch, None))
    first = torch.full((len(batch),), pragmatic.vocabulary + 1)
    _, state = pragmatic.step(pragmatic.word(first), pragmatic.begin(batch, pragmatic.encode_image(batch), drop, 1))
    _, state = pragmatic.step(pragmatic.word(1 + torch.arange(len(batch)) % 5), state)
    rows, last = torch.tensor([5, 0, 0, 3]), torch.arange(len(batch)) % 7
    expected, _ = pragmatic.step(pragmatic.word(last), state)
    found, _ = pragmatic.step(pragmatic.word(last[rows]), pragmatic.select(state, rows))
    torch.testing.assert_close(found, expected[rows])
