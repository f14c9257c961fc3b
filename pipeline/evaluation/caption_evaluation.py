"""Evaluation of a trained speaker on a whole split: caption metrics, judges' retrieval, and human captions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch

from pipeline.channels.hard import Beam
from pipeline.channels.search import ban_repeated_ngrams
from pipeline.data.batches import iterate_sequentially
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.evaluation.baseline_captions import BaselineCaptioner
from pipeline.evaluation.caption_truth import TruthChecker
from pipeline.evaluation.generate import generate_captions
from pipeline.evaluation.hard_gallery import HardGallery
from pipeline.evaluation.human_likelihood import compute_human_log_likelihood
from pipeline.evaluation.human_reference import measure_against_references, measure_human_reference
from pipeline.evaluation.judges import Judge, JudgedCaptions, encode_judged_captions, judge_retrieval, sample_galleries
from pipeline.evaluation.multi_sample import MultiSample, Sets, measure_sets
from pipeline.evaluation.pragmatic_captions import PragmaticCaptions
from pipeline.evaluation.rerank import Reranker
from pipeline.evaluation.signature import RewardProtocol, format_protocol_signature
from pipeline.evaluation.summary import select_summary_metrics
from pipeline.metrics.diversity import compute_self_bleu
from pipeline.metrics.gallery_names import HARD_GALLERY
from pipeline.metrics.language import LanguageScorer
from pipeline.metrics.registry import MEAN_METRICS
from pipeline.models.decoder import Decoder
from pipeline.types import Batch

BATCH = 128
BASELINE_COLUMNS = ("caption", HARD_GALLERY)  # prefixes of the columns of a baseline that captions.parquet keeps


@dataclass(frozen=True)
class EvaluationSplit:
    """Reference data of the images `rows` (M,): human captions and smaller galleries."""

    rows: np.ndarray
    references: Sequence[Sequence[str]]
    hard_gallery: Mapping[str, torch.Tensor]  # the gallery for human captions
    distractors: Mapping[str, torch.Tensor]  # all galleries, for one caption per image


@dataclass
class Evaluation:
    """Evaluation protocol: one caption of every image, with the whole split as the gallery.

    Captions are decoded greedily, by beam search or pragmatically, or are reranked samples. `judges` are ordered
    from the most similar to the speaker's listener to the most independent. The report selects λ by the first judge.
    """

    prepared: PreparedData
    store: FeatureStore
    judges: Mapping[str, Judge]
    language: LanguageScorer
    beam: int
    device: torch.device
    hard_gallery: HardGallery | None = None
    multi_sample: MultiSample | None = None
    truth: TruthChecker | None = None  # checks captions against the facts of drawn scenes
    baselines: Mapping[str, BaselineCaptioner] = field(default_factory=dict)  # evaluated along with the speaker
    not_computed: dict[str, str] = field(default_factory=dict)
    no_repeat: int | None = None  # n of the n-grams that no caption repeats
    rerank: Reranker | None = None  # replaces the beam by reranked samples
    pragmatic: PragmaticCaptions | None = None  # replaces the speaker's decoding by pragmatic decoding
    hard_gallery_name: str | None = None  # definition of the hard gallery in the signature

    summarise = staticmethod(select_summary_metrics)

    def evaluate_split(self, speaker: Decoder, split: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """Return the results of `split`, as metrics.json holds them, and the columns of captions.parquet.

        Raises UserError if the split holds fewer than two images, and as `LanguageScorer.score` and `judge_retrieval`
        do.
        """
        rows = self.prepared.rows(split)
        if len(rows) < 2:
            raise UserError(
                f"{self.prepared.folder}: expected two or more images in the split {split}, found {len(rows)}; add "
                "images, or remove the split from evaluate.splits"
            )

        def iterate_batches() -> Iterable[Batch]:
            return iterate_sequentially(self.prepared, self.store, rows, BATCH)

        vocabulary, beam = self.prepared.vocabulary, ban_repeated_ngrams(Beam(self.beam), self.no_repeat)
        if self.pragmatic is not None:
            pragmatic_speaker = self.pragmatic.bind(speaker, rows, self._read_batch, vocabulary)
            generated = generate_captions(pragmatic_speaker, iterate_batches(), beam, self.device, vocabulary.unk)
        elif self.rerank is None:
            generated = generate_captions(speaker, iterate_batches(), beam, self.device, vocabulary.unk)
        else:
            generated = self.rerank.generate(speaker, iterate_batches(), vocabulary, self.device, self.no_repeat)
        tokens = generated.tokens[:, 0]
        texts = [vocabulary.decode(row) for row in tokens.tolist()]
        split_data = self._load_split(rows, generated.pooled)
        results, columns = self._evaluate(JudgedCaptions(tokens, texts), split_data)
        for name, human_recalls in self._measure_human_recalls(split_data).items():
            results["judges"][name]["human"] = human_recalls
        results |= measure_human_reference(self.prepared, rows)
        results["diversity"]["human_log_likelihood"] = compute_human_log_likelihood(
            speaker, iterate_batches(), self.prepared, self.device
        )
        columns = {
            "split": [split] * len(rows),
            "image": rows.tolist(),
            "id": self.prepared.ids.take(rows).to_pylist(),
            "file": self.prepared.files.take(rows).to_pylist(),
            **columns,
        }
        if self.multi_sample:
            sets = self.multi_sample.generate(speaker, iterate_batches, vocabulary, self.device, self.no_repeat)
            results["multi_sample"] = {
                name: self._measure_sets(captions, split_data.references) for name, captions in sets.items()
            }
            best_scores = self.language.score([captions[0] for captions in sets["beams"]], split_data.references)
            results["multi_sample"]["beams"]["best"] = best_scores.scores
            columns |= sets
        if self.truth:
            human_rows = rows.repeat([len(captions) for captions in split_data.references])
            human = list(chain.from_iterable(split_data.references))
            results["human_faithfulness"] = self.truth(human, human_rows).summary()
        for name, baseline in self.baselines.items():
            baseline_captions = encode_judged_captions(
                baseline(rows, texts), self.prepared.vocabulary, self.prepared.max_words
            )
            baseline_results, scores = self._evaluate(baseline_captions, split_data)
            results.setdefault("baselines", {})[name] = baseline_results
            columns |= {f"{name}_{key}": values for key, values in scores.items() if key.startswith(BASELINE_COLUMNS)}
        return results, columns

    def signature(self, splits: Sequence[str], objective: RewardProtocol, gamma: float) -> str:
        """Return the protocol signature, a line with all conditions that comparable results share."""
        return format_protocol_signature(
            self.prepared,
            self.beam,
            objective,
            splits,
            self.judges,
            self.multi_sample,
            gamma,
            self.hard_gallery_name,
            self.no_repeat,
            self.rerank.settings if self.rerank else None,
            (self.pragmatic.alpha, self.pragmatic.distractors, self.pragmatic.posterior) if self.pragmatic else None,
        )

    def _read_batch(self, rows: np.ndarray) -> Batch:
        """Return the batch of the images `rows`."""
        return next(iterate_sequentially(self.prepared, self.store, rows, len(rows)))

    def _load_split(self, rows: np.ndarray, pooled: torch.Tensor) -> EvaluationSplit:
        hard = {HARD_GALLERY: self.hard_gallery(rows)} if self.hard_gallery else {}
        texts = [self.prepared.texts(row) for row in rows]
        return EvaluationSplit(rows, texts, hard, hard | sample_galleries(pooled))

    def _evaluate(
        self, captions: JudgedCaptions, split_data: EvaluationSplit
    ) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """Return metrics of one caption per image, as metrics.json holds them, and the columns of captions.parquet."""
        texts, rows = list(captions.texts), split_data.rows
        language = self.language.score(texts, split_data.references)
        self.not_computed |= language.not_computed
        results: dict[str, Any] = {"images": len(rows), "language": language.scores, "judges": {}}
        columns: dict[str, list[Any]] = {"caption": texts}
        gallery, indices = torch.from_numpy(rows), torch.arange(len(rows))
        for name, judge in self.judges.items():
            retrieval = judge_retrieval(judge, captions, indices, gallery, split_data.distractors)
            results["judges"][name] = {**retrieval.recalls(), "galleries": retrieval.galleries}
            columns[f"rank_{name}"] = retrieval.by_caption.tolist()
            columns[f"retrieved_{name}"] = rows[retrieval.retrieved].tolist()
            if HARD_GALLERY in retrieval.among:
                columns[f"{HARD_GALLERY}_{name}"] = retrieval.among[HARD_GALLERY].tolist()
        columns |= {name: values.tolist() for name, values in language.per_caption.items() if name in MEAN_METRICS}
        if language.bleu_counts is not None:
            columns["bleu"] = language.bleu_counts.tolist()
        results |= measure_against_references(texts, captions.tokens, self.prepared, rows)
        results["diversity"]["Self-BLEU"] = compute_self_bleu(texts)
        if self.truth:
            truth = self.truth(texts, rows)
            results["faithfulness"] = truth.summary()
            columns |= truth.columns()
        return results, columns

    def _measure_sets(self, sets: Sets, references: Sequence[Sequence[str]]) -> dict[str, Any]:
        measures, reasons = measure_sets(sets, references, self.language)
        self.not_computed |= reasons
        return measures

    def _measure_human_recalls(self, split_data: EvaluationSplit) -> dict[str, dict[str, Any]]:
        """Return the recalls of all human captions of the images, by judge."""
        references = self.prepared.references(split_data.rows)
        present = references.any(-1)
        texts = list(chain.from_iterable(split_data.references))
        captions = JudgedCaptions(torch.from_numpy(references[present]).long(), texts)
        caption_images = torch.from_numpy(np.nonzero(present)[0])
        gallery = torch.from_numpy(split_data.rows)
        retrievals = {
            name: judge_retrieval(judge, captions, caption_images, gallery, split_data.hard_gallery)
            for name, judge in self.judges.items()
        }
        return {
            name: {**retrieval.recalls(), "galleries": retrieval.galleries} for name, retrieval in retrievals.items()
        }
