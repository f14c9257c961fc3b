"""Rank correlations with people's ratings of captions of three photos, computed by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from colour_judge import ColourJudge, paint_colours
from scipy.stats import kendalltau

import saywhich
from pipeline.analysis.bootstrap import draw_resamples
from pipeline.errors import UserError
from saywhich.calibrating.rank_correlation import compute_kendall, correlate
from saywhich.calibrating.rating_files import read_ratings
from saywhich.cli import main
from saywhich.judging import judge_sources
from saywhich.judging.judge_sources import JudgeSource
from saywhich.judging.notes import Notes

# cosines of photo and caption: 1, 0, h, h, 0 with h = 1/√2
TABLE = """image,caption,rating
a.png,red,4
a,green,1
b.png,red and green,3
c.png,red,3
c.png,blue,5
"""
REFERENCES = {"a": ["red"], "b": ["a green thing"], "c": ["green red", "red and green"]}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paint_colours(tmp_path / "photos")
    source = JudgeSource(lambda name: name == "colours", ColourJudge)
    monkeypatch.setattr(judge_sources, "JUDGES", (source, *judge_sources.JUDGES))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ratings.csv").write_text(TABLE)
    return tmp_path


def test_clip_score_by_hand():
    found = saywhich.calibrate("ratings.csv", "photos", judges=["colours"])
    assert (found.images, found.captions, found.ratings) == (3, 5, 5)
    (score,) = found.correlations.values()
    # of 10 pairs 5 agree and 3 disagree; the rating 3 ties once; scores tie twice, once in that pair
    assert score.tau_b == pytest.approx((5 - 3) / math.sqrt((10 - 1) * (10 - 2)))
    assert score.tau_c == pytest.approx(2 * (5 - 3) / (5**2 * (3 - 1) / 3))
    assert score.ratings == 5


def test_clip_score_encodes_captions_and_references_with_its_prompt(monkeypatch):
    encoded_texts = []

    class PromptRecorder(ColourJudge):
        def encode_texts(self, texts):
            encoded_texts.extend(texts)
            return super().encode_texts(texts)

    monkeypatch.setattr(judge_sources, "JUDGES", (JudgeSource(lambda name: True, PromptRecorder),))
    saywhich.calibrate("ratings.csv", "photos", references=REFERENCES, judges=["colours"], metrics=["ROUGE-L"])
    assert "A photo depicts a green thing" in encoded_texts  # a reference, and no caption
    assert all(text.startswith("A photo depicts ") for text in encoded_texts)


def test_judges_whose_names_are_equal_have_scores_of_their_own(monkeypatch):
    """A judge has the name of its folder, so that two folders may give equal names."""
    source = JudgeSource(lambda name: True, lambda name: ColourJudge(name.rpartition("/")[2]))
    monkeypatch.setattr(judge_sources, "JUDGES", (source,))
    found = saywhich.calibrate("ratings.csv", "photos", judges=["old/clip", "clip", "new/clip"])
    assert [key.judge for key in found.correlations] == ["clip", "clip 2", "new/clip"]
    found = saywhich.calibrate("ratings.csv", "photos", judges=["a/clip 3", "b/clip", "clip"])
    assert [key.judge for key in found.correlations] == ["clip 3", "clip", "clip 4"]


def test_references_equal_to_the_caption_do_not_count(folder):
    (folder / "ratings.csv").write_text(TABLE.replace("c.png,blue,5", "c.png,blue,2"))
    found = saywhich.calibrate("ratings.csv", "photos", references=REFERENCES, judges=["colours"], metrics=["ROUGE-L"])
    # the only reference of image a equals one of its captions, and counts for the other caption alone
    assert found.correlations["", "ROUGE-L"].ratings == 4
    # captions 2 … 5 have the cosines 0, h, h, 0 with the photo, and the same with the nearest reference;
    # of 6 pairs 4 agree; the rating 3 ties once; scores tie twice, once in that pair
    assert found.correlations["colours", "RefCLIPScore"].tau_b == pytest.approx(4 / math.sqrt((6 - 1) * (6 - 2)))
    # ROUGE-L by longest common subsequences: recall and precision are 1/3 and 1/3 for caption 3, and 1/2 and 1 for
    # caption 4; captions 2 and 5 have the score 0, so that scores tie once
    assert found.correlations["", "ROUGE-L"].tau_b == pytest.approx(4 / math.sqrt((6 - 1) * (6 - 1)))
    assert found.notes == ["ratings whose caption is also a reference, which is left out: 1 (red)"]


@pytest.mark.parametrize(("distinct_ratings", "distinct_scores"), [(4, 30), (30, 4), (1000, 1000), (2, 2)])
def test_tau_b_and_tau_c_equal_those_of_scipy(distinct_ratings, distinct_scores):
    generator = np.random.default_rng(0)
    ratings, scores = generator.integers(0, distinct_ratings, 60) - 2.5, generator.integers(0, distinct_scores, 60)
    expected = [kendalltau(ratings, scores, variant=variant).statistic for variant in "bc"]
    assert compute_kendall(ratings, scores) == pytest.approx(expected, abs=1e-12)
    assert all(map(math.isnan, compute_kendall(ratings, np.zeros(60))))


def test_counts_equal_repeated_observations():
    generator = np.random.default_rng(2)
    ratings, scores = generator.integers(0, 5, 20), generator.integers(0, 9, 20)
    counts = generator.integers(0, 3, (6, 20)).astype(float)
    counts[5] = ratings == 3  # a resample in which all ratings are equal
    found = compute_kendall(ratings, scores, counts)
    for times, taus in zip(counts[:5].astype(int), found[:5], strict=True):
        repeated = np.repeat(ratings, times), np.repeat(scores, times)
        expected = [kendalltau(*repeated, variant=variant).statistic for variant in "bc"]
        assert taus == pytest.approx(expected, abs=1e-12)
    assert np.isnan(found[5]).all()


def test_intervals_are_those_of_the_images_drawn():
    generator = np.random.default_rng(1)
    owners = generator.integers(0, 8, 40)
    ratings, scores = generator.integers(1, 5, 40).astype(float), generator.standard_normal(40)
    scores[3] = np.nan
    found = correlate(ratings, scores, owners, 8, 50)
    taus = []
    for counts in draw_resamples(8, 50):
        rows = [row for row in range(40) for _ in range(int(counts[owners[row]])) if row != 3]
        taus.append([kendalltau(ratings[rows], scores[rows], variant=variant).statistic for variant in "bc"])
    ends = np.percentile(taus, (2.5, 97.5), axis=0).T.tolist()
    assert (found.interval_b, found.interval_c) == (pytest.approx(tuple(ends[0])), pytest.approx(tuple(ends[1])))
    assert found.ratings == 39


def test_the_mean_of_other_raters(folder):
    rows = [("red", 4, "x"), ("red", 2, "y"), ("red", 3, "z"), ("green", 1, "x"), ("green", 2, "y"), ("blue", 1, "x")]
    rows.append(("blue", 2, "x"))  # a second rating by the same rater is no other rater's
    table = ["image_id,caption,rating,rater", *(f"a,{caption},{rating},{rater}" for caption, rating, rater in rows)]
    (folder / "ratings.csv").write_text("\n".join([*table, "b,red,,x", "b,green,4,x", "nowhere,red,1,x"]))
    found = saywhich.calibrate("ratings.csv", "photos", judges=["colours"])
    other_raters = found.correlations["", "the other raters' mean"]
    assert other_raters.ratings == 5
    assert other_raters.tau_b == pytest.approx(kendalltau([4, 2, 3, 1, 2], [2.5, 3.5, 3, 2, 1]).statistic)
    assert found.notes == [
        "rows of ratings.csv without a rating: 1 (b)",
        "rated images that are not in photos, or have a name that several photos have: 1 (nowhere)",
    ]


def test_the_json_form_of_flickr8k(folder):
    def make_entry(name, *ratings):
        judgements = [
            {"image_path": f"{name}.png", "caption": caption, "rating": rating} for caption, rating in ratings
        ]
        return {"image_path": f"{name}.png", "ground_truth": REFERENCES[name], "human_judgement": judgements}

    data = {
        "1": make_entry("a", ("red", 4), ("green", 1), ("blue", math.nan)),
        "2": make_entry("b", ("red and green", 3)),
        "3": make_entry("c", ("red", 3), ("blue", 5)),
    }
    (folder / "flickr8k.json").write_text(json.dumps(data))
    found = saywhich.calibrate("flickr8k.json", "photos", judges=["colours"], metrics=["ROUGE-L"])
    same = saywhich.calibrate("ratings.csv", "photos", references=REFERENCES, judges=["colours"], metrics=["ROUGE-L"])
    assert found.correlations == same.correlations
    assert found.notes[0] == "captions of flickr8k.json without a rating: 1 (a.png)"


def test_entries_of_one_image_are_joined_and_captions_stay_as_they_are(tmp_path):
    def make_entry(reference, *ratings):
        judgements = [{"image_path": "a.png", "caption": caption, "rating": rating} for caption, rating in ratings]
        return {"image_path": "a.png", "ground_truth": [reference], "human_judgement": judgements}

    data = {
        "1": make_entry("red", ('a sign: NaN, "NaN"', 4), ("blue", math.nan)),
        "2": make_entry("a NaN", ("blue", 1)),
    }
    for separators in ((",", ":"), (", ", ": ")):
        (tmp_path / "r.json").write_text(json.dumps(data, separators=separators))
        notes = Notes()
        found = read_ratings(tmp_path / "r.json", None, notes)
        assert [(each.caption, each.rating) for each in found.ratings] == [('a sign: NaN, "NaN"', 4.0), ("blue", 1.0)]
        assert found.references == {"a.png": ["red", "a NaN"]}
        assert list(notes.lines()) == ["captions of r.json without a rating: 1 (a.png)"]


@pytest.mark.parametrize(
    ("rating", "message"),
    [
        ("good", '"1": the rating is "good", and a number is expected'),
        (True, '"1": the rating is true, and a number is expected'),
        ([1], '"1": the rating is [1], and a number is expected'),
        (None, "no ratings; two values or more are needed"),
    ],
)
def test_invalid_ratings_of_the_json_form_are_refused(tmp_path, rating, message):
    judgement = {"image_path": "a.png", "caption": "red", "rating": rating}
    entry = {"image_path": "a.png", "ground_truth": ["red"], "human_judgement": [judgement]}
    (tmp_path / "r.json").write_text(json.dumps({"1": entry}))
    with pytest.raises(UserError) as caught:
        read_ratings(tmp_path / "r.json", None, Notes())
    assert message in str(caught.value)


def test_the_command_prints_and_writes_the_same_numbers(folder, capsys):
    command = ["calibrate", "ratings.csv", "--images", "photos", "--judge", "colours", "--json", "out.json"]
    assert main(command) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "5 ratings of 5 captions of 3 images; 95 % intervals over images, in brackets"
    assert max(map(len, printed)) <= 100
    (score,) = json.loads((folder / "out.json").read_text())["scores"]
    taus = [score["tau_b"], score["tau_c"]]
    assert [each["value"] for each in taus] == pytest.approx([2 / math.sqrt(72), 0.24])
    ends = [[f"{100 * end:.1f}" for end in each["interval"]] for each in taus]
    cells = [f"{value} [{low}, {high}]" for value, (low, high) in zip(("23.6", "24.0"), ends, strict=True)]
    assert printed[-1].split() == " ".join(["CLIPScore, colours", *cells, "5"]).split()


@pytest.mark.parametrize(
    "change",
    [
        {"image_path": None},
        {"image_path": 1.5},
        {"image_path": True},
        {"ground_truth": "red"},
        {"ground_truth": [7]},
        {"human_judgement": {"rating": 1}},
        {"human_judgement": [{"image_path": ["a.png"], "caption": "red", "rating": 1}]},
        {"human_judgement": [{"image_path": "a.png", "caption": 7, "rating": 1}]},
    ],
)
def test_json_of_another_form_is_refused(folder, change):
    judgements = [
        {"image_path": "a.png", "caption": "red", "rating": 1},
        {"image_path": "b.png", "caption": "x", "rating": 2},
    ]
    entry = {"image_path": "a.png", "ground_truth": ["red"], "human_judgement": judgements}
    (folder / "ratings.json").write_text(json.dumps({"first": entry, "7": entry | change}))
    with pytest.raises(UserError, match=r'^ratings.json, "7": has another form; the form is'):
        saywhich.calibrate("ratings.json", "photos", judges=["colours"])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("image,caption,rating\na,red,good\n", 'row 2: the rating is "good", and a number is expected'),
        ("caption,rating\nred,1\n", "row 2: names no image; name it in the column file or image"),
        ("image,caption,rating\na,red,1\nb,red,1\n", "2 ratings, all of one value; two values or more are needed"),
        (
            "image,caption,rating\na,red,1\na,green,2\n",
            "expected two or more photos in photos with ratings that count, found 1; give the folder of its images",
        ),
    ],
)
def test_ratings_that_cannot_be_read_are_refused(folder, table, message):
    (folder / "ratings.csv").write_text(table)
    with pytest.raises(UserError, match=message):
        saywhich.calibrate("ratings.csv", "photos", judges=["colours"])


def test_an_empty_name_of_the_folder_is_not_the_current_folder(folder):
    (folder / "ratings.csv").write_text("image,caption,rating\na,red,1\nb,red,2\n")
    with pytest.raises(UserError, match=r"^a photo's path is empty"):
        saywhich.calibrate("ratings.csv", "", judges=["colours"])
