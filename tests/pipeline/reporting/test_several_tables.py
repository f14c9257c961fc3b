from __future__ import annotations

from pipeline.reporting.quality_tables import diversity_table
from pipeline.reporting.results import read_results
from pipeline.reporting.selection import ReportSettings, choose_all
from pipeline.reporting.several_tables import best_of_beam_table, several_table

SEVERAL = {
    "samples": {"captions": 5, "CIDEr": 0.74, "Div-1": 0.57, "Div-2": 0.78, "mBLEU-4": 0.06},
    "beams": {
        "captions": 4, "CIDEr": 1.02, "Div-1": 0.27, "Div-2": 0.35, "mBLEU-4": 0.8,
        "best": {"METEOR": 0.26, "CIDEr": 1.15, "BLEU-4": 0.3},
    },
}  # fmt: skip


def read(world):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    return results, choose_all(results, ReportSettings())


def test_both_tables_of_the_paper(full_world, make_full_cell):
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    entry["test"]["several"] = SEVERAL
    full_world.write([make_full_cell("luo", 0.96, 0.6, **{"lambda": 0.5, "seed": 1})], [entry])
    results, choices = read(full_world)
    best, several = best_of_beam_table(results, choices), several_table(results, choices)
    assert [column.label for column in best.columns] == ["Method", "METEOR", "CIDEr"]  # nobody measured SPICE
    assert best.rows == [["mle", "0.260", "1.150"], ["luo", "–", "–"]]
    assert several.groups == [("", 1), ("Random sampling", 4), ("Beam search", 4)]
    assert several.rows[0] == ["mle", "0.740", "0.570", "0.780", "0.060", "1.020", "0.270", "0.350", "0.800"]
    assert several.rows[1] == ["luo", *["–"] * 8]
    assert several.notes[0].startswith("5 drawn at random, and the 4 best of a beam")


def test_what_nobody_measured_has_no_table(full_world):
    results, choices = read(full_world)
    assert best_of_beam_table(results, choices) is None
    assert several_table(results, choices) is None


def test_self_bleu_and_likelihood_stand_beside_repetition_where_they_are_known(full_world, make_full_cell):
    labels = [column.label for column in diversity_table(*read(full_world)).columns]
    assert not {"Self-BLEU", "log p"} & set(labels)
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    entry["test"]["diversity"] |= {"Self-BLEU": 0.7, "human_log_likelihood": -2.25}
    full_world.write([], [entry])
    table = diversity_table(*read(full_world))
    row = dict(zip((column.label for column in table.columns), table.rows[0], strict=True))
    assert (row["Self-BLEU"], row["log p"], row["repeats"]) == ("0.700", "-2.250", "0.050")
    assert any(note.startswith("log p:") for note in table.notes)
