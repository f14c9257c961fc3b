"""Calibration on tiny files in the layouts of published human judgements of captions."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pytest
from colour_judge import ColourJudge, paint_colours
from scipy.io import savemat
from scipy.stats import kendalltau

import saywhich
from pipeline.analysis.bootstrap import draw_resamples
from pipeline.errors import UserError
from saywhich.calibrating import pascal_50s
from saywhich.calibrating.choice_accuracy import compute_choice_accuracy
from saywhich.calibrating.pascal_50s import read_pascal_50s
from saywhich.calibrating.published_ratings import read_composite
from saywhich.cli import main
from saywhich.judging import judge_sources
from saywhich.judging.judge_sources import JudgeSource
from saywhich.judging.notes import Notes

TOKENS = """a.png#0\ta red thing .
a.png#1\tred
b.png#0\tgreen
b.png#1\ta green dog
c.png#0\tred and green
c.png#1\tblue
"""
# the cosines of photo and caption on the five lines are h, 0, 1 (the photo's own caption), 0 and h, with h = 1/√2
EXPERT = """a.png\tc.png#0\t2\t3\t3
a.png\tb.png#0\t1\t1\t2
a.png\ta.png#1\t4\t4\t4
b.png\ta.png#1\t1\t2\t1
c.png\tb.png#0\t4\t3\t3
"""
CROWD = """a.png\tc.png#0\t0.333333\t1\t2
a.png\tb.png#0\t0\t0\t3
a.png\ta.png#1\t1\t3\t0
b.png\ta.png#1\t0.25\t1\t3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paint_colours(tmp_path / "photos")
    source = JudgeSource(lambda name: name == "colours", ColourJudge)
    monkeypatch.setattr(judge_sources, "JUDGES", (source, *judge_sources.JUDGES))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Flickr8k.token.txt").write_text(TOKENS)
    return tmp_path


def calibrate(file, **options):
    return saywhich.calibrate(file, "photos", judges=["colours"], metrics=["ROUGE-L"], **options)


def convert_to_clipscore(annotations):
    """Return `annotations` in CLIPScore's JSON form, converted as CLIPScore's code converts Flickr8k's files."""
    texts = dict(line.split("\t") for line in TOKENS.splitlines())
    found = {}
    for image, number, *numbers in (line.split("\t") for line in annotations.splitlines()):
        own = [text for each, text in texts.items() if each.startswith(image)]
        entry = found.setdefault(image, {"image_path": image, "ground_truth": own, "human_judgement": []})
        if annotations is CROWD:
            entry["ground_truth"] = [text for text in entry["ground_truth"] if text != texts[number]]
            numbers = numbers[:1]
        elif texts[number] in own:
            continue
        judgement = {"image_path": image, "caption": texts[number]}
        entry["human_judgement"] += [judgement | {"rating": float(rating)} for rating in numbers]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "annotations"), [("ExpertAnnotations", EXPERT), ("CrowdFlowerAnnotations", CROWD)], ids=["expert", "crowd"]
)
def test_flickr8k_s_files_are_read_as_clipscore_s_code_reads_them(folder, name, annotations):
    (folder / f"{name}.txt").write_text(annotations)
    (folder / "flickr8k.json").write_text(json.dumps(convert_to_clipscore(annotations)))
    found = calibrate(f"{name}.txt", references="Flickr8k.token.txt")
    assert dict(found.correlations) == dict(calibrate("flickr8k.json").correlations)
    assert len(found.correlations) == (4 if annotations is EXPERT else 3)  # experts: also the other raters' mean


