"""A trained speaker on a whole split: its language, what its judges make of it, and human captions beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch

from pipeline.channels.searched import unrepeated
from pipeline.channels.words import Beam
from pipeline.data.batches import everything
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.evaluation.baselines import Baseline
from pipeline.evaluation.beside_people import beside_people
from pipeline.evaluation.generate import captions
from pipeline.evaluation.judges import Judge, Spoken, galleries, spoken, verdict
from pipeline.evaluation.likelihood import human_log_likelihood
from pipeline.evaluation.near import NEAR, Near
from pipeline.evaluation.rerank import Reranked
from pipeline.evaluation.several import Sets, Several, measured
from pipeline.evaluation.signature import Reward, signature
from pipeline.evaluation.symbolic import facts_of
from pipeline.metrics.diversity import self_bleu
from pipeline.metrics.language import BLEU, LanguageScorer
from pipeline.models.decoder import Decoder
from pipeline.scenes.facts import Scene
from pipeline.scenes.faithfulness import faithfulness
from pipeline.types import Batch

BATCH = 128
KEPT = ("caption", NEAR)  # columns of a baseline


@dataclass(frozen=True)
class About:
    """What captions of the images `rows` (M,) are measured by: people's captions, facts if known, smaller galleries."""

    rows: np.ndarray
    references: Sequence[Sequence[str]]
    scenes: Sequence[Scene]
    near: Mapping[str, torch.Tensor]
    distractors: Mapping[str, torch.Tensor]


