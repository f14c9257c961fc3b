"""Every number of three judged images, computed by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from colour_judge import ColourJudge, paint_colours

import saywhich
from pipeline.analysis.bootstrap import draw_resamples
from pipeline.errors import UserError
from pipeline.metrics import java
from pipeline.metrics.coco_caption import require_spice
from pipeline.metrics.java import NotComputedError
from saywhich.cli import main
from saywhich.judging.caption_scores import ScoreKey

CAPTIONS = {"a.png": "a red square", "b.png": "a red cat", "c.png": "red and green with a"}
REFERENCES = {"a.png": ["a red wall"], "b.png": ["a green dog", "grass"], "c.png": ["red"]}
GALLERIES = {"a.png": ["c.png"], "b.png": ["c.png"], "c.png": ["a.png"]}


@pytest.fixture
def folder(colours):
    for name, content in {"captions": CAPTIONS, "people": REFERENCES, "galleries": GALLERIES}.items():
        (colours / f"{name}.json").write_text(json.dumps(content))
    return colours


def judge_colours(folder, *metrics):
    paint_colours(folder / "photos")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        options = {"references": REFERENCES, "galleries": GALLERIES, "judges": [ColourJudge()], "metrics": metrics}
        return saywhich.judge(CAPTIONS, folder / "photos", **options)


@pytest.fixture(scope="module")
def judgement(tmp_path_factory):
    return judge_colours(tmp_path_factory.mktemp("judged"), "BLEU", "ROUGE-L", "CIDEr")


def test_recalls_and_clip_scores(judgement):
    # cosines of the captions (rows) with the photos a, b, c: [1 0 h], [1 0 h], [h h 1] with h = 1/√2
    (row,) = judgement.rows
    assert row.ranks["colours"].among_all.tolist() == [1, 3, 1]
    assert row.ranks["colours"].among_hard.tolist() == [1, 2, 1]
    third, h = 100 / 3, 1 / math.sqrt(2)
    expected = {
        "R@1": 2 * third,
        "R@5": 100,
        "R@10": 100,
        # a's caption ties with b's and ranks second; b's caption ranks last, and c's ranks first
        "R@1 image → text": third,
        "R@5 image → text": 100,
        "R@10 image → text": 100,
        "R@1 (hard)": 2 * third,
        "R@1 (hard) image → text": 2 * third,
        "CLIPScore": (2.5 + 0 + 2.5) / 3,
        "RefCLIPScore": (2 * 2.5 * 1 / 3.5 + 0 + 2 * 2.5 * h / (2.5 + h)) / 3,
    }
    assert {key.name: values.value for key, values in row.scores.items() if key.judge} == pytest.approx(expected)


def test_metrics_against_references(judgement):
    (row,) = judgement.rows
    # 4 of 11 words match, and 1 of 8 bigrams; captions are longer than references
    assert row.value("", "BLEU-1") == pytest.approx(4 / 11)
    assert row.value("", "BLEU-2") == pytest.approx(math.sqrt(4 / 11 / 8))
    assert row.value("", "BLEU-4") == pytest.approx(0, abs=1e-4)
    # longest common subsequences of 2, 1 and 1 words; F with β = 1.2
    assert row.value("", "ROUGE-L") == pytest.approx((2 / 3 + 1 / 3 + 2.44 * 0.2 / (1 + 1.44 * 0.2)) / 3)
    assert row.value("", "CIDEr") == pytest.approx(10 / 4 * sum(compute_cider()) / 3)


def compute_cider():
    """Return each caption's sum of cosines of n-grams, n = 1 … 4, with the penalty for another length."""
    # unigrams: a and red have idf log 1.5, others log 3; bigrams: log 3. Only image a has a common bigram, "a red".
    common, rare = math.log(1.5), math.log(3)
    square = 2 * common**2 / (2 * common**2 + rare**2) + rare**2 / (2 * rare**2)
    cat = common**2 / (math.sqrt(2 * common**2 + rare**2) * math.sqrt(common**2 + 2 * rare**2)) / 2
    plain = common / math.sqrt(2 * common**2 + 3 * rare**2) * math.exp(-(4**2) / 72)
    return square, cat, plain


