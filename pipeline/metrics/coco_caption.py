"""BLEU, ROUGE-L, CIDEr, SPICE and METEOR of tokenised captions, as pycocoevalcap computes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.metrics import java, shared_meteor
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


def start_meteor(timeout: float) -> java.Meteor | shared_meteor.SharedMeteor:
    """Return a connection to the grid's METEOR server if there is a server, or else a new process of METEOR.

    Raises NotComputedError if there is no server and no Java runs.
    """
    return shared_meteor.connect_meteor(timeout)


def require_spice() -> None:
    """Raise NotComputedError where the files of SPICE's parser are missing."""
    java.find_spice_jar()


def _index_captions(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[int, Sequence[str]], dict[int, list[str]]]:
    return dict(enumerate(references)), {i: [text] for i, text in enumerate(hypotheses)}
