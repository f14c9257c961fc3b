"""Judging of caption files by judges, references and text quality, with 95 % intervals over images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline.analysis.bootstrap import RESAMPLES
from pipeline.errors import UserError
from pipeline.metrics.language import LanguageScorer
from pipeline.readers.coco_instances import read_instances
from saywhich.judging.baseline_rows import HUMAN, RULE, make_human_row, make_rule_row
from saywhich.judging.caption_files import CaptionSet, Source, parse_number, read_caption_set, read_ids
from saywhich.judging.caption_scores import KINDS, ScoreKey, ScoreValues, compute_score_interval, resample_scores
from saywhich.judging.hard_galleries import Galleries, find_neighbour_galleries, read_galleries, resolve_galleries
from saywhich.judging.judge_sources import check_judges, open_encoder, open_judge
from saywhich.judging.judging_choices import DEFAULT_JUDGE, GALLERY_IMAGES, THUMBNAIL
from saywhich.judging.metric_choices import check_metrics
from saywhich.judging.notes import Notes
from saywhich.judging.photo_index import PhotoIndex
from saywhich.judging.photo_vectors import CaptionJudge, encode_gallery, find_truncated_captions
from saywhich.judging.retrieval_scores import CaptionRanks, flatten, judge_row
from saywhich.judging.text_scores import list_computable_scores, score_by_references, score_text_quality
from saywhich.judging.thumbnails import Thumbnails

MIN_IMAGES = 2


@dataclass(frozen=True)
class JudgeOptions:
    """Settings of a judgement.

    `judges` are names (saywhich/judging/judge_sources.py) or judges; `neighbours` is a name. `hard` is the number of
    images in a hard gallery; `galleries` gives the galleries themselves. `near_duplicates` states whether galleries
    keep near-duplicates. `instances` are COCO's instance files. `metrics` are names of the metrics against references;
    None stands for all that can run. `ids` is a table of image_id and file. `resamples` is the number of resamples
    of the images.
    """

    judges: Sequence[str | CaptionJudge] = (DEFAULT_JUDGE,)
    hard: int = GALLERY_IMAGES
    neighbours: str = THUMBNAIL
    galleries: str | Path | Galleries | None = None
    near_duplicates: bool = False
    instances: Sequence[str | Path] = ()
    ids: str | Path | None = None
    metrics: Sequence[str] | None = None
    resamples: int = RESAMPLES


@dataclass(frozen=True)
class JudgedRow:
    """Captions of M images with their scores; `resampled` are the scores in every resample of the images."""

    name: str
    captions: Sequence[Sequence[str]]
    references: Sequence[Sequence[str]]
    scores: Mapping[ScoreKey, ScoreValues] = field(default_factory=dict)
    ranks: Mapping[str, CaptionRanks] = field(default_factory=dict)  # by judge
    resampled: Mapping[ScoreKey, np.ndarray] = field(default_factory=dict)

    def value(self, judge: str, name: str) -> float:
        """Return a score; `judge` is "" for scores that no judge gives."""
        return self.scores[ScoreKey(judge, name)].value

    def compute_interval(self, key: ScoreKey) -> tuple[float, float] | None:
        """Return a score's 95 % interval over images; None for scores of the whole set of captions."""
        return compute_score_interval(self.resampled.get(key))

    def best_ranks(self, judge: str, hard: bool = False) -> np.ndarray:
        """Return each image's best rank by its captions (M,) float64, among all images or in its hard gallery.

        A rank is 0 where the hard gallery holds no other image.
        """
        ranks, best = self.ranks[judge], np.full(len(self.captions), np.inf)
        np.minimum.at(best, flatten(self.captions)[1], ranks.among_hard if hard else ranks.among_all)
        return best