def test_text_quality(judgement):
    (row,) = judgement.rows
    third = 100 / 3
    first = (2 / 3 * 1 / 2 * 0.1 * 0.1 * 0.1) ** 0.2  # a's caption against the two others; b's has an equal score
    last = (2 / 5 * 0.1 / 4 * 0.1 / 3 * 0.1 / 2 * 0.1 / 1) ** 0.2
    expected = {
        "words per caption": 11 / 3,
        "without an end, %": third,  # "… with a"
        "with a repetition, %": 0,
        "equal to another image's, %": 0,
        "distinct captions, %": 100,
        "distinct words": 7,
        "Self-BLEU": (2 * first + last) / 3,
        "absent objects, % (CHAIR_i)": 100,  # the captions name one object, the cat
        "with absent objects, % (CHAIR_s)": third,
    }
    assert {name: row.value("", name) for name in expected} == pytest.approx(expected)


def test_annotated_objects_are_not_absent(folder):
    annotations = [{"image_id": number, "category_id": 1} for number in (1, 2)]
    instances = {"images": [{"id": 1}, {"id": 2}], "categories": [{"id": 1, "name": "dog"}], "annotations": annotations}
    (folder / "instances.json").write_text(json.dumps(instances))
    (folder / "ids.json").write_text(json.dumps({"1": "a.png", "2": "b.png"}))
    options = {"judges": ["colours"], "instances": ["instances.json"], "ids": "ids.json"}
    (row,) = saywhich.judge({"a.png": "a dog", "b.png": "a cat"}, "photos", **options).rows
    names = ("absent objects, % (CHAIR_i)", "with absent objects, % (CHAIR_s)")
    assert [row.value("", name) for name in names] == [50, 50]


def test_rows_of_human_captions_and_of_the_trivial_rule(judgement):
    human, rule = judgement.baselines
    assert human.captions == [["a red wall"], ["a green dog"], ["red"]]
    assert human.ranks["colours"].among_all.tolist() == [1, 1, 2]
    assert human.value("", "BLEU-1") == pytest.approx(0, abs=1e-4)  # only b has a second reference, "grass"
    assert rule.captions == [["a photo of something"], ["a photo of a dog"], ["a photo of something"]]
    assert rule.value("colours", "R@1") == 0  # all scores are 0, and ties count against the caption
    assert rule.value("", "equal to another image's, %") == pytest.approx(200 / 3)


def test_intervals_are_those_of_the_images_drawn(judgement):
    drawn = draw_resamples(3)
    hits = drawn @ np.array([100.0, 0.0, 100.0]) / 3
    low, high = np.percentile(hits, (2.5, 97.5))
    (row,) = judgement.rows
    assert row.compute_interval(ScoreKey("colours", "R@1")) == (low, high)
    counts = np.stack([drawn @ [3, 3, 5], drawn @ [2, 1, 1]])  # words, and matching words
    closest = drawn @ [3, 3, 1]
    bleu = counts[1] / counts[0] * np.exp(np.minimum(0, 1 - closest / counts[0]))
    assert row.compute_interval(ScoreKey("", "BLEU-1")) == pytest.approx(tuple(np.percentile(bleu, (2.5, 97.5))))
    assert row.compute_interval(ScoreKey("", "Self-BLEU")) is None


def test_ends_of_intervals_are_the_lowest_and_the_highest_images_own_scores(judgement):
    """In 1 of 27 resamples, which is more than 2.5 %, all three images are one given image."""
    cider = [10 / 4 * each for each in compute_cider()]
    expected = {
        "R@1": (0, 100),
        "R@5": (100, 100),
        "R@1 image → text": (0, 100),
        "R@1 (hard)": (0, 100),
        "R@1 (hard) image → text": (0, 100),
        "CLIPScore": (0, 2.5),
        "RefCLIPScore": (0, 2 * 2.5 * 1 / 3.5),
        "BLEU-1": (1 / 5, 2 / 3),
        "BLEU-2": (0, math.sqrt(2 / 3 / 2)),
        "ROUGE-L": (1 / 3, 2 / 3),
        "CIDEr": (min(cider), max(cider)),
        "words per caption": (3, 5),
        "without an end, %": (0, 100),
        "with a repetition, %": (0, 0),
        "equal to another image's, %": (0, 0),
        "absent objects, % (CHAIR_i)": (0, 100),  # 0 without b, the only image whose caption names an object
        "with absent objects, % (CHAIR_s)": (0, 100),
    }
    (row,) = judgement.rows
    ends = {key.name: row.compute_interval(key) for key in row.scores if key.name in expected}
    assert ends == {name: pytest.approx(bounds, abs=1e-6) for name, bounds in expected.items()}


