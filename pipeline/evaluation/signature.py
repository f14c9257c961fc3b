"""The protocol signature: all conditions that comparable results share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

from pipeline.data.prepared import PreparedData
from pipeline.evaluation.judge_names import OWN
from pipeline.evaluation.multi_sample import MultiSample
from pipeline.evaluation.rerank_scores import MARGIN

if TYPE_CHECKING:
    from pipeline.evaluation.evaluation_settings import RerankSettings


class RewardProtocol(Protocol):
    """Settings of the CIDEr-D reward that the signature names."""

    @property
    def eos_in_reward(self) -> bool: ...

    @property
    def document_frequencies(self) -> str: ...


def format_protocol_signature(
    prepared: PreparedData,
    beam: int,
    objective: RewardProtocol,
    splits: Sequence[str],
    judges: Iterable[str],
    multi_sample: MultiSample | None = None,
    gamma: float = 1.0,
    hard_gallery: str | None = None,
    no_repeat: int | None = None,
    rerank: RerankSettings | None = None,
    pragmatic: tuple[float, int, str] | None = None,
) -> str:
    """Return one line like sacreBLEU's: data, galleries, judges, recall, ties, decoding, words, reward and versions.

    `gamma`, the guidance scale, appears unless it is 1. The other optional parts appear if given. `hard_gallery` is the
    definition of the hard gallery. `no_repeat` is the length of the n-grams that no caption repeats. `rerank` holds the
    number of ranked samples. Their temperature appears unless it is 1. The score appears unless it is the margin. The
    listener appears unless it is the method's own. `pragmatic` holds the exponent alpha, the number of distractors and
    the posterior.
    """
    images = prepared.manifest["images"]
    parts = {
        "data": prepared.manifest["dataset"],
        "gallery": "+".join(f"{split}:{images[split]}" for split in splits),
        **({"hard-gallery": hard_gallery} if hard_gallery else {}),
        "judges": "+".join(judges),
        "recall": "text-to-image,image-to-text",
        "ties": "against",
        "decode": ("greedy" if beam == 1 else f"beam:{beam}") + (f",no-repeat:{no_repeat}" if no_repeat else ""),
        **({"multi-sample": f"samples:{multi_sample.samples},beams:{multi_sample.beams}"} if multi_sample else {}),
        **({} if gamma == 1 else {"guidance": f"{gamma:g}"}),
        **({"rerank": _format_rerank(rerank)} if rerank else {}),
        **({"pragmatic": _format_pragmatic(*pragmatic)} if pragmatic else {}),
        "words": f"<={prepared.max_words},no UNK",
        "reward": f"cider-d,eos:{'yes' if objective.eos_in_reward else 'no'},df:{objective.document_frequencies}",
        "metrics": f"pycocoevalcap:{version('pycocoevalcap')},ptb",
        "version": f"saywhich:{version('saywhich')}",
    }
    return "|".join(f"{name}={value}" for name, value in parts.items())


def _format_rerank(reranking: RerankSettings) -> str:
    parts = [f"samples:{reranking.samples}", "among:split" if reranking.score == MARGIN else f"by:{reranking.score}"]
    parts += [] if reranking.temperature == 1 else [f"temperature:{reranking.temperature:g}"]
    parts += [] if reranking.listener == OWN else [f"listener:{reranking.listener}"]
    return ",".join(parts)


def _format_pragmatic(alpha: float, distractors: int, posterior: str) -> str:
    return f"alpha:{alpha:g},distractors:{distractors},posterior:{posterior},among:split"
