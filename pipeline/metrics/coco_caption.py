"""BLEU, ROUGE-L, CIDEr and SPICE of tokenised captions, as pycocoevalcap computes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.metrics import java
from pipeline.metrics.java import Score


def compute_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float) -> Iterable[Score]:
    """Return BLEU-1 … BLEU-4."""
    from pycocoevalcap.bleu.bleu import Bleu

    return zip(*Bleu(4).compute_score(*_index_captions(hypotheses, references), verbose=0), strict=True)


def compute_rouge_l(hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float) -> Iterable[Score]:
    """Return ROUGE-L."""
    from pycocoevalcap.rouge.rouge import Rouge

    return [Rouge().compute_score(*_index_captions(hypotheses, references))]


def compute_cider(hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float) -> Iterable[Score]:
    """Return CIDEr, with document frequencies from the references."""
    from pycocoevalcap.cider.cider import Cider

    return [Cider().compute_score(*_index_captions(hypotheses, references))]


def compute_spice(hypotheses: Sequence[str], references: Sequence[Sequence[str]], timeout: float) -> Iterable[Score]:
    """Return SPICE, which a Java program computes. Raises NotComputedError as `java.compute_spice` does."""
    return [java.compute_spice(hypotheses, references, timeout)]


def require_spice() -> None:
    """Raise NotComputedError where the files of SPICE's parser are missing."""
    java.find_spice_jar()


def _index_captions(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[int, Sequence[str]], dict[int, list[str]]]:
    return dict(enumerate(references)), {i: [text] for i, text in enumerate(hypotheses)}