@pytest.mark.slow
def test_meteor(tmp_path):
    """METEOR 1.5 has α = .85, weights .75 of content and .25 of function words, and a penalty of .6 · fragments^.2."""

    def weigh(content, function):
        return 0.75 * content + 0.25 * function

    def score(matches, caption, reference, chunks):
        precision, recall = weigh(*matches) / weigh(*caption), weigh(*matches) / weigh(*reference)
        mean = precision * recall / (0.85 * precision + 0.15 * recall)
        return mean * (1 - 0.6 * (chunks / sum(matches)) ** 0.2)

    by_image = [
        score((1, 1), (2, 1), (2, 1), 1),  # “a red” of “a red wall”; a is a function word
        score((0, 1), (2, 1), (2, 1), 1),  # “a” of “a green dog”
        score((1, 0), (2, 3), (1, 0), 1),  # “red”; and, with, a are function words
    ]
    corpus = score((2, 2), (6, 5), (5, 2), 3)  # from the summed counts
    (row,) = judge_colours(tmp_path, "METEOR").rows
    assert row.value("", "METEOR") == pytest.approx(corpus)
    shift = corpus - sum(by_image) / 3
    ends = by_image[1] + shift, by_image[2] + shift
    assert row.compute_interval(ScoreKey("", "METEOR")) == pytest.approx(ends)


SPICE_CAPTIONS = {"a.png": "a red square", "b.png": "a red cat", "c.png": "a dog"}
SPICE_REFERENCES = {"a.png": ["a red square"], "b.png": ["a black cat"], "c.png": ["a wall"]}
# SPICE's tuples of captions and references: two of two match, one of two matches, none matches
SPICE_TUPLES = (
    ([["square"], ["square", "red"]], [["square"], ["square", "red"]]),
    ([["cat"], ["cat", "red"]], [["cat"], ["cat", "black"]]),
    ([["dog"]], [["wall"]]),
)
SPICE_EXPECTED = (1 + 1 / 2 + 0) / 3


def judge_by_spice():
    found = saywhich.judge(SPICE_CAPTIONS, "photos", references=SPICE_REFERENCES, judges=[], metrics=["SPICE"])
    return found.rows[0]


def test_spice(folder):
    try:
        require_spice()
    except NotComputedError as error:
        pytest.skip(str(error))
    row = judge_by_spice()
    assert row.value("", "SPICE") == pytest.approx(SPICE_EXPECTED)
    assert row.compute_interval(ScoreKey("", "SPICE")) == pytest.approx((0, 1))


def test_spice_of_fixed_tuples(folder, monkeypatch):
    """A fixed answer in the form of SPICE's output, in another order, replaces the parser."""
    answer = []
    for number, (caption, reference) in enumerate(SPICE_TUPLES):
        matches = sum(each in reference for each in caption)
        precision, recall = matches / len(caption), matches / len(reference)
        score = 2 * precision * recall / (precision + recall) if matches else 0.0
        counts = {"tp": float(matches), "fp": float(len(caption) - matches), "fn": float(len(reference) - matches)}
        answer.append(
            {
                "image_id": number,
                "test_tuples": [{"tuple": each, "truth_value": each in reference} for each in caption],
                "ref_tuples": [{"tuple": each} for each in reference],
                "scores": {"All": {"pr": precision, "re": recall, "f": score, **counts, "numImages": 1.0}},
            }
        )
    run = java._run

    def run_without_parser(name, arguments, *more):
        if name != "SPICE":
            return run(name, arguments, *more)
        input_file = Path(arguments[arguments.index("-jar") + 2])
        output_file = Path(arguments[arguments.index("-out") + 1])
        items = json.loads(input_file.read_text())
        assert [item["refs"] for item in items] == [*SPICE_REFERENCES.values()]
        if [item["test"] for item in items] == [*SPICE_CAPTIONS.values()]:
            output_file.write_text(json.dumps(answer[::-1]))
        else:  # the trivial rule's captions
            output_file.write_text(
                json.dumps([{"image_id": n, "scores": {"All": {"f": 0.0}}} for n in range(len(items))])
            )
        return ""

    monkeypatch.setattr(java, "find_spice_jar", lambda: Path("spice.jar"))
    monkeypatch.setattr(java, "_run", run_without_parser)
    row = judge_by_spice()
    assert row.value("", "SPICE") == pytest.approx(SPICE_EXPECTED)
    assert row.compute_interval(ScoreKey("", "SPICE")) == pytest.approx((0, 1))


