"""A trained speaker on a whole split: its language, what its judges make of it, and human captions beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch

from pipeline.channels.words import Beam
from pipeline.data.batches import everything
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.evaluation.generate import captions
from pipeline.evaluation.judges import Judge, Spoken, galleries, partition, verdict
from pipeline.evaluation.likelihood import human_log_likelihood
from pipeline.evaluation.several import Sets, Several, measured
from pipeline.evaluation.symbolic import scenes_of
from pipeline.metrics.diversity import diversity, self_bleu
from pipeline.metrics.language import BLEU, LanguageScorer
from pipeline.models.decoder import Decoder
from pipeline.scenes.facts import Scene
from pipeline.scenes.faithfulness import faithfulness
from pipeline.types import Batch

BATCH = 128


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
    several: Several | None = None
    facts: Mapping[str, Scene] = field(default_factory=dict)  # by the images' ids, where they are known
    not_computed: dict[str, str] = field(default_factory=dict)

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

        said = captions(speaker, batches(), Beam(self.beam), self.device)
        tokens, pooled = said.tokens, said.pooled
        texts = [self.prepared.vocabulary.decode(row) for row in tokens.tolist()]
        references = [self.prepared.texts(row) for row in rows]
        language = self.language.score(texts, references)
        self.not_computed |= language.not_computed
        human, owners = self._human(rows)
        distractors = galleries(pooled)
        scenes = scenes_of(self.prepared, self.facts, rows) if self.facts else []
        near = {"neighbourhood": partition([(s.setting, s.weather, s.light) for s in scenes])} if scenes else {}
        results: dict[str, Any] = {"images": len(rows), "language": language.scores, "judges": {}}
        columns: dict[str, list[Any]] = {
            "split": [split] * len(rows),
            "image": rows.tolist(),
            "id": self.prepared.ids.take(rows).to_pylist(),
            "file": self.prepared.files.take(rows).to_pylist(),
            "caption": texts,
        }
        gallery = torch.from_numpy(rows)
        for name, judge in self.judges.items():
            found = verdict(judge, Spoken(tokens, texts), torch.arange(len(rows)), gallery, distractors, near)
            of_people = verdict(judge, human, owners, gallery).recalls()
            results["judges"][name] = {**found.recalls(), "galleries": found.galleries, "human": of_people}
            columns[f"rank_{name}"] = found.by_caption.tolist()
            columns[f"retrieved_{name}"] = rows[found.retrieved].tolist()
            columns |= {f"{gallery_name}_{name}": ranks.tolist() for gallery_name, ranks in found.within.items()}
        columns |= {name: each.tolist() for name, each in language.per_caption.items() if name not in BLEU}
        if language.bleu_counts is not None:
            columns["bleu"] = language.bleu_counts.tolist()
        results["diversity"] = diversity(texts, tokens.tolist()) | {
            "Self-BLEU": self_bleu(texts),
            "human_log_likelihood": human_log_likelihood(speaker, batches(), self.prepared, self.device),
        }
        if self.several:
            sets = self.several.captions(speaker, batches, self.prepared.vocabulary, self.device)
            results["several"] = {name: self._measured(each, references) for name, each in sets.items()}
            best = self.language.score([each[0] for each in sets["beams"]], references)
            results["several"]["beams"]["best"] = best.scores
            columns |= sets
        if scenes:
            truth = faithfulness(texts, scenes)
            results["faithfulness"] = truth.summary()
            columns |= truth.columns()
            repeated = [scene for scene, people in zip(scenes, references, strict=True) for _ in people]
            results["human_faithfulness"] = faithfulness(list(chain.from_iterable(references)), repeated).summary()
        return results, columns

    def _measured(self, sets: Sets, references: Sequence[Sequence[str]]) -> dict[str, Any]:
        found, lacking = measured(sets, references, self.language)
        self.not_computed |= lacking
        return found

    def _human(self, rows: np.ndarray) -> tuple[Spoken, torch.Tensor]:
        """All human captions of the images `rows`, and the place of each one's image among them."""
        references = self.prepared.references(rows)
        there = references.any(-1)
        texts = [text for row in rows for text in self.prepared.texts(row)]
        return Spoken(torch.from_numpy(references[there]).long(), texts), torch.from_numpy(np.nonzero(there)[0])
