import json

import pytest

from pipeline.analysis.judge_titles import make_human_recall_keys, make_recall_keys
from pipeline.analysis.results import add_frozen_speakers, read_results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.errors import UserError
from pipeline.report.caption_tables import build_caption_tables
from pipeline.report.result_tables import (
    build_cross_play_table,
    build_drift_table,
    build_galleries_table,
    compute_drift,
)

MULTI_SAMPLE = {
    "samples": {
        "captions": 5, "CIDEr": 0.74, "Div-1": 0.57, "Div-2": 0.78, "mBLEU-4 corpus": 0.06, "mBLEU-4 per caption": 0.05,
    },
    "beams": {
        "captions": 4, "CIDEr": 1.02, "Div-1": 0.27, "Div-2": 0.35, "mBLEU-4 corpus": 0.8,
        "best": {"METEOR": 0.26, "CIDEr": 1.15, "BLEU-4": 0.3},
    },
}  # fmt: skip


def read(world, frozen=("mle",)):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    results = add_frozen_speakers(results, frozen)
    return results, choose_all(results, ReportSettings())


def find_caption_table(name, results, choices):
    """Return the caption table `name`; None where no run has its metrics."""
    return next((table for table in build_caption_tables(results, choices) if table.name == name), None)


def get_cells(table, row):
    labels = [f"{column.group} {column.label}".strip() for column in table.columns]
    (found,) = [cells for cells in table.rows if cells[0] == row]
    return dict(zip(labels, found, strict=True))


def test_the_galleries_table_has_the_whole_split_and_smaller_galleries(full_world):
    results, choices = read(full_world)
    row = get_cells(build_galleries_table(results, choices), "mle")
    (run,) = results.get_points("mle")[0].runs
    assert row["Whole split R@10 judge"] == f"{run.value('test', *make_recall_keys('judge')):.1f}"
    recall = run.value("test", *make_recall_keys("own", "R@1", "galleries", "similar100"))
    assert row["100 similar images R@1 own"] == f"{recall:.1f}"
    assert not any("1,000" in label for label in row)  # the split has only 32 images
    frozen = get_cells(build_galleries_table(results, choices), "frozen_mle")
    adapted = run.value("test", *make_recall_keys("adapted", "R@10", "galleries", "random100"))
    assert frozen["100 random images R@10 own"] == f"{adapted:.1f}"


def test_the_gallery_of_1000_images_has_columns_where_it_was_measured(full_world, make_full_cell):
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    entry["test"]["judges"]["own"]["galleries"]["1000"] = {"R@1": 1.0, "R@5": 2.0, "R@10": 3.25}
    full_world.write([], [entry])
    row = get_cells(build_galleries_table(*read(full_world)), "mle")
    assert (row["1,000 images R@10 own"], row["1,000 images R@10 judge"]) == ("3.2", "–")


def test_faithfulness_by_kind(full_world):
    table = find_caption_table("faithfulness", *read(full_world))
    row = get_cells(table, "mle")
    assert (row["All facts true"], row["All facts told"], row["All facts claims"]) == ("0.700", "0.300", "2.00")
    assert (row["Colour true"], row["Count told"]) == ("0.750", "0.400")


def test_diversity_and_drift(full_world):
    results, choices = read(full_world)
    row = get_cells(find_caption_table("diversity", results, choices), "mle")
    assert (row["words"], row["vocabulary"], row["Div-1"], row["Div-2"]) == ("8.2", "120", "0.110", "0.330")
    (run,) = results.get_points("mle")[0].runs
    own, pretrained = (run.value("test", *make_human_recall_keys(judge)) for judge in ("own", "pretrained"))
    assert compute_drift(results.get_points("mle")[0], "R@10") == [own - pretrained]
    row = get_cells(build_drift_table(results, choices), "mle")
    assert row == {
        "Listener of": "mle", "before": f"{pretrained:.1f}", "after": f"{own:.1f}", "drift": f"{own - pretrained:.1f}"
    }  # fmt: skip


def test_a_drift_may_be_negative_and_has_a_deviation_over_seeds(world):
    table = build_drift_table(*read(world))
    assert get_cells(table, "luo")["drift"] == "−1.0"
    assert get_cells(table, "psst_multinomial")["drift"] == "−1.0±0.0"


def test_old_files_have_no_table_of_missing_metrics(world):
    results, choices = read(world)
    assert build_galleries_table(results, choices) is None
    assert find_caption_table("faithfulness", results, choices) is None
    assert [column.label for column in find_caption_table("diversity", results, choices).columns] == [
        "Method", "words", "distinct", "repeats", "no end"
    ]  # fmt: skip


def test_protocols_are_noted_and_different_ones_give_a_warning(full_world, make_full_cell):
    entry = make_full_cell("luo", 0.96, 0.5, seed=1)
    entry["signature"] = entry["signature"].replace("beam 2", "greedy")
    full_world.write([entry], [make_full_cell("mle", 0.96, 0.5, seed=1)])
    results, choices = read(full_world)
    built = [build(results, choices) for build in (build_galleries_table, build_drift_table)]
    for table in (
        *built,
        find_caption_table("faithfulness", results, choices),
        find_caption_table("diversity", results, choices),
    ):
        assert "2 protocols" in table.warning
        human_rows = ["human [A]"] if table is built[0] else []  # only the galleries have a human row here
        assert [row[0] for row in table.rows] == ["mle [A]", "frozen_mle [A]", "luo [B]", *human_rows]
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_recalls_of_cross_play_are_means_over_seeds(full_world):
    crossed = json.loads(full_world.crossed.read_text())
    table = build_cross_play_table(crossed)
    row = get_cells(table, "luo")
    assert row["Listener pretrained"] == "56.0±1.4"
    assert row["Own listener of luo"] == "59.0±1.4"
    assert get_cells(table, "mle")["Own listener of luo"] == "–"
    assert table.shades == [[0, 1, 1, None, 2, 3], [3, 3, 4, 4, 5, 5], [5, 6, 6, 7, 7, 8]]  # 51 … 66
    assert "judge: an independent judge" in table.notes[1]
    crossed["matrix"][0][0] = [50.0, None]
    assert get_cells(build_cross_play_table(crossed), "mle")["Listener pretrained"] == "–"
    assert "–: not measured for every seed." in table.notes