@dataclass(frozen=True)
class Judgement:
    """Scores of caption files, in `rows`, and of the baselines; all have the same images and resamples."""

    files: Sequence[Path]
    rows: Sequence[JudgedRow]
    baselines: Sequence[JudgedRow]  # human captions and the trivial rule
    judges: Sequence[str]
    galleries: Tensor  # (M, K): the other images of each hard gallery, padded with −1
    gallery_rule: str  # how the hard galleries were made
    notes: Sequence[str]
    resamples: int

    @property
    def keys(self) -> list[ScoreKey]:
        """Return the keys of all scores in the order of tables: by each judge, by references, and of the text."""
        order = {name: index for index, name in enumerate(KINDS)}
        keys = dict.fromkeys(key for row in (*self.rows, *self.baselines) for key in row.scores)
        return sorted(keys, key=lambda key: ([*self.judges, ""].index(key.judge), order[key.name]))


def judge_captions(
    captions: Sequence[Source], images: str | Path, references: Source | None, options: JudgeOptions
) -> Judgement:
    """Judge one or more caption files of the same images.

    Only readable images with a caption in every file are judged. These images are the gallery. An id is looked up in
    the table `options.ids`, then in the file that has the id, and then in the other files. Raises UserError where fewer
    than two images remain, for an unknown form, judge or metric, and for a photo that a judge cannot read. Raises
    UserError for `hard` below 2, an encoder `neighbours` that is also a judge, and a caption file or judge that is
    given twice.
    """
    if options.hard < 2:
        raise UserError(f"--hard {options.hard}: give 2 or more")
    check_metrics(options.metrics)
    check_judges(options.judges)
    notes = Notes()
    caption_sets = [read_caption_set(source, notes) for source in captions]
    _make_names_distinct(caption_sets, captions)
    reference_set = read_caption_set(references, notes) if references is not None else None
    all_ids = {
        number: name
        for each in (*caption_sets, reference_set)
        if each is not None
        for number, name in each.files.items()
    }
    table = read_ids(Path(options.ids)) if options.ids else {}
    index = PhotoIndex(images, all_ids | table)
    # caption files may number their images differently: the ids of a file refer to its own images first
    captions_by_photo = [
        _group_by_photo(each, index.with_ids(all_ids | each.files | table), images, notes) for each in caption_sets
    ]
    files = _select_judged_files(captions_by_photo, caption_sets, index, images, notes)
    thumbnails = encode_gallery(Thumbnails(), files)
    if len(thumbnails.files) < MIN_IMAGES:
        raise UserError(
            f"{images}: expected two or more readable photos with captions, found {len(thumbnails.files)}; give more"
        )
    files = list(thumbnails.files)  # without the unreadable photos
    galleries, rule = _make_galleries(options, index, files, torch.from_numpy(thumbnails.vectors), notes)
    human_captions: list[list[str]] = [[] for _ in files]
    if reference_set is not None:
        human_captions = _collect_references(
            reference_set, index.with_ids(all_ids | reference_set.files | table), files, notes
        )
    rows = [
        JudgedRow(each.name, [by_photo[path] for path in files], human_captions)
        for each, by_photo in zip(caption_sets, captions_by_photo, strict=True)
    ]
    baselines = _make_baseline_rows(rows[0].captions, human_captions)
    all_rows = [*rows, *baselines]
    scores: list[dict[ScoreKey, ScoreValues]] = [{} for _ in all_rows]
    ranks: list[dict[str, CaptionRanks]] = [{} for _ in all_rows]
    names: list[str] = []
    for judge in options.judges:
        _judge_rows(judge, names, files, all_rows, galleries, scores, ranks, notes)
    annotated = _read_annotated_objects(options.instances, index, files)
    with LanguageScorer(list_computable_scores(options.metrics) if reference_set else ()) as language:
        for row, row_scores in zip(all_rows, scores, strict=True):
            if any(row.references):
                row_scores |= score_by_references(language, row.captions, row.references, notes)
            row_scores |= score_text_quality(row.captions, row.references, annotated)
    resampled = resample_scores(scores, len(files), options.resamples)
    judged_rows = [
        replace(row, scores=row_scores, ranks=row_ranks, resampled=row_resampled)
        for row, row_scores, row_ranks, row_resampled in zip(all_rows, scores, ranks, resampled, strict=True)
    ]
    return Judgement(
        files,
        judged_rows[: len(rows)],
        judged_rows[len(rows) :],
        names,
        galleries,
        rule,
        list(notes.lines()),
        options.resamples,
    )