def test_experts_ratings_by_hand(folder):
    (folder / "ExpertAnnotations.txt").write_text(EXPERT)
    found = calibrate("ExpertAnnotations.txt", references="Flickr8k.token.txt")
    assert (found.images, found.captions, found.ratings) == (3, 4, 12)
    assert found.notes == ["ratings of an image's own reference, which are left out: 1 (a.png#1)"]
    ratings, cosines = [2, 3, 3, 1, 1, 2, 1, 2, 1, 4, 3, 3], [1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    score = found.correlations["colours", "CLIPScore"]
    assert score.tau_c == pytest.approx(kendalltau(ratings, cosines, variant="c").statistic)
    # of 36 pairs of a higher and a lower score, 34 agree and 2 have equal ratings; m = 2 distinct scores
    assert score.tau_c == pytest.approx(34 / (12**2 * (1 / 2) / 2))


def test_crowdflower_s_rating_is_the_share_of_yes(folder):
    (folder / "CrowdFlowerAnnotations.txt").write_text(CROWD)
    found = calibrate("CrowdFlowerAnnotations.txt", references="Flickr8k.token.txt")
    assert found.ratings == 4
    expected = kendalltau([1 / 3, 0, 1, 1 / 4], [0.7, 0, 1, 0]).statistic
    assert found.correlations["colours", "CLIPScore"].tau_b == pytest.approx(expected)


@pytest.mark.parametrize(
    ("line", "references", "message"),
    [
        ("a.png\tb.png#0\t1\t1\t2", None, "names captions by ids; give --references Flickr8k.token.txt"),
        ("a.png\tb.png#0\t1\t1", "Flickr8k.token.txt", "line 1: is .*, and an image, a caption's id and three numbers"),
        ("a.png\tb.png#0\t1\t1\tx", "Flickr8k.token.txt", "and three numbers, separated by tabs, are expected"),
        ("a.png\tb.png#0\t0.33\t1\t2", "Flickr8k.token.txt", "line 1: the numbers are 0.33, 1, 2, and three ratings"),
        ("a.png\tb.png#0\t0\t0\t0", "Flickr8k.token.txt", "line 1: the numbers are 0, 0, 0, and three ratings from 1"),
    ],
)
def test_invalid_lines_are_refused(folder, line, references, message):
    (folder / "ratings.txt").write_text(line)
    with pytest.raises(UserError, match=message):
        calibrate("ratings.txt", references=references)


def format_composite(captions):
    """Return a Composite file: Mechanical Turk's 27 columns, an address, captions, and a rating of each caption."""
    turk = ["HITId", *(f"Turk{number}" for number in range(26))]
    header = [*turk, "Input.url", *(f"Input.text{n}" for n in captions), *(f"Answer.Q{n}" for n in captions)]
    rows = (
        ("a.png", ("red", "a green; dog", "blue", "red"), (5, 1, 2, 1)),
        ("b.png", ("green", "red and green", "x", "x"), (4, 3, 1, 5)),
        ("c.png", ("red", "a dog", "blue", "x"), (5, 3, 2, 5)),
    )
    lines = [header]
    for number, (image, texts, ratings) in enumerate(rows):
        own = [f"H{number}", *["1"] * 26, f"http://host/images/{image}", *texts[: len(captions)]]
        lines.append([*own, *map(str, ratings[: len(captions)])])
    blank = [""] * len(header)
    return "\n".join(";".join(f'"{cell}"' if ";" in cell else cell for cell in line) for line in [*lines, blank, blank])


@pytest.mark.parametrize("captions", [range(3), range(4)])
def test_composite_by_hand(folder, captions):
    (folder / "8k_correctness.csv").write_text(format_composite(captions))
    found = calibrate("8k_correctness.csv")
    assert (found.images, found.ratings) == (3, 9)
    h = 1 / np.sqrt(2)
    expected = kendalltau([5, 1, 2, 4, 3, 1, 5, 3, 2], [1, 0, 0, 1, h, 0, h, 0, 0], variant="c").statistic
    assert found.correlations["colours", "CLIPScore"].tau_c == pytest.approx(expected)
    fourth = "ratings of an image's fourth caption, which papers leave out: 3 (a.png, b.png, c.png)"
    assert [fourth] * (len(captions) - 3) == [note for note in found.notes if "fourth" in note]


@pytest.mark.parametrize("caption", ["2", ""])
def test_a_caption_of_composite_may_be_a_number_or_missing(folder, caption):
    """The ratings begin at the first column after the address that has numbers in most of its cells with text."""
    text = format_composite(range(3))
    assert ';red;"a green; dog"' in text
    (folder / "8k_correctness.csv").write_text(text.replace('"a green; dog"', caption))
    found = read_composite(folder / "8k_correctness.csv", Notes())
    assert [(rating.caption, rating.rating) for rating in found.ratings[:3]] == [("red", 5), (caption, 1), ("blue", 2)]
    assert len(found.ratings) == 9


def test_composite_with_other_columns_is_refused(folder):
    text = format_composite(range(3)).replace(";5;1;2\n", ";5;1\n")
    (folder / "8k_correctness.csv").write_text(text)
    with pytest.raises(
        UserError, match=r"8k_correctness.csv, row 2: expected an address, captions and as many ratings"
    ):
        calibrate("8k_correctness.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HITId,url\rx,http://host/a.png\r", "t.csv: not a CSV table"),
        (
            "HITId,b\nx,y,http://host/a.png,red,blue\n",
            "t.csv, row 2: expected .* from column 3, found 2 values after .*; correct the row$",
        ),
    ],
)
def test_a_damaged_composite_file_is_refused(folder, text, message):
    (folder / "t.csv").write_bytes(text.encode())
    with pytest.raises(UserError, match=message):
        calibrate("t.csv")