@dataclass
class Evaluation:
    """The protocol: greedy or beam captions of every image of a split, that split as the gallery, these judges.

    `judges` by name, from the nearest to the speaker to the most independent one: the first chooses λ in the report.
    """

    prepared: Prepared
    store: FeatureStore
    judges: Mapping[str, Judge]
    language: LanguageScorer
    beam: int
    device: torch.device
    near: Near | None = None
    several: Several | None = None
    facts: Mapping[str, Scene] = field(default_factory=dict)  # by the images' ids, where they are known
    baselines: Mapping[str, Baseline] = field(default_factory=dict)  # measured beside this speaker
    not_computed: dict[str, str] = field(default_factory=dict)
    no_repeat: int | None = None  # words that no caption says twice in the same order
    rerank: Reranked | None = None  # who chooses captions among several, in place of the beam
    near_by: str | None = None  # what the near gallery is, as the protocol says it

    def split(self, speaker: Decoder, split: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """Results of `split`, as metrics.json has them, and the columns of captions.parquet."""
        rows = self.prepared.rows(split)
        if len(rows) < 2:
            raise UserError(
                f"{self.prepared.folder}: {len(rows)} image in the split {split}, among which none can be found; "
                "give it two or more, or take it from evaluate.splits"
            )

        def batches() -> Iterable[Batch]:
            return everything(self.prepared, self.store, rows, BATCH)

        vocabulary, beam = self.prepared.vocabulary, unrepeated(Beam(self.beam), self.no_repeat)
        if self.rerank is None:
            said = captions(speaker, batches(), beam, self.device, vocabulary.unk)
        else:
            said = self.rerank.captions(speaker, batches(), vocabulary, self.device, self.no_repeat)
        tokens = said.tokens[:, 0]
        texts = [vocabulary.decode(row) for row in tokens.tolist()]
        about = self._about(rows, said.pooled)
        results, columns = self._worth(Spoken(tokens, texts), about)
        for name, found in self._human(about).items():
            results["judges"][name]["human"] = found
        results["diversity"]["human_log_likelihood"] = human_log_likelihood(
            speaker, batches(), self.prepared, self.device
        )
        columns = {
            "split": [split] * len(rows),
            "image": rows.tolist(),
            "id": self.prepared.ids.take(rows).to_pylist(),
            "file": self.prepared.files.take(rows).to_pylist(),
            **columns,
        }
        if self.several:
            sets = self.several.captions(speaker, batches, vocabulary, self.device, self.no_repeat)
            results["several"] = {name: self._measured(each, about.references) for name, each in sets.items()}
            best = self.language.score([each[0] for each in sets["beams"]], about.references)
            results["several"]["beams"]["best"] = best.scores
            columns |= sets
        if about.scenes:
            repeated = [scene for scene, people in zip(about.scenes, about.references, strict=True) for _ in people]
            people = list(chain.from_iterable(about.references))
            results["human_faithfulness"] = faithfulness(people, repeated).summary()
        for name, baseline in self.baselines.items():
            other = spoken(baseline(rows, texts), self.prepared.vocabulary, self.prepared.max_words)
            found, scores = self._worth(other, about)
            own = {key: value for key, value in found.items() if not key.startswith("human_")}
            results.setdefault("baselines", {})[name] = own
            columns |= {f"{name}_{column}": each for column, each in scores.items() if column.startswith(KEPT)}
        return results, columns

    def signature(self, splits: Sequence[str], objective: Reward, gamma: float) -> str:
        """One line: what two results must share to be compared."""
        return signature(
            self.prepared,
            self.beam,
            objective,
            splits,
            self.judges,
            self.several,
            gamma,
            self.near_by,
            self.no_repeat,
            self.rerank.samples if self.rerank else None,
        )

    def _about(self, rows: np.ndarray, pooled: torch.Tensor) -> About:
        scenes = facts_of(self.prepared, self.facts, rows) if self.facts else []
        near = {NEAR: self.near(rows)} if self.near else {}
        texts = [self.prepared.texts(row) for row in rows]
        return About(rows, texts, scenes, near, near | galleries(pooled))

    def _worth(self, said: Spoken, about: About) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """What captions are worth, one of each image: as metrics.json has it, and columns of captions.parquet."""
        texts, rows = list(said.texts), about.rows
        language = self.language.score(texts, about.references)
        self.not_computed |= language.not_computed
        results: dict[str, Any] = {"images": len(rows), "language": language.scores, "judges": {}}
        columns: dict[str, list[Any]] = {"caption": texts}
        gallery, places = torch.from_numpy(rows), torch.arange(len(rows))
        for name, judge in self.judges.items():
            found = verdict(judge, said, places, gallery, about.distractors)
            results["judges"][name] = {**found.recalls(), "galleries": found.galleries}
            columns[f"rank_{name}"] = found.by_caption.tolist()
            columns[f"retrieved_{name}"] = rows[found.retrieved].tolist()
            if NEAR in found.among:
                columns[f"{NEAR}_{name}"] = found.among[NEAR].tolist()
        columns |= {name: each.tolist() for name, each in language.per_caption.items() if name not in BLEU}
        if language.bleu_counts is not None:
            columns["bleu"] = language.bleu_counts.tolist()
        results |= beside_people(texts, said.tokens, self.prepared, rows)
        results["diversity"]["Self-BLEU"] = self_bleu(texts)
        if about.scenes:
            truth = faithfulness(texts, about.scenes)
            results["faithfulness"] = truth.summary()
            columns |= truth.columns()
        return results, columns

    def _measured(self, sets: Sets, references: Sequence[Sequence[str]]) -> dict[str, Any]:
        found, lacking = measured(sets, references, self.language)
        self.not_computed |= lacking
        return found

    def _human(self, about: About) -> dict[str, dict[str, Any]]:
        """Recalls of all human captions of the images by each judge."""
        references = self.prepared.references(about.rows)
        there = references.any(-1)
        texts = list(chain.from_iterable(about.references))
        said, owners = Spoken(torch.from_numpy(references[there]).long(), texts), torch.from_numpy(np.nonzero(there)[0])
        gallery = torch.from_numpy(about.rows)
        found = {name: verdict(judge, said, owners, gallery, about.near) for name, judge in self.judges.items()}
        return {name: {**each.recalls(), "galleries": each.galleries} for name, each in found.items()}
