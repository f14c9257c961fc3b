"""Inference with trained speakers and listeners: captions that identify a photo, and photo retrieval by text.

>>> import saywhich
>>> model = saywhich.load("data/models/psst_multinomial")  # or a folder that `saywhich export` wrote
>>> captions = model.caption(["a.jpg", "b.jpg"])
>>> print(*captions, sep="\\n")  # doctest: +SKIP
a brown dog runs on the beach
two boats on a calm sea
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from pipeline.runtime import home  # noqa: F401 (sets HOME, which libraries need)
from pipeline.runtime.extras import explain_missing_extra
from saywhich.judging.judging_choices import DEFAULT_JUDGE, GALLERY_IMAGES, THUMBNAIL

if TYPE_CHECKING:
    from saywhich.bagging.bag_search import PhotoBags
    from saywhich.calibrating.calibration import Calibration
    from saywhich.captioning_model import Caption, SearchHit
    from saywhich.judging.caption_comparison import CaptionComparison
    from saywhich.judging.judgement import Judgement
    from saywhich.judging.photo_vectors import CaptionJudge
    from saywhich.model import Model
    from saywhich.model_with_listener import ModelWithListener
    from saywhich.pretrained.pretrained_model import PretrainedModel
    from saywhich.reward_hacking.gain_shares import RewardHacking
    from saywhich.rewarding.caption_reward import CaptionReward


__all__ = ["Caption", "Model", "SearchHit", "bags", "calibrate", "compare", "hacked", "judge", "load", "reward"]

Captions = str | Path | Mapping[str, "str | Sequence[str]"]
"""A caption file of any form that `saywhich judge` reads, or a mapping {file: caption} or {file: [captions]}."""


@overload
def load(folder: str | Path) -> Model: ...
@overload
def load(folder: str | Path, listener: str) -> ModelWithListener | PretrainedModel: ...
def load(folder: str | Path, listener: str | None = None) -> Model | ModelWithListener | PretrainedModel:
    """Load the trained speaker and listener in `folder`, with the feature extractor of their images.

    `listener` is a name of `saywhich judge --judge`; that pretrained listener replaces the trained listener. `folder`
    may then also name a pretrained speaker (hub/OWNER/NAME or a folder).

    `folder` is `data/models/<method>` of a repository, a cell of its grid, or a folder that `saywhich export` wrote.
    No code in `folder` is executed. Raises UserError (a ValueError) in one line where a file is missing, is damaged or
    does not match its digest. Raises UserError also for a listener or pretrained speaker that cannot be loaded, and
    where an extra is not installed.
    """
    from saywhich.loading import load_model  # here: PyTorch takes a second to import

    with explain_missing_extra():
        if listener is None:
            return load_model(Path(folder))
        from saywhich.model_files import is_trained
        from saywhich.model_with_listener import ModelWithListener
        from saywhich.pretrained.pretrained_captioner import open_listener
        from saywhich.pretrained.pretrained_model import PretrainedModel
        from saywhich.pretrained.pretrained_speaker import GenerationSettings, PretrainedSpeaker

        if is_trained(Path(folder)):
            return ModelWithListener(load_model(Path(folder)), open_listener(listener))
        return PretrainedModel(PretrainedSpeaker(str(folder)), open_listener(listener), GenerationSettings())


def judge(
    captions: Captions,
    images: str | Path,
    *,
    references: Captions | None = None,
    judges: Sequence[str | CaptionJudge] = (DEFAULT_JUDGE,),
    hard: int = GALLERY_IMAGES,
    neighbours: str = THUMBNAIL,
    galleries: str | Path | Mapping[str, Sequence[str]] | None = None,
    near_duplicates: bool = False,
    instances: Sequence[str | Path] = (),
    ids: str | Path | None = None,
    metrics: Sequence[str] | None = None,
) -> Judgement:
    """Judge the captions of the photos in and below `images`: recalls, CLIPScore, language metrics, text quality.

    The arguments are the options of the command `saywhich judge`; docs/judge.md describes them. Scores have 95 %
    intervals over images, except those of the whole set of captions. Raises UserError in one line for inputs that
    cannot be judged.

    >>> judgement = saywhich.judge("captions.json", "photos", judges=["my-model"])  # doctest: +SKIP
    >>> judgement.rows[0].value("my-model", "R@1")  # doctest: +SKIP
    31.2
    """
    with explain_missing_extra():
        from saywhich.judging.judgement import JudgeOptions, judge_captions

        options = JudgeOptions(judges, hard, neighbours, galleries, near_duplicates, instances, ids, metrics)
        return judge_captions([captions], images, references, options)


def compare(
    captions: Sequence[Captions],
    images: str | Path,
    *,
    references: Captions | None = None,
    judges: Sequence[str | CaptionJudge] = (DEFAULT_JUDGE,),
    hard: int = GALLERY_IMAGES,
    neighbours: str = THUMBNAIL,
    galleries: str | Path | Mapping[str, Sequence[str]] | None = None,
    near_duplicates: bool = False,
    instances: Sequence[str | Path] = (),
    ids: str | Path | None = None,
    metrics: Sequence[str] | None = None,
    rewarded_by: Sequence[str] = (),
) -> CaptionComparison:
    """Compare two or more sets of captions of the same photos, each with the first, by paired differences.

    The arguments are those of `judge`; `rewarded_by` names judges that rewarded a training. A difference has a 95 %
    interval over images, a Holm-adjusted p-value and a verdict, unless its score is of the whole set of captions.
    Raises UserError as `judge` does, for fewer than two sets, and for a name in `rewarded_by` that is no judge.

    >>> comparison = saywhich.compare(["before.json", "after.json"], "photos", judges=["my-model"])  # doctest: +SKIP
    >>> comparison.pairs[0].difference("my-model", "R@1 (hard)").verdict  # doctest: +SKIP
    'better'
    """
    with explain_missing_extra():
        from saywhich.judging.caption_comparison import check_comparison, compare_rows
        from saywhich.judging.judgement import JudgeOptions, judge_captions

        check_comparison(len(captions), judges, rewarded_by)
        options = JudgeOptions(judges, hard, neighbours, galleries, near_duplicates, instances, ids, metrics)
        judgement = judge_captions(captions, images, references, options)
        table_names = {spec: name for spec, name in zip(judges, judgement.judges, strict=True) if isinstance(spec, str)}
        return compare_rows(judgement, [table_names.get(name, name) for name in rewarded_by])


def bags(
    folder: str | Path,
    *,
    size: int = 5,
    neighbours: str = THUMBNAIL,
    min_cosine: float = 0.0,
    max_bags: int | None = None,
) -> PhotoBags:
    """Group the photos in and below `folder` into bags of look-alikes; each photo is in at most one.

    The arguments are the options of the command `saywhich bags`; docs/judging_tools.md describes them. Raises UserError
    in one line for an invalid argument, and for fewer distinct photos than a bag holds.

    >>> bags = saywhich.bags("photos", size=5)  # doctest: +SKIP
    >>> saywhich.judge("captions.json", "photos", galleries=bags.galleries)  # doctest: +SKIP
    """
    with explain_missing_extra():
        from saywhich.bagging.bag_search import find_bags

        return find_bags(folder, size, neighbours, min_cosine, max_bags)


def reward(
    judge: CaptionJudge | str,
    *,
    score: str = "contrastive",
    hard: int = 8,
    photos: str | Path | None = None,
    neighbours: str = THUMBNAIL,
    temperature: float = 0.07,
    column: str = "image",
) -> CaptionReward:
    """Make a reward function of captions for TRL and other trainers: reward(prompts, completions, **columns).

    `judge` is a name of `saywhich judge --judge`, or a judge. The `score` "contrastive" compares the captions and
    photos of a batch in both directions, and the captions with look-alikes where `photos` is given. The score "hard"
    compares the photo with its look-alikes in the folder `photos`. The score "clip_score" is CLIPScore, or PAC-S for
    a judge of PAC-S. `hard` is the number of photos in a hard gallery, which the encoder `neighbours` chooses.
    `temperature` is the τ of the scores "contrastive" and "hard". `column` is the data set's column of photos. Raises
    UserError in one line for invalid settings.

    >>> reward = saywhich.reward("my-model", score="hard", photos="photos")  # doctest: +SKIP
    >>> trainer = GRPOTrainer(model, reward_funcs=reward, train_dataset=captions)  # doctest: +SKIP
    """
    with explain_missing_extra():
        from saywhich.rewarding.caption_reward import CaptionReward

        return CaptionReward(judge, score, hard, photos, neighbours, temperature, column)


def calibrate(
    ratings: str | Path,
    images: str | Path,
    *,
    references: Captions | None = None,
    judges: Sequence[str] = (DEFAULT_JUDGE,),
    metrics: Sequence[str] | None = None,
) -> Calibration:
    """Correlate the scores of judges and metrics with people's ratings of captions: Kendall's τ-b and τ-c.

    For Pascal-50S, compute the accuracy of the scores on its choices between two captions instead. The arguments are
    the options of the command `saywhich calibrate`; docs/judging_tools.md describes them. Results have 95 %
    intervals over images, unless a coefficient is undefined. Raises UserError in one line for ratings that cannot be
    read.

    >>> calibration = saywhich.calibrate("ratings.csv", "photos", judges=["my-model"])  # doctest: +SKIP
    >>> calibration.correlations["my-model", "cosine"].tau_b  # doctest: +SKIP
    0.41
    """
    with explain_missing_extra():
        from saywhich.calibrating.calibration import calibrate_judges

        return calibrate_judges(Path(ratings), images, references, judges, metrics)


def hacked(
    before: Captions,
    after: Captions,
    images: str | Path,
    *,
    reward: str,
    judges: Sequence[str],
    hard: int = GALLERY_IMAGES,
    neighbours: str = THUMBNAIL,
    ids: str | Path | None = None,
) -> RewardHacking:
    """Measure the share of the gain in reward that independent judges confirm, and how training changed the captions.

    The arguments are the options of the command `saywhich hacked`; docs/judging_tools.md describes them. Gains have
    95 % intervals over images. Raises UserError as `judge` does, where the reward is also a judge, and without judges.

    >>> hacking = saywhich.hacked("a.json", "b.json", "photos", reward="x", judges=["y"])  # doctest: +SKIP
    >>> hacking.gain("y", "R@1 (hard)").share  # doctest: +SKIP
    40.0
    """
    with explain_missing_extra():
        from saywhich.judging.judgement import JudgeOptions
        from saywhich.reward_hacking.gain_shares import measure_hacking

        options = JudgeOptions(tuple(judges), hard, neighbours, ids=ids, metrics=())
        return measure_hacking(before, after, images, reward, options)


def __getattr__(name: str) -> object:
    if name in __all__:
        from saywhich import captioning_model, model

        return getattr(model if name == "Model" else captioning_model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