def test_composite_with_a_blank_first_line_and_a_rating_of_spaces(folder):
    rows = "x,http://host/a.png,red,blue,5,1\ny,http://host/b.png,red,blue,4, \n"
    (folder / "t.csv").write_text("\nHITId,url,text1,text2,Q1,Q2\n" + rows)
    notes = Notes()
    assert [rating.rating for rating in read_composite(folder / "t.csv", notes).ratings] == [5, 1, 4]
    assert list(notes.examples) == ["captions of t.csv without a rating"]


def make_cell(value):
    """Return a cell array of MATLAB with one value."""
    found = np.empty((1, 1), object)
    found[0, 0] = value
    return found


def write_pascal_50s(folder, pairs, voters=4):
    """Write pairs (image, captions, votes of `voters` for the first caption, kind) as Pascal-50S's files."""
    inputs = np.empty((1, len(pairs)), [(name, object) for name in ("image", "first", "second")])
    triplets = np.empty((1, voters * len(pairs)), [(name, object) for name in ("A", "B", "C", "winner")])
    for number, (image, (first, second), votes, _) in enumerate(pairs):
        inputs[0, number] = (image, first, second)
        for voter in range(voters):
            reference = f"{first} {second}" if voter == 0 else f"thing {voter}"
            winner = 1 if voter < votes else -1
            triplets[0, voters * number + voter] = (make_cell(reference), make_cell(first), make_cell(second), winner)
    kinds = np.array([[kind for *_, kind in pairs]])
    savemat(folder / "pair_pascal.mat", {"new_input": inputs, "category": kinds}, do_compression=True)
    savemat(folder / "consensus_pascal.mat", {"triplets": triplets}, do_compression=True)


PAIRS = [
    ("a.png", ("red", "blue"), 4, 1),  # cosines 1, 0: the judge agrees
    ("a.png", ("red", "green"), 1, 2),  # 1, 0: the judge disagrees
    ("b.png", ("red", "a green dog"), 1, 2),  # 0, 1: agrees
    ("b.png", ("red", "blue"), 3, 3),  # 0, 0: a tie, which counts half
    ("c.png", ("red", "red and green"), 0, 4),  # h, 1: agrees
    ("c.png", ("red", "blue"), 2, 4),  # equally many votes for each caption
    ("nowhere.jpg", ("red", "blue"), 4, 4),
]