def test_without_a_shared_seed_a_cell_of_cross_play_is_a_single_value(full_world):
    crossed = json.loads(full_world.crossed.read_text())
    crossed |= {"seeds": [], "matrix": [[cell[:1] for cell in row] for row in crossed["matrix"]]}
    assert get_cells(build_cross_play_table(crossed), "luo")["Listener pretrained"] == "55.0"


@pytest.mark.parametrize("broken", [{}, {"captions": ["mle"], "listeners": ["own"], "matrix": [[]]}, {"captions": 3}])
def test_a_broken_crossed_file_is_reported_in_one_line(full_world, broken):
    with pytest.raises(UserError, match=r"crossed\.json: expected a matrix of captions"):
        build_cross_play_table(broken)
    crossed = json.loads(full_world.crossed.read_text())
    for change in ({"seeds": 2}, {"seeds": [1]}, {"matrix": [[5.0] * 6] * 3}, {"matrix": [[[5.0]] * 6] * 3}):
        with pytest.raises(UserError, match=r"crossed\.json"):
            build_cross_play_table(crossed | change)


def test_the_tables_of_several_captions_are_those_of_chen_and_jin(full_world, make_full_cell):
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    entry["test"]["multi_sample"] = MULTI_SAMPLE
    full_world.write([make_full_cell("luo", 0.96, 0.6, **{"lambda": 0.5, "seed": 1})], [entry])
    results, choices = read(full_world, frozen=())
    best = find_caption_table("best", results, choices)
    samples = find_caption_table("multi_sample", results, choices)
    assert [column.label for column in best.columns] == ["Method", "METEOR", "CIDEr"]  # SPICE was not measured
    assert best.rows == [["mle", "0.260", "1.150"], ["luo", "–", "–"]]
    assert samples.groups == [("", 1), ("Random sampling", 5), ("Beam search", 4)]
    assert samples.rows[0] == ["mle", "0.740", "0.570", "0.780", "0.060", "0.050", "1.020", "0.270", "0.350", "0.800"]
    assert samples.rows[1] == ["luo", *["–"] * 9]
    assert samples.notes[0].startswith("5 captions drawn at random, and the 4 captions of a beam")


def test_unmeasured_metrics_have_no_table(full_world):
    results, choices = read(full_world)
    assert find_caption_table("best", results, choices) is None
    assert find_caption_table("multi_sample", results, choices) is None


def test_self_bleu_and_likelihood_have_columns_where_measured(full_world, make_full_cell):
    labels = [column.label for column in find_caption_table("diversity", *read(full_world)).columns]
    assert not {"Self-BLEU", "log p"} & set(labels)
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    entry["test"]["diversity"] |= {"Self-BLEU": 0.7, "human_log_likelihood": -2.25}
    full_world.write([], [entry])
    table = find_caption_table("diversity", *read(full_world))
    row = dict(zip((column.label for column in table.columns), table.rows[0], strict=True))
    assert (row["Self-BLEU"], row["log p"], row["repeats"]) == ("0.700", "-2.250", "0.050")
    assert any(note.startswith("log p:") for note in table.notes)


def test_reader_statistics_have_a_row_of_human_captions(full_world, make_full_cell):
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    entry["test"] |= {
        "reader": {"repeated": 0.1, "content_words": 0.8, "colour_words": 0.75},
        "chair": {"CHAIR_i": 0.2, "CHAIR_s": 0.25, "objects": 1.5},
        "human_reader": {"repeated": 0.15, "content_words": 0.7, "colour_words": 0.65},
        "human_chair": {"CHAIR_i": 0.09, "CHAIR_s": 0.16, "objects": 1.94},
        "human_diversity": {"unknown": 0.05, "words_used": 300, "unfinished": 0.02},
    }
    full_world.write([make_full_cell("luo", 0.96, 0.6, **{"lambda": 0.5, "seed": 1})], [entry])
    results, choices = read(full_world, frozen=())
    table = find_caption_table("reader", results, choices)
    assert [row[0] for row in table.rows] == ["mle", "luo", "human captions"]
    speaker, human = get_cells(table, "mle"), get_cells(table, "human captions")
    assert (speaker["no end"], speaker["human words"], speaker["CHAIR_s"]) == ("0.010", "0.800", "0.250")
    assert (human["no end"], human["human words"], human["CHAIR_s"]) == ("0.020", "0.700", "0.160")
    assert (speaker["vocabulary"], human["vocabulary"], human["distinct"]) == ("120", "300", "–")
    assert any(note.startswith("Human captions: each caption") for note in table.notes)
    assert find_caption_table("diversity", results, choices).rows[-1][0] == "human captions"
    # human captions have no measured truth here
    assert find_caption_table("faithfulness", results, choices).rows[-1][0] == "luo"
