"""LSTM that generates answers in dialogs."""

from __future__ import annotations

from torch import Tensor

from pipeline.models.constructor_arguments import collect_constructor_arguments
from pipeline.models.decoder import RolloutDropout
from pipeline.models.lstm import LstmDecoder, LstmState
from pipeline.types import Batch


class DialogLstm(LstmDecoder):
    """LSTM decoder of dialogs, whose input before BOS is the projected encoding.

    The decoder takes (B, 3, H) in place of regions: the encoding, then the initial hidden and cell states.
    """

    def __init__(
        self, vocabulary: int, region_size: int, words: int = 300, dropout: float = 0.5, max_words: int = 9
    ) -> None:
        """Build the layers; `region_size` is H, the size of the encoding and of the decoder's states."""
        arguments = collect_constructor_arguments(locals())
        super().__init__(vocabulary, (region_size, words), words, region_size, max_words, dropout, arguments)

    def encode_image(self, batch: Batch) -> Tensor:
        return batch.regions

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> LstmState:
        encoding, h, c = encoded.unbind(1)
        h, c = self._step(self.region(encoding), h, c)
        return self._start(h, c, drop, width)