def _make_names_distinct(sets: Sequence[CaptionSet], sources: Sequence[Source]) -> None:
    """Name caption sets by their paths, or mappings by their numbers, where names are equal.

    Raises UserError for a path that is given twice.
    """
    if len({each.name for each in sets}) < len(sets):
        for number, (each, source) in enumerate(zip(sets, sources, strict=True), 1):
            each.name = f"{each.name} {number}" if isinstance(source, Mapping) else str(source)
    names = [each.name for each in sets]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise UserError(f"{name}: is given twice; give different caption files")


def _group_by_photo(captions: CaptionSet, index: PhotoIndex, images: str | Path, notes: Notes) -> dict[Path, list[str]]:
    """Return the captions by photo; captions without exactly one photo are left out with a note."""
    by_photo: dict[Path, list[str]] = {}
    for image, texts in captions.captions.items():
        path = index.find(image)
        if path is None:
            notes.add(
                f"images of {captions.name} that are not in {images}, or have a name that several photos have", image
            )
        elif texts:
            by_photo.setdefault(path, []).extend(texts)
    return by_photo


def _select_judged_files(
    grouped: Sequence[Mapping[Path, list[str]]],
    sets: Sequence[CaptionSet],
    index: PhotoIndex,
    images: str | Path,
    notes: Notes,
) -> list[Path]:
    """Return the photos with captions in every file, in the folder's order, and note the other photos.

    Raises UserError where fewer than two photos have captions in a file, or in every file.
    """
    for captions, by_photo in zip(sets, grouped, strict=True):
        for path in index.files:
            if path not in by_photo:
                notes.add(f"photos without a caption in {captions.name}, which are left out", path.name)
    files = [path for path in index.files if all(path in by_photo for by_photo in grouped)]
    for captions, by_photo in zip(sets, grouped, strict=True):
        if len(by_photo) >= MIN_IMAGES:
            continue
        example = next(iter(captions.captions))
        raise UserError(
            f"{captions.name}: {len(by_photo)} of its {len(captions.captions):,} images (the first is {example!r}) "
            f"are photos in {images} (the first is {index.files[0].name}); "
            "two or more are needed: name the photos' files, or give --ids TABLE"
        )
    if len(files) < MIN_IMAGES:
        names = ", ".join(each.name for each in sets)
        raise UserError(
            f"{names}: expected two or more photos with a caption in each file, found {len(files)}; give captions of "
            "the same photos"
        )
    return files


def _collect_references(human: CaptionSet, index: PhotoIndex, files: Sequence[Path], notes: Notes) -> list[list[str]]:
    """Return each photo's references that have a letter or a digit; note the photos without such a reference."""
    by_photo: dict[Path, list[str]] = {}
    for image, texts in human.captions.items():
        if (path := index.find(image)) is not None:
            # metrics refuse an image whose references have no word
            by_photo.setdefault(path, []).extend(text for text in texts if any(map(str.isalnum, text)))
    for path in files:
        if not by_photo.get(path):
            notes.add(
                f"judged photos without a reference in {human.name}, so that there is no row of human captions",
                path.name,
            )
    return [by_photo.get(path, []) for path in files]


