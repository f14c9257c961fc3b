"""Evaluation of a visual dialog generator on a whole split: candidate ranking, answers, and discriminators' ranking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.channels.hard import Beam
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.dialog.composition.answer_preference import is_human
from pipeline.dialog.data.dialog_batches import all_rounds
from pipeline.dialog.data.dialog_questions import questions_of
from pipeline.dialog.data.prepared_dialogs import PreparedDialogs
from pipeline.dialog.evaluation.answer_ranking import candidate_likelihoods, discriminator_scores
from pipeline.dialog.evaluation.candidate_ranking import candidate_ranks, ndcg, ranking_summary, truth_correlation
from pipeline.dialog.evaluation.priors import prior_scores
from pipeline.dialog.models.dialog_decoder import DialogDecoder
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.dialog.settings import MRR
from pipeline.evaluation.generate import generate_captions
from pipeline.metrics.diversity import caption_diversity
from pipeline.models.decoder import Decoder
from pipeline.types import Batch, Message, caption_mask

AT_ONCE = 16  # dialogs
BEST = 5  # top candidates that captions.parquet keeps


@dataclass
class DialogEvaluation:
    """Evaluation protocol for visual dialog: candidates are ranked by log-likelihood and by discriminators.

    The log-likelihood is summed over tokens; its mean over tokens is reported beside it. Answers come from a beam of
    width `beam`. For drawn dialogs, the share of true answers is reported too. For the entries of `beside`,
    discriminators or names in PRIORS, only the ranks are measured.
    """

    prepared: Prepared
    store: FeatureStore
    judges: Mapping[str, Discriminator]
    beam: int
    device: torch.device
    beside: Mapping[str, Discriminator | str] = field(default_factory=dict)
    not_computed: dict[str, str] = field(default_factory=dict)

    def split(self, speaker: Decoder, split: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """Return the results of `split` for metrics.json, and the columns of captions.parquet, one row per round."""
        dialogs, rows = PreparedDialogs.load(self.prepared.folder), self.prepared.rows(split)
        known = {name: ranker.to(self.device) for name, ranker in self.beside.items() if not isinstance(ranker, str)}
        discriminators = {name: judge.to(self.device) for name, judge in self.judges.items()} | known

        def batches() -> Iterable[Batch]:
            return (batch.to(self.device) for batch in all_rounds(self.prepared, dialogs, self.store, rows, AT_ONCE))

        unk = self.prepared.vocabulary.unk
        answers = generate_captions(speaker, batches(), Beam(self.beam), self.device, unk).tokens[:, 0]
        parts: dict[str, list[Tensor]] = {}
        for number, batch in enumerate(batches()):
            generated = answers[number * AT_ONCE * dialogs.rounds :][: len(batch)].to(self.device)
            for name, part in self._scores(speaker, batch, generated, discriminators):
                parts.setdefault(name, []).append(part.cpu())
        scores = {name: torch.cat(several) for name, several in parts.items()}
        train = self.prepared.rows("train")
        for name, ranker in self.beside.items():
            if isinstance(ranker, str):
                scores[f"rank_{name}"] = torch.from_numpy(prior_scores(ranker, dialogs, train, rows))
        truth = torch.from_numpy(dialogs.truth[rows].astype(np.int64)).flatten()
        relevance = None if dialogs.relevance is None else torch.from_numpy(dialogs.relevance[rows]).flatten(0, 1)
        columns: dict[str, list[Any]] = {}

        def ranked(name: str) -> dict[str, Any]:
            places = candidate_ranks(scores[name], truth)
            gained = None if relevance is None else ndcg(scores[name], relevance)
            columns[name] = places.tolist()
            if name == "rank" and gained is not None:
                columns["ndcg"] = gained.tolist()
            truthful = torch.tensor([]) if relevance is None else truth_correlation(scores[name], relevance)
            known = truthful[~truthful.isnan()]
            return {
                "ranking": ranking_summary(places, gained),
                **({"truth_correlation": float(known.mean())} if len(known) else {}),
                **self._by(dialogs, rows, places),
            }

        results: dict[str, Any] = {"images": len(rows), **ranked("rank")}
        results["ranking_per_word"] = ranking_summary(candidate_ranks(scores["words"], truth))
        results["judges"] = {
            name: ranked(f"rank_{name}") | _human_preferred(scores[f"gain_{name}"]) for name in self.judges
        }
        results["beside"] = {name: ranked(f"rank_{name}") for name in self.beside}
        for name in ("history", "regions"):
            columns |= {f"{name}_shares": scores[name].numpy().round(3).tolist()} if name in scores else {}
        best = scores["rank"].topk(min(BEST, scores["rank"].shape[1])).indices.numpy()
        offered = np.take_along_axis(dialogs.options[rows].reshape(len(truth), -1), best, 1)
        columns["best"] = [[dialogs.texts[i] for i in row] for row in offered.tolist()]
        human = dialogs.answers[dialogs.human_answers[rows]].reshape(len(truth), -1)
        texts = {source: self._texts(tokens) for source, tokens in (("answer", answers.numpy()), ("human", human))}
        right = dialogs.right()
        for source, tokens, name in (("answer", answers.numpy(), "answers"), ("human", human, "human_answers")):
            results[name] = caption_diversity(texts[source], tokens.tolist(), unk)
            if right is not None:
                first = [right[i] for i in (rows[:, None] * dialogs.rounds + np.arange(dialogs.rounds)).ravel()]
                relevances = [known.get(text, 0.0) for known, text in zip(first, texts[source], strict=True)]
                true, mean = np.mean(np.equal(relevances, 1.0)), np.mean(relevances)
                results[name] |= {"true": float(true), "relevance": float(mean)}
                columns |= {f"relevance_{source}": relevances}
        repeated = np.repeat(rows, dialogs.rounds)
        return results, {
            "split": [split] * len(repeated),
            "image": repeated.tolist(),
            "id": self.prepared.ids.take(repeated).to_pylist(),
            "file": self.prepared.files.take(repeated).to_pylist(),
            "round": np.tile(np.arange(1, dialogs.rounds + 1), len(rows)).tolist(),
            "caption": self._texts(np.repeat(dialogs.captions[rows], dialogs.rounds, 0)),
            "question": self._texts(dialogs.questions[rows].reshape(len(truth), -1)),
            **texts,
            **columns,
        }

    @staticmethod
    def summarise(results: Mapping[str, Any]) -> dict[str, float]:
        """Return MRR of the generator and of each discriminator, from the results of a split."""
        judges = {f"{MRR} {name}": judge["ranking"][MRR] for name, judge in results["judges"].items()}
        return {MRR: results["ranking"][MRR]} | judges

    def signature(self, splits: Sequence[str], objective: Any, gamma: float) -> str:
        """Return one line of everything that two results must share to be comparable."""
        images, dialogs = self.prepared.manifest["images"], PreparedDialogs.load(self.prepared.folder)
        parts = {
            "data": self.prepared.manifest["dataset"],
            "dialogs": "+".join(f"{split}:{images[split]}" for split in splits),
            "candidates": str(dialogs.options.shape[2]),
            "ranked": "summed log-likelihood, EOS included",
            "ties": "against",
            "judges": "+".join(self.judges),
            "decode": "greedy" if self.beam == 1 else f"beam:{self.beam}",
            "words": f"<={dialogs.answers.shape[1] - 1},no UNK",
            "version": f"saywhich:{version('saywhich')}",
        }
        return "|".join(f"{name}={value}" for name, value in parts.items())

    def _by(self, dialogs: PreparedDialogs, rows: np.ndarray, ranks: Tensor) -> dict[str, dict[str, float]]:
        """Return MRR by question kind (`kinds`) and by form of reference (`refers`), if the annotations have them."""
        numbers, by = (1 / ranks.double()).numpy(), {}
        for name, column in (("kinds", "kind"), ("refers", "refers")):
            values = dialogs.column(column)
            if values is not None:
                here = values[rows].ravel()
                by[name] = {str(value): float(numbers[here == value].mean()) for value in np.unique(here)}
        return by

    @torch.no_grad()
    def _scores(
        self, speaker: Decoder, batch: Batch, answers: Tensor, discriminators: Mapping[str, Discriminator]
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield named scores of a batch: candidates' (N, O), attention shares (N, …) and judges' gains (N,).

        A judge's gain is its score of the human answer minus its score of the generated answer (`answers`); NaN where
        both are the same.
        """
        rounds, own = questions_of(batch), candidate_likelihoods(speaker, batch)
        yield "rank", own
        yield "words", own / caption_mask(rounds.answers).sum(1)[rounds.options]
        if isinstance(speaker, DialogDecoder) and (shares := speaker.encoder.attention_shares(batch, speaker.word)):
            yield from zip(("history", "regions"), shares, strict=True)
        message = Message(answers, caption_mask(answers), torch.arange(len(answers), device=self.device), 1)
        same = is_human(message, batch)
        for name, judge in discriminators.items():
            yield f"rank_{name}", discriminator_scores(judge, batch)
            if name in self.judges:
                gain = (
                    judge.encode_question(batch) * (judge.encode_answers(batch.captions) - judge.encode_text(message))
                ).sum(1)
                yield f"gain_{name}", gain.masked_fill(same, torch.nan)

    def _texts(self, tokens: np.ndarray) -> list[str]:
        return [self.prepared.vocabulary.decode(row) for row in tokens.tolist()]


def _human_preferred(gains: Tensor) -> dict[str, float]:
    """Return the percentage of rounds in which a judge scores the human answer above the generated one.

    Rounds in which both answers are the same are left out; no other round: an empty mapping.
    """
    different = gains[~gains.isnan()]
    return {"human_preferred": float(100 * (different > 0).double().mean())} if len(different) else {}
