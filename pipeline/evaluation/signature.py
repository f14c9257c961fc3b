"""The protocol signature: what two results must share to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Protocol

from pipeline.data.prepared import Prepared
from pipeline.evaluation.several import Several


class Reward(Protocol):
    """How CIDEr-D was computed as a reward."""

    @property
    def eos_in_reward(self) -> bool: ...

    @property
    def document_frequencies(self) -> str: ...


def signature(
    prepared: Prepared,
    beam: int,
    objective: Reward,
    splits: Sequence[str],
    judges: Iterable[str],
    several: Several | None = None,
    gamma: float = 1.0,
    near: str | None = None,
    no_repeat: int | None = None,
    rerank: int | None = None,
) -> str:
    """One line in the manner of sacreBLEU: data, gallery, judges, tie rule, decoding, reward, tokeniser, versions.

    `gamma` is said where captions are guided by it, `rerank` where the own listener chose each among so many, and
    `near`, what the near gallery is, where there is one.
    """
    images = prepared.manifest["images"]
    parts = {
        "data": prepared.manifest["dataset"],
        "gallery": "+".join(f"{split}:{images[split]}" for split in splits),
        **({"near": near} if near else {}),
        "judges": "+".join(judges),
        "recall": "text-to-image,image-to-text",
        "ties": "against",
        "decode": ("greedy" if beam == 1 else f"beam:{beam}") + (f",no-repeat:{no_repeat}" if no_repeat else ""),
        **({"several": f"samples:{several.samples},beams:{several.beams}"} if several else {}),
        **({} if gamma == 1 else {"guidance": f"{gamma:g}"}),
        **({"rerank": f"samples:{rerank},among:split"} if rerank else {}),
        "words": f"<={prepared.max_words},no UNK",
        "reward": f"cider-d,eos:{'yes' if objective.eos_in_reward else 'no'},df:{objective.document_frequencies}",
        "metrics": f"pycocoevalcap:{version('pycocoevalcap')},ptb",
        "version": f"saywhich:{version('saywhich')}",
    }
    return "|".join(f"{name}={value}" for name, value in parts.items())