def test_names_of_no_photo_in_galleries_are_counted_and_a_metric_that_cannot_run_is_named_once(folder, monkeypatch):
    def fail():
        raise NotComputedError("no parser")

    monkeypatch.setattr(java, "find_spice_jar", fail)
    galleries = {"a.png": ["c.png", "x.png"], "b.png": ["c.png"], "y.png": ["a.png"]}
    options = {"judges": ["colours"], "galleries": galleries, "metrics": ["SPICE"]}
    found = saywhich.judge("captions.json", "photos", references="people.json", **options)
    assert found.gallery_rule == "given galleries"
    for name in ("R@1 (hard)", "R@1 (hard) image → text"):  # image a is a hit, b is a miss, and c does not count
        assert found.rows[0].value("colours", name) == 50
    unknown_names, without_gallery, *metric_notes = found.notes
    assert without_gallery == "judged photos without a hard gallery, which R@1 (hard) leaves out: 1 (c.png)"
    assert (
        unknown_names
        == "names in hard galleries that match no photo, or more than one, and are left out: 2 (x.png, y.png)"
    )
    assert metric_notes == ["metrics that are not computed (no parser): 1 (SPICE)"]


def test_a_photo_with_two_hard_galleries_is_noted(folder):
    galleries = {"a.png": ["c.png"], "a": ["b.png"], "b.png": ["a.png"], "c.png": ["a.png"]}
    found = saywhich.judge("captions.json", "photos", judges=["colours"], galleries=galleries)
    assert found.notes == ["photos with several hard galleries, of which the last counts: 1 (a)"]
    assert found.galleries[0].tolist() == [1]


def test_a_judge_that_is_given_twice_is_refused(folder):
    with pytest.raises(UserError, match="--judge colours: is given twice; give different judges"):
        saywhich.judge("captions.json", "photos", judges=["colours", "colours"])


def test_an_unknown_metric_is_refused(folder):
    with pytest.raises(UserError, match="--metrics CIDER: no such metric; the metrics are BLEU, METEOR, ROUGE-L, CID"):
        saywhich.judge("captions.json", "photos", judges=["colours"], metrics=["BLEU", "CIDER"])


def test_the_command_prints_and_writes_the_same_numbers(folder, capsys):
    command = ["judge", "captions.json", "--images", "photos", "--judge", "colours", "--galleries", "galleries.json"]
    assert main([*command, "--json", "out.json", "--csv", "out.csv"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == [
        "3 images, 3 captions; 95 % intervals over images, in brackets",
        "R@1 (hard): among the galleries of galleries.json; recalls in %, from text to image by default",
    ]
    assert next(line.split() for line in printed if line.startswith("  R@1 "))[1:4] == ["66.7", "[0.0,", "100.0]"]
    assert max(map(len, printed)) <= 100
    found = json.loads((folder / "out.json").read_text())["captions"]["captions.json"]["scores"]
    assert found["colours"]["R@1"] == {"value": pytest.approx(200 / 3), "low": 0.0, "high": 100.0}
    rows = (folder / "out.csv").read_text().splitlines()
    assert rows[0] == "captions,judge,score,value,low,high"
    assert rows[1].startswith("captions.json,colours,R@1,66.6")
