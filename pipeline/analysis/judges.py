"""The listeners that judge captions: names and titles. Which judges there are depends on the evaluations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OWN, ADAPTED, BEFORE = "own", "adapted", "before"  # the judges that the report treats separately
TEXT = "text_to_image"
NEAR = "neighbourhood"  # the gallery of images that are hard to tell from the right one
NEAREST, SECOND = "R@1 near", "R@10"  # the scores that methods are compared by: in that gallery, and in the whole split

Keys = tuple[str, ...]  # the path to a number in a split of metrics.json


@dataclass(frozen=True)
class JudgeTitle:
    """A listener that ranks images by captions, and captions by images."""

    name: str
    title: str
    words: str


KNOWN = (
    JudgeTitle(OWN, "Own listener", "the method's own listener"),
    JudgeTitle(
        ADAPTED,
        "Adapted listener",
        "the listener before joint training, after learning on this speaker's captions while it stays frozen",
    ),
    JudgeTitle(BEFORE, "Listener before", "the listener before joint training"),
    JudgeTitle("judge", "Independent judge", "an independent judge"),
    JudgeTitle("symbolic", "Symbolic judge", "a judge without eyes, which holds what captions claim against the facts"),
)


def described(name: str) -> JudgeTitle:
    """The judge of that name; one that is not known here has its name as its title."""
    return next((judge for judge in KNOWN if judge.name == name), JudgeTitle(name, name, name))


def in_order(lists: Iterable[Iterable[str]]) -> dict[str, JudgeTitle]:
    """All judges of several evaluations, by name, in the order of the evaluation that has the most of them."""
    longest_first = sorted(map(list, lists), key=len, reverse=True)
    return {name: described(name) for names in longest_first for name in names}


def recall_by(judge: str, score: str = SECOND, *where: str) -> Keys:
    """The path to a recall by the judge, from text to image or in the direction or gallery `where`."""
    recall, _, near = score.partition(" ")
    return "judges", judge, *(where or (("galleries", NEAR) if near else (TEXT,))), recall


def human_by(judge: str, score: str = SECOND) -> Keys:
    """The path to a recall of human captions by the judge."""
    judges, name, *rest = recall_by(judge, score)
    return judges, name, "human", *rest
