"""Pairs of test images with the same caption by the control, and another method's captions of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.analysis.caption_files import read_captions
from pipeline.analysis.judge_titles import HARD_RECALL, JudgeTitle
from pipeline.analysis.results import Results, Run
from pipeline.metrics.gallery_names import HARD_GALLERY
from pipeline.report.gallery import GalleryCaption, GalleryPicture, select_captions_of_methods
from pipeline.report.method_names import replace_method_names

PAIRS = 4
STREAM = 1  # random stream of the report's seed; the gallery uses stream 0


@dataclass(frozen=True)
class CaptionedImage:
    """Image with its captions by the control and by the other method, and its rank with each caption (1 is best)."""

    picture: GalleryPicture
    control: GalleryCaption
    other: GalleryCaption
    control_rank: int
    other_rank: int


@dataclass(frozen=True)
class SharedCaptions:
    """Pairs of images that share a caption of the control, and counts of rank changes by the other method's captions.

    `images` is the number of test images that the judge ranked. `higher`, `equal` and `lower` count the images that
    share a caption of the control. They compare an image's rank with the other method's caption to its rank with the
    control's caption.
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
        """Return one paragraph on the selection of the pairs, and the counts over all images that share a caption."""
        total = self.higher + self.equal + self.lower
        scope = "in its hard gallery" if self.in_hard_gallery else f"among all {self.images:,}"
        control, other = replace_method_names(self.control), replace_method_names(self.other)
        return (
            f"{control} gives {total:,} of {self.images:,} test images a caption that another image also has. The "
            f"pairs are drawn at random from these images. With captions by {other}, the {self.judge.title.lower()} "
            f"ranks {self.higher:,} of the {total:,} images higher {scope}, {self.lower:,} lower and {self.equal:,} "
            "the same."
        )


def find_shared_captions(
    results: Results,
    control: Run,
    other: Run,
    seed: int,
    load_pictures: Callable[[Sequence[int]], Sequence[GalleryPicture]],
) -> SharedCaptions | None:
    """Return up to PAIRS image pairs, each with a different caption of the control, and counts by the last judge.

    Ranks are in the hard gallery if the score of `results` is HARD_RECALL. Returns None where no two images share a
    caption, or where ranks or pictures are missing. Raises UserError as `read_captions` does.
    """
    judge = results.judges[results.first_and_last_judge[-1]]
    hard = results.score == HARD_RECALL
    columns = [run.column(HARD_GALLERY if hard else "rank", judge.name) for run in (control, other)]
    rows = read_captions([control, other], None, ["caption", *columns])
    by_control, by_other = (
        {image: (row["caption"], row[column]) for image, row in each.items() if row.get(column)}
        for each, column in zip(rows, columns, strict=True)
    )
    groups = group_images_by_caption(
        {image: caption for image, (caption, _) in by_control.items() if image in by_other}
    )
    pairs = draw_pairs(groups, seed)
    pictures = {picture.row: picture for picture in load_pictures([image for pair in pairs for image in pair])}
    if not pictures:
        return None

    def build_captioned_image(image: int) -> CaptionedImage:
        picture = select_captions_of_methods(pictures[image], [control.method, other.method])
        control_caption, other_caption = picture.captions
        return CaptionedImage(picture, control_caption, other_caption, by_control[image][1], by_other[image][1])

    ranks = [(by_control[image][1], by_other[image][1]) for images in groups.values() for image in images]
    return SharedCaptions(
        control=control.method,
        other=other.method,
        judge=judge,
        in_hard_gallery=hard,
        pairs=tuple((build_captioned_image(first), build_captioned_image(second)) for first, second in pairs),
        images=len(by_control),
        higher=sum(other_rank < control_rank for control_rank, other_rank in ranks),
        equal=sum(other_rank == control_rank for control_rank, other_rank in ranks),
        lower=sum(other_rank > control_rank for control_rank, other_rank in ranks),
    )


def group_images_by_caption(captions: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the images of each caption that two or more images share, in the order of `captions`."""
    images: dict[str, list[int]] = defaultdict(list)
    for image, caption in captions.items():
        images[caption].append(image)
    return {caption: group for caption, group in images.items() if len(group) > 1}


def draw_pairs(groups: Mapping[str, Sequence[int]], seed: int) -> list[tuple[int, int]]:
    """Draw two images for each of PAIRS captions, or for all captions if there are fewer."""
    rng = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
    candidates = [sorted(images) for _, images in sorted(groups.items())]
    chosen: Sequence[int] = (
        rng.choice(len(candidates), size=min(PAIRS, len(candidates)), replace=False).tolist() if candidates else []
    )
    pairs = [rng.choice(candidates[n], size=2, replace=False) for n in chosen]
    return [(int(first), int(second)) for first, second in pairs]
