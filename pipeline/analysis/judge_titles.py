"""Names and titles of the judges. The evaluations determine which judges exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.evaluation.judge_names import ADAPTED, OWN
from pipeline.metrics.gallery_names import HARD_GALLERY

PRETRAINED = "pretrained"  # the judge of the listener before joint training
TEXT = "text_to_image"
# scores that compare methods: in the hard gallery, and in the whole split
HARD_RECALL, WHOLE_RECALL = "R@1 (hard)", "R@10"

Keys = tuple[str, ...]  # the path to a number in a split of metrics.json


@dataclass(frozen=True)
class JudgeTitle:
    """Name, title and description of a judge."""

    name: str
    title: str
    description: str


JUDGE_TITLES = (
    JudgeTitle(OWN, "Own listener", "the method's own listener"),
    JudgeTitle(
        ADAPTED,
        "Adapted listener",
        "the pretrained listener, adapted to this method's frozen speaker",
    ),
    JudgeTitle(PRETRAINED, "Pretrained listener", "the pretrained listener, before joint training"),
    JudgeTitle("judge", "Independent judge", "an independent judge"),
    JudgeTitle("retriever", "Retriever", "the fixed retriever, which rewards the captions of WTF-RL's methods"),
    JudgeTitle("symbolic", "Symbolic judge", "claims of captions compared with the facts, without a network"),
)


def get_judge_title(name: str) -> JudgeTitle:
    """Return the title of the judge `name`; an unknown judge has its name as title and description."""
    return next((judge for judge in JUDGE_TITLES if judge.name == name), JudgeTitle(name, name, name))


def order_judges(names_by_evaluation: Iterable[Iterable[str]]) -> dict[str, JudgeTitle]:
    """Return the judges of all evaluations by name, beginning with the evaluation with the most judges."""
    longest_first = sorted(map(list, names_by_evaluation), key=len, reverse=True)
    return {name: get_judge_title(name) for names in longest_first for name in names}


def make_recall_keys(judge: str, score: str = WHOLE_RECALL, *path: str) -> Keys:
    """Return the path to the recall `score` by the judge, in the direction or gallery at `path`.

    Without `path`, the recall is from text to image in the whole split, or in the hard gallery for "R@1 (hard)".
    """
    recall, _, gallery = score.partition(" ")  # "R@1 (hard)": the recall, and the hard gallery
    if not path:
        path = ("galleries", HARD_GALLERY) if gallery else (TEXT,)
    return "judges", judge, *path, recall


def make_human_recall_keys(judge: str, score: str = WHOLE_RECALL) -> Keys:
    """Return the path to a recall of human captions by the judge."""
    judges, name, *rest = make_recall_keys(judge, score)
    return judges, name, "human", *rest