def _make_baseline_rows(captions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> list[JudgedRow]:
    """Return the row of human captions, if every image has a reference, and the row of the trivial rule."""
    row = make_human_row(references)
    human = [] if row is None else [JudgedRow(HUMAN, *row)]
    return [*human, JudgedRow(RULE, make_rule_row(captions, references), references)]


def _make_galleries(
    options: JudgeOptions, index: PhotoIndex, files: Sequence[Path], thumbnails: Tensor, notes: Notes
) -> tuple[Tensor, str]:
    """Return the hard galleries (M, K), padded with −1, and a description of how they were made.

    Raises UserError where the encoder `options.neighbours` is also a judge, or cannot read a photo.
    """
    if options.galleries is not None:
        source = options.galleries
        galleries = source if isinstance(source, Mapping) else read_galleries(Path(source))
        rule = "given galleries" if isinstance(source, Mapping) else f"the galleries of {source}"
        return resolve_galleries(galleries, index, files, notes), rule
    judges = [judge if isinstance(judge, str) else judge.name for judge in options.judges]
    # a folder may be written in several ways, such as m and ./m
    if options.neighbours in judges or Path(options.neighbours).resolve() in [Path(name).resolve() for name in judges]:
        raise UserError(
            f"--neighbours {options.neighbours}: is also a judge, and would choose its own galleries; "
            "give another encoder"
        )
    name, vectors = options.neighbours, thumbnails
    if options.neighbours != THUMBNAIL:
        encoder = open_encoder(options.neighbours)
        name, photos = encoder.name, encode_gallery(encoder, files)
        if list(photos.files) != list(files):
            raise UserError(
                f"--neighbours {options.neighbours}: cannot read {len(files) - len(photos.files)} of the photos; "
                "remove them, or give another encoder"
            )
        vectors = torch.from_numpy(photos.vectors)
    rule = f"{min(options.hard, len(files))} images, neighbours by {name}"
    rule += ", near-duplicates kept" if options.near_duplicates else ""
    return find_neighbour_galleries(vectors, thumbnails, options.hard, options.near_duplicates), rule


def _judge_rows(
    name_or_judge: str | CaptionJudge,
    names: list[str],
    files: Sequence[Path],
    rows: Sequence[JudgedRow],
    galleries: Tensor,
    scores: Sequence[dict[ScoreKey, ScoreValues]],
    ranks: Sequence[dict[str, CaptionRanks]],
    notes: Notes,
) -> None:
    """Open one judge, and add its name to `names`, and its scores and ranks of each row to `scores` and `ranks`.

    A judge that is given by name takes no memory afterwards. Raises UserError for a photo that the judge cannot read.
    """
    judge = open_judge(name_or_judge)
    option = name_or_judge if isinstance(name_or_judge, str) else judge.name
    numbered_names = (f"{judge.name} {number}" for number in count(len(names) + 1))
    name = next(each for each in chain((judge.name, option), numbered_names) if each not in names)
    names.append(name)
    photos = encode_gallery(judge, files)
    if list(photos.files) != list(files):
        unreadable = len(files) - len(photos.files)
        raise UserError(f"--judge {name}: cannot read {unreadable} of the photos; remove them, or give another judge")
    images = torch.from_numpy(photos.vectors)
    for row, row_scores, row_ranks in zip(rows, scores, ranks, strict=True):
        texts = [text for each in row.captions for text in each] if row.name not in (HUMAN, RULE) else []
        for text in find_truncated_captions(judge, texts):
            notes.add(f"captions of {row.name} that are longer than the input of {name}, and are cut", text)
        for text in judge.find_unknown(texts):
            notes.add(f"captions of {row.name} mostly of words that are unknown to {name}", text)
        new_scores, row_ranks[name] = judge_row(judge, name, row.captions, row.references, images, galleries)
        row_scores |= new_scores


def _read_annotated_objects(
    instances: Sequence[str | Path], index: PhotoIndex, files: Sequence[Path]
) -> list[list[str]]:
    """Return the names of the objects annotated in each photo; empty lists without COCO's instance files."""
    names_by_photo = {
        index.find(image if (number := parse_number(image)) is None else number): names
        for image, names in (read_instances([Path(file) for file in instances]).items() if instances else ())
    }
    return [names_by_photo.get(path, []) for path in files]
