"""Pairs of test images to which the control gives the same caption, and what another method says of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.analysis.caption_files import read_captions
from pipeline.analysis.judge_titles import HARD_GALLERY, HARD_RECALL, JudgeTitle
from pipeline.analysis.results import Results, Run
from pipeline.report.gallery import GalleryPicture, ShownCaption, picture_with_methods
from pipeline.report.method_names import published_name

PAIRS = 4
STREAM = 1  # random stream of the report's seed; stream 0 draws the gallery


@dataclass(frozen=True)
class CaptionedImage:
    """An image with its captions by the control and by the other method, and its rank by each (1 is best)."""

    picture: GalleryPicture
    control: ShownCaption
    other: ShownCaption
    control_rank: int
    other_rank: int


@dataclass(frozen=True)
class SharedCaptions:
    """Pairs of images that share a caption of the control, and how the other method's captions of all of them rank.

    `higher`, `equal` and `lower` count the images that share their caption by the rank of the other method's caption
    against that of the control's, among all `images` of the test split.
    """

    control: str
    other: str
    judge: JudgeTitle
    in_hard_gallery: bool
    pairs: tuple[tuple[CaptionedImage, CaptionedImage], ...]
    images: int
    higher: int
    equal: int
    lower: int

    @cached_property
    def sentence(self) -> str:
        """Return the rule by which the pairs were chosen, and the counts over all images that share a caption."""
        sharing = self.higher + self.equal + self.lower
        where = "in its hard gallery" if self.in_hard_gallery else f"among all {self.images:,}"
        control, other = published_name(self.control), published_name(self.other)
        return (
            f"{control} gives {sharing:,} of {self.images:,} test images a caption that another image has too. The "
            f"pairs are drawn at random from these. With captions by {other} the {self.judge.title.lower()} ranks "
            f"{self.higher:,} of the {sharing:,} images higher {where}, {self.lower:,} lower and {self.equal:,} "
            "the same."
        )


def find_shared_captions(
    results: Results,
    control: Run,
    other: Run,
    seed: int,
    pictures_of: Callable[[Sequence[int]], Sequence[GalleryPicture]],
) -> SharedCaptions | None:
    """Return PAIRS pairs, no two with the same caption, and the counts by the results' last judge.

    The ranks are those in the hard gallery where recalls are. Returns None where no two images share a caption, or a
    rank or a picture is missing.
    """
    judge = results.judges[results.ends[-1]]
    hard = results.score == HARD_RECALL
    columns = [run.column(HARD_GALLERY if hard else "rank", judge.name) for run in (control, other)]
    rows = read_captions([control, other], None, ["caption", *columns])
    by_control, by_other = (
        {image: (row["caption"], row[column]) for image, row in each.items() if row.get(column)}
        for each, column in zip(rows, columns, strict=True)
    )
    sharing = images_by_caption({image: caption for image, (caption, _) in by_control.items() if image in by_other})
    drawn = draw_pairs(sharing, seed)
    pictures = {picture.row: picture for picture in pictures_of([image for pair in drawn for image in pair])}
    if not pictures:
        return None

    def captioned(image: int) -> CaptionedImage:
        picture = picture_with_methods(pictures[image], [control.method, other.method])
        of_control, of_other = picture.captions
        return CaptionedImage(picture, of_control, of_other, by_control[image][1], by_other[image][1])

    ranks = [(by_control[image][1], by_other[image][1]) for images in sharing.values() for image in images]
    return SharedCaptions(
        control=control.method,
        other=other.method,
        judge=judge,
        in_hard_gallery=hard,
        pairs=tuple((captioned(first), captioned(second)) for first, second in drawn),
        images=len(by_control),
        higher=sum(after < before for before, after in ranks),
        equal=sum(after == before for before, after in ranks),
        lower=sum(after > before for before, after in ranks),
    )


def images_by_caption(captions: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the images of each caption that two or more images have, in the order of `captions`."""
    images: dict[str, list[int]] = defaultdict(list)
    for image, caption in captions.items():
        images[caption].append(image)
    return {caption: sharing for caption, sharing in images.items() if len(sharing) > 1}


def draw_pairs(sharing: Mapping[str, Sequence[int]], seed: int) -> list[tuple[int, int]]:
    """Draw two images of each of PAIRS captions, or of all if there are fewer."""
    draw = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
    groups = [sorted(images) for _, images in sorted(sharing.items())]
    chosen: Sequence[int] = (
        draw.choice(len(groups), size=min(PAIRS, len(groups)), replace=False).tolist() if groups else []
    )
    pairs = [draw.choice(groups[n], size=2, replace=False) for n in chosen]
    return [(int(first), int(second)) for first, second in pairs]
