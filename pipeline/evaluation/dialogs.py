"""A generator of visual dialog on a whole split: how it ranks candidates, what it says, how discriminators rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.channels.words import Beam
from pipeline.data.dialog_batches import all_rounds
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.data.prepared_dialogs import PreparedDialogs
from pipeline.evaluation.generate import captions
from pipeline.evaluation.ranking import judged, likelihoods
from pipeline.metrics.diversity import diversity
from pipeline.metrics.ranking import ndcg, ranks, summary
from pipeline.models.decoder import Decoder
from pipeline.models.discriminator import Discriminator
from pipeline.runtime import products
from pipeline.types import Batch, Message, caption_mask

AT_ONCE = 16  # dialogs
Ranked = tuple[Tensor, Tensor | None]  # ranks (N,) of human answers, NDCG (N,)


@dataclass
class DialogEvaluation:
    """The protocol: candidates ranked by summed log-likelihood, by its mean over words beside, and by discriminators.

    Answers are those of a beam of width `beam`. Where it is known which texts are true (drawn dialogs), it is said how
    many of them are.
    """

    prepared: Prepared
    store: FeatureStore
    judges: Mapping[str, Discriminator]
    beam: int
    device: torch.device
    not_computed: dict[str, str] = field(default_factory=dict)

    def split(self, speaker: Decoder, split: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """Results of `split`, as metrics.json has them, and the columns of captions.parquet, a row a round."""
        dialogs, rows = PreparedDialogs.load(self.prepared.folder), self.prepared.rows(split)

        def batches() -> Iterable[Batch]:
            return (batch.to(self.device) for batch in all_rounds(self.prepared, dialogs, self.store, rows, AT_ONCE))

        unk = self.prepared.vocabulary.unk
        said = captions(speaker, batches(), Beam(self.beam), self.device, unk).tokens[:, 0]
        scores, per_word = ([likelihoods(speaker, batch, each) for batch in batches()] for each in (False, True))
        truth = torch.from_numpy(dialogs.truth[rows].astype(np.int64)).flatten()
        relevance = None if dialogs.relevance is None else torch.from_numpy(dialogs.relevance[rows]).flatten(0, 1)

        def ranked(parts: Sequence[Tensor]) -> Ranked:
            whole = torch.cat(list(parts)).cpu()
            return ranks(whole, truth), None if relevance is None else ndcg(whole, relevance)

        own = ranked(scores)
        found: dict[str, Any] = {"images": len(rows), "ranking": summary(*own), "judges": {}}
        found["ranking_per_word"] = summary(*ranked(per_word))
        columns: dict[str, list[Any]] = {"rank": own[0].tolist()}
        columns |= {} if own[1] is None else {"ndcg": own[1].tolist()}
        for name, judge in self.judges.items():
            judge = judge.to(self.device)
            theirs = ranked([judged(judge, batch) for batch in batches()])
            preferred = self._preferred(judge, said, batches())
            found["judges"][name] = {**summary(*theirs), **preferred, **self._by(dialogs, rows, theirs[0])}
            columns[f"rank_{name}"] = theirs[0].tolist()
        found |= self._by(dialogs, rows, own[0])
        human = dialogs.answers[dialogs.said[rows]].reshape(len(truth), -1)
        texts = {who: self._texts(tokens) for who, tokens in (("answer", said.numpy()), ("human", human))}
        right = dialogs.right()
        for who, tokens, name in (("answer", said, "answers"), ("human", torch.from_numpy(human), "human_answers")):
            found[name] = diversity(texts[who], tokens.tolist(), unk)
            if right is not None:
                first = [right[i] for i in (rows[:, None] * dialogs.rounds + np.arange(dialogs.rounds)).ravel()]
                worth = [known.get(text, 0.0) for known, text in zip(first, texts[who], strict=True)]
                found[name] |= {"true": float(np.mean(np.equal(worth, 1.0))), "relevance": float(np.mean(worth))}
                columns |= {f"relevance_{who}": worth}
        repeated = np.repeat(rows, dialogs.rounds)
        return found, {
            "split": [split] * len(repeated),
            "image": repeated.tolist(),
            "id": self.prepared.ids.take(repeated).to_pylist(),
            "file": self.prepared.files.take(repeated).to_pylist(),
            "round": np.tile(np.arange(1, dialogs.rounds + 1), len(rows)).tolist(),
            "question": self._texts(dialogs.questions[rows].reshape(len(truth), -1)),
            **texts,
            **columns,
        }

    def signature(self, splits: Sequence[str], objective: Any, gamma: float) -> str:
        """One line: what two results must share to be compared."""
        images, dialogs = self.prepared.manifest["images"], PreparedDialogs.load(self.prepared.folder)
        parts = {
            "data": self.prepared.manifest["dataset"],
            "dialogs": "+".join(f"{split}:{images[split]}" for split in splits),
            "candidates": str(dialogs.options.shape[2]),
            "ranked": "summed log-likelihood, EOS included",
            "ties": "against",
            "judges": "+".join(self.judges),
            "decode": "greedy" if self.beam == 1 else f"beam:{self.beam}",
            **({} if products.chosen() == products.OWN else {"products": products.chosen()}),
            "words": f"<={dialogs.answers.shape[1] - 1},no UNK",
            "version": f"saywhich:{version('saywhich')}",
        }
        return "|".join(f"{name}={value}" for name, value in parts.items())

    def _by(self, dialogs: PreparedDialogs, rows: np.ndarray, found: Tensor) -> dict[str, dict[str, float]]:
        """MRR by what is asked (`kinds`) and how (`refers`), where the annotations say."""
        numbers, by = (1 / found.double()).numpy(), {}
        for name, column in (("kinds", "kind"), ("refers", "refers")):
            values = dialogs.column(column)
            if values is not None:
                here = values[rows].ravel()
                by[name] = {str(value): float(numbers[here == value].mean()) for value in np.unique(here)}
        return by

    @torch.no_grad()
    def _preferred(self, judge: Discriminator, said: Tensor, batches: Iterable[Batch]) -> dict[str, float]:
        """In how many rounds, of those where it is another one, the judge prefers the human answer to what was said."""
        differ, told, first = 0, 0, 0
        for batch in batches:
            here = said[first : first + len(batch)].to(self.device)
            first += len(batch)
            message = Message(here, caption_mask(here), torch.arange(len(here), device=self.device), 1)
            question = judge.eval().see(batch)
            gain = (question * (judge.read(batch.captions) - judge.hear(message))).sum(1)
            steps = min(here.shape[1], batch.captions.shape[1])
            other = (here[:, :steps] != batch.captions[:, :steps]).any(1)
            differ, told = differ + int(other.sum()), told + int((other & (gain > 0)).sum())
        return {"told_apart": 100 * told / differ} if differ else {}

    def _texts(self, tokens: np.ndarray) -> list[str]:
        return [self.prepared.vocabulary.decode(row) for row in tokens.tolist()]
