"""Rounds of the game of `saywhich serve`, against numbers computed by hand."""

import json

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.study.game import GameResult, compute_success_rate, read_game
from pipeline.study.study_tables import build_study_tables
from saywhich.cli import main

PHOTOS = ["1 a.jpg", "2 b.jpg", "3 c.jpg"]


def save_rounds(path, *rounds, model="psst_multinomial", **changes):
    """Save rounds; each has the numbers of the right photo, of the person's choice and of the listener's choice."""
    lines = []
    for number, (right, chosen, listener) in enumerate(rounds, 1):
        photos = {"shown": PHOTOS, "right": PHOTOS[right], "chosen": PHOTOS[chosen], "listener": PHOTOS[listener]}
        sheet = {"study": "play", "sheet": "s", "task": "play", "rater": "s", "question": str(number), "asked": "a dog"}
        lines.append(json.dumps(sheet | photos | {"model": model, "seconds": float(number**2)} | changes))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_person_and_listener_are_counted_over_the_same_rounds(tmp_path):
    save_rounds(tmp_path / "one.jsonl", (0, 0, 0), (1, 1, 2), (2, 2, 0), (0, 1, 0))
    save_rounds(tmp_path / "two.jsonl", (1, 1, 0), model="luo")
    psst, luo = read_game([tmp_path / "one.jsonl", tmp_path / "two.jsonl"])
    assert (psst.model, psst.person.tolist(), psst.listener.tolist()) == (
        "psst_multinomial",
        [True, True, True, False],
        [True, False, False, True],
    )
    assert (psst.seconds, psst.photos) == (6.5, 3)  # the median of 1, 4, 9 and 16 s
    assert psst.p == 1.0  # exactly one is right in 3 rounds, the person in 2 of them: 2 · P(≥ 2), at most 1
    assert (luo.model, len(luo.person)) == ("luo", 1)


def test_a_p_value_counts_the_rounds_in_which_exactly_one_is_right():
    person, listener = np.array([1, 1, 1, 1, 1, 1, 0, 1, 0]) > 0, np.array([0, 0, 0, 0, 0, 0, 1, 1, 0]) > 0
    result = GameResult("luo", 3.0, person, listener, 1.0)
    assert result.p == pytest.approx(2 * (1 + 7) / 2**7)  # the person in 6 of 7 rounds: 2 · P(≥ 6)


def test_rounds_of_two_saved_files_count_once(tmp_path):
    """The page saves all rounds so far, so that a second file repeats those of the first."""
    save_rounds(tmp_path / "rounds (1).jsonl", (0, 0, 0), (1, 1, 2), (2, 1, 1))
    save_rounds(tmp_path / "rounds.jsonl", (0, 0, 0), (1, 1, 2))
    (result,) = read_game([tmp_path])
    assert result.person.tolist() == [True, True, False]


def test_an_interval_is_exact():
    value, low, high = compute_success_rate(np.array([True] * 4))
    assert (value, high) == (100, 100)
    assert low == pytest.approx(100 * 0.025**0.25)  # with this rate all four are right with probability 1/40


def test_saywhich_study_reads_rounds_without_a_study(tmp_path, capsys):
    path = save_rounds(tmp_path / "rounds.jsonl", (0, 0, 1), (1, 1, 1))
    assert main(["study", "read", str(path)]) == 0
    row = capsys.readouterr().out.split("PSST-Multinomial")[1].splitlines()[0].replace(" ", "")
    assert row == "|2|3.0|100.0[15.8,100.0]|50.0[1.3,98.7]|1.000|2.5|"
    assert build_study_tables(tmp_path / "no study", [path])[0].name == "game"


@pytest.mark.parametrize(
    ("change", "message"),
    [({"chosen": "4 d.jpg"}, "line 1: not a round of the game"), ({"study": "other"}, "key.json: no such file")],
)
def test_an_invalid_round_is_reported_in_one_line(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        build_study_tables(tmp_path / "study", [save_rounds(tmp_path / "rounds.jsonl", (0, 0, 0), **change)])


def test_rounds_and_answers_are_not_mixed(tmp_path):
    rounds = save_rounds(tmp_path / "a.jsonl", (0, 0, 0))
    other = tmp_path / "b.jsonl"
    other.write_text(json.dumps({"study": "x"}) + "\n")
    with pytest.raises(UserError, match=r"b\.jsonl, line 1: not a round of the game"):
        read_game([rounds, other])
