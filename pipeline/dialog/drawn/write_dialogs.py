"""Files of drawn dialogs: VisDial's format, with the relevance of candidates as dense annotations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.dialog.data.dialog_corpus import DistinctTexts
from pipeline.dialog.drawn.answerer import rate_answers
from pipeline.dialog.drawn.candidate_answers import POOL_DIALOGS, CandidatePool
from pipeline.dialog.drawn.questioner import DialogRound, generate_dialog
from pipeline.dialog.drawn.rival_answers import RivalAnswers
from pipeline.runtime.files import write_atomically
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_captions import SceneCaption, describe_scene
from pipeline.worlds.scenes.scene_facts import Scene, make_generator, pick

DIALOGS, RELEVANCE = "dialogs_{}.json", "relevance_{}.json"  # by split
FILES = tuple(name.format(split) for split in ("train", "val", "test") for name in (DIALOGS, RELEVANCE))
POOL_START = 8_000_000  # scenes from this number on are in no data set
CAPTION, CHOICE = 12, 13  # random streams of captions and of candidates


def write_scene_dialogs(
    root: Path, scenes: Sequence[tuple[Scene, list[SceneCaption]]], splits: Sequence[str], seed: int
) -> dict[str, int]:
    """Write a dialog about each of `scenes` into the folder `root`; a scene's index is its image's number.

    Return the numbers of dialogs, and of distinct questions and answers. A dialog begins with one of the image's
    captions. In addition to VisDial's keys, a round has `kind`, the kind of question, and `refers`, the form of
    reference: name, pronoun, ellipsis or none. The relevance of each candidate is exact. In the relevance file, the key
    `answers` has every answer with a relevance above 0.
    """
    # several scenes per neighbourhood: sampling a neighbourhood takes longer than drawing dialogs about its scenes
    pool_scenes = {i: sample_scene(seed, i) for i in range(POOL_START, POOL_START + 2 * POOL_DIALOGS, 2)}
    pool = CandidatePool(_generate_image_dialog(seed, i, scene)[1] for i, scene in pool_scenes.items())
    rivals = RivalAnswers(seed, list(pool_scenes.values()))
    counts, text_sets = {"dialogs": 0}, (set[str](), set[str]())
    for split in ("train", "val", "test"):
        indices = [i for i, image_split in enumerate(splits) if image_split == split]
        questions, answers = DistinctTexts[str](), DistinctTexts[str]()
        dialogs, relevance_entries = [], []
        for i in indices:
            scene, captions = scenes[i]
            caption, rounds = _generate_image_dialog(seed, i, scene, captions)
            rng, entries = make_generator(seed, i, CHOICE), []
            for number, (question, answer) in enumerate(rounds, start=1):
                relevances = rate_answers(scene, question)
                true_answers = [text for text, value in relevances.items() if value == 1.0]
                rival_answers = rivals.draw(rng, scene, question, relevances)
                options, truth = pool.draw_candidates(question.text, answer, rng, rival_answers, true_answers)
                entries.append(
                    {
                        "question": questions.add(question.text),
                        "answer": answers.add(answer),
                        "answer_options": [answers.add(text) for text in options],
                        "gt_index": truth,
                        "kind": question.kind,
                        "refers": question.refers,
                    }
                )
                scores = [relevances.get(text, 0.0) for text in options]
                relevance_entries.append(
                    {"image_id": i, "round_id": number, "gt_relevance": scores, "answers": relevances}
                )
            dialogs.append({"image_id": i, "caption": caption, "dialog": entries})
        data = {"questions": questions.texts, "answers": answers.texts, "dialogs": dialogs}
        _write_json(root / DIALOGS.format(split), {"version": "0.9", "split": split, "data": data})
        _write_json(root / RELEVANCE.format(split), relevance_entries)
        counts["dialogs"] += len(dialogs)
        for text_set, distinct_texts in zip(text_sets, (questions, answers), strict=True):
            text_set.update(distinct_texts.texts)
    return counts | {"questions": len(text_sets[0]), "answers": len(text_sets[1])}


def _generate_image_dialog(
    seed: int, index: int, scene: Scene | None = None, captions: Sequence[SceneCaption] | None = None
) -> tuple[str, list[DialogRound]]:
    """Return the caption with which the dialog about image `index` begins, and the dialog's rounds."""
    scene = scene or sample_scene(seed, index)
    caption = pick(make_generator(seed, index, CAPTION), captions or describe_scene(scene, seed, index))
    return " ".join(caption.tokens), generate_dialog(scene, caption, seed, index)


def _write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, separators=(",", ":")) + "\n")