def test_pascal_50s_by_hand(folder, capsys):
    write_pascal_50s(folder, PAIRS)
    found = calibrate("consensus_pascal.mat")
    assert dict(found.correlations) == {}
    assert found.ratings == 5
    score = found.accuracies["colours", "CLIPScore"]
    assert dict(score.values) == {"HC": 100, "HI": 50, "HM": 50, "MM": 100, "mean": 75}
    assert score.intervals["HC"] == (100, 100)  # over the resamples that hold a pair of this kind
    assert found.notes == [
        "pairs with equal votes for both captions, which are left out: 1 (c.png)",
        "rated images that are not in photos, or have a name that several photos have: 1 (nowhere.jpg)",
    ]
    # the first reference is "red blue": each caption is one of its two words, so both have equal ROUGE-L
    assert found.accuracies["", "ROUGE-L"].values["HC"] == 50
    command = ["calibrate", "pair_pascal.mat", "--images", "photos", "--judge", "colours", "--metrics", "ROUGE-L"]
    assert main([*command, "--json", "out.json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[3].split() == ["HC", "HI", "HM", "MM", "mean"]
    low, high = score.intervals["mean"]
    assert printed[4].split() == f"CLIPScore, colours 100.0 50.0 50.0 100.0 75.0 [{low:.1f}, {high:.1f}]".split()
    assert max(map(len, printed)) <= 100
    scores = json.loads((folder / "out.json").read_text())["scores"]
    assert scores[0]["accuracy"] == dict(score.values)


def test_five_of_pascal_50s_references_count(folder):
    write_pascal_50s(folder, PAIRS[:1], voters=6)
    (choice,) = read_pascal_50s(folder / "pair_pascal.mat")
    assert choice.votes == (4, 2)
    assert choice.references == ["red blue", "thing 1", "thing 2", "thing 3", "thing 4"]


def test_choices_without_a_score_are_refused(folder):
    write_pascal_50s(folder, PAIRS)
    with pytest.raises(UserError, match=r"calibrate: no judge and no metric that can be computed; give --judge or"):
        saywhich.calibrate("pair_pascal.mat", "photos", judges=[], metrics=[])


def test_intervals_of_accuracies_are_those_of_the_images_drawn():
    rng = np.random.default_rng(0)
    owners, margins = rng.integers(0, 8, 60), rng.standard_normal(60)
    kinds = [("HC", "MM")[number] for number in rng.integers(0, 2, 60)]
    found = compute_choice_accuracy(margins, kinds, owners, 8, 100)
    means = []
    for counts in draw_resamples(8, 100):
        rows = np.repeat(np.arange(60), counts[owners].astype(int))
        means.append([100 * np.mean([margins[row] > 0 for row in rows if kinds[row] == kind]) for kind in ("HC", "MM")])
    assert found.intervals["HC"] == pytest.approx(tuple(np.percentile([each[0] for each in means], (2.5, 97.5))))
    assert found.intervals["mean"] == pytest.approx(tuple(np.percentile(np.mean(means, 1), (2.5, 97.5))))


def test_invalid_files_of_matlab_are_refused(folder, monkeypatch):
    write_pascal_50s(folder, PAIRS)
    good = (folder / "pair_pascal.mat").read_bytes()
    (folder / "pair_pascal.mat").write_bytes(good[: len(good) // 2])
    with pytest.raises(
        UserError, match=r"pair_pascal.mat: expected the variables new_input, category of MATLAB, which cannot"
    ):
        calibrate("pair_pascal.mat")
    packed = zlib.compress(bytes(2**20), 9)
    bomb = good[:128] + struct.pack("<II", 15, len(packed)) + packed
    monkeypatch.setattr(pascal_50s, "MAX_UNPACKED_BYTES", 2**20 - 1)
    (folder / "pair_pascal.mat").write_bytes(bomb)
    with pytest.raises(UserError, match=r"its variables have more than 1,048,575 bytes"):
        calibrate("pair_pascal.mat")
    write_pascal_50s(folder, PAIRS[:3])
    (folder / "pair_pascal.mat").write_bytes(good)
    uneven = r"\(expected equally many votes for each pair, found 7 pairs and 12 votes\)"
    with pytest.raises(UserError, match=rf"are not the files of Pascal-50S {uneven}"):
        calibrate("pair_pascal.mat")
    for wrong, reason in (
        ([], "expected equally many votes for each pair, found 0 pairs and 0 votes"),
        ([*PAIRS[:1], ("a.png", ("red", "blue"), 4, 7)], "pair 2 is of the kind 7, not 1 to 4"),
    ):
        write_pascal_50s(folder, wrong)
        with pytest.raises(UserError, match=rf"are not the files of Pascal-50S \({reason}\)"):
            calibrate("pair_pascal.mat")
    (folder / "consensus_pascal.mat").unlink()
    with pytest.raises(UserError, match=r"consensus_pascal.mat: missing.*put the published pair_pascal.mat and cons"):
        calibrate("pair_pascal.mat")
    with pytest.raises(UserError, match=r"Pascal-50S has references of its own; leave --references out"):
        calibrate("pair_pascal.mat", references="Flickr8k.token.txt")
