from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.comparison import compare_methods
from pipeline.analysis.results import read_results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.report.gallery import build_gallery_views, select_pictures
from pipeline.report.headline import choose_headline_pair
from pipeline.report.pictures import draw_pairs_png
from pipeline.report.shared_captions import draw_pairs, find_shared_captions, group_images_by_caption


def test_images_that_share_a_caption_are_listed_by_caption():
    captions = {3: "a dog", 4: "a cat", 5: "a dog", 6: "a red kite", 7: "a cat", 8: "a dog"}
    assert group_images_by_caption(captions) == {"a dog": [3, 5, 8], "a cat": [4, 7]}


def test_a_pair_is_two_images_of_one_caption_and_no_caption_has_two_pairs():
    groups = {f"caption {n}": [10 * n, 10 * n + 1, 10 * n + 2] for n in range(9)}
    drawn = draw_pairs(groups, seed=0)
    assert len(drawn) == 4
    assert len({first // 10 for first, _ in drawn}) == 4
    assert all(first != second and first // 10 == second // 10 for first, second in drawn)


def test_the_draw_depends_on_the_seed_and_not_on_the_order():
    groups = {f"caption {n}": [10 * n, 10 * n + 1, 10 * n + 2] for n in range(9)}
    backwards = {caption: images[::-1] for caption, images in reversed(groups.items())}
    assert draw_pairs(groups, seed=3) == draw_pairs(backwards, seed=3)
    assert len({tuple(draw_pairs(groups, seed)) for seed in range(5)}) == 5


def test_fewer_captions_give_fewer_pairs():
    assert draw_pairs({"a dog": [1, 2]}, seed=0) in ([(1, 2)], [(2, 1)])
    assert draw_pairs({}, seed=0) == []


@pytest.fixture
def find_pairs(full_world):
    """Return a function that finds pairs from the ranks of mle and luo by image; mle has four captions."""

    settings = ReportSettings(frozen_speakers=("mle", "luo"))

    def find(mle, luo):
        mle_file = full_world.root / "evaluation" / "mle" / "captions.parquet"
        _change_test_rows(
            mle_file, lambda row: {"caption": f"caption {row['image'] % 4}", "rank_judge": mle(row["image"])}
        )
        _change_test_rows(full_world.sweep / "captions.parquet", lambda row: {"rank_judge": luo(row["image"])})
        results = read_results(full_world.sweep, full_world.evaluations, first=("mle",))
        choices = choose_all(results, settings)
        views = build_gallery_views(results, choices, compare_methods(results, settings))
        control, other = choose_headline_pair(results, choices, "mle")
        runs = control.point.runs[0], other.point.runs[0]
        return find_shared_captions(
            results,
            *runs,
            0,
            lambda rows: select_pictures(rows, results, views, full_world.prepared, full_world.images),
        )

    return find


def _change_test_rows(path, change):
    rows = [row | (change(row) if row["split"] == "test" else {}) for row in pq.read_table(path).to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_ranks_of_images_that_share_a_caption_are_counted(find_pairs):
    # every fourth of the 32 test images 8 … 39 has the same caption; ranks rise for 8 … 17 and fall for 38 and 39
    found = find_pairs(lambda image: 5, lambda image: 2 if image < 18 else 9 if image > 37 else 5)
    assert (found.images, found.higher, found.equal, found.lower) == (32, 10, 20, 2)
    assert "gives 32 of 32 test images a caption that another image also has" in found.sentence
    assert "ranks 10 of the 32 images higher among all 32, 2 lower and 20 the same" in found.sentence
    assert len(found.pairs) == 4
    for pair in found.pairs:
        assert pair[0].picture.row != pair[1].picture.row
        assert pair[0].control.caption == pair[1].control.caption == f"caption {pair[0].picture.row % 4}"
        for each in pair:
            assert (each.control.method, each.other.method) == (found.control, found.other)
            assert each.control_rank == 5
            assert each.other_rank == (2 if each.picture.row < 18 else 9 if each.picture.row > 37 else 5)


@pytest.mark.slow
def test_the_sheet_shows_the_pairs_and_equal_pairs_give_equal_bytes(find_pairs):
    found = find_pairs(lambda image: 5, lambda image: 2)
    assert draw_pairs_png(found) == draw_pairs_png(found)
    assert draw_pairs_png(found) != draw_pairs_png(replace(found, pairs=found.pairs[:3]))
    assert draw_pairs_png(replace(found, higher=3)) != draw_pairs_png(found)


def test_without_a_rank_there_are_no_pairs(find_pairs):
    assert find_pairs(lambda image: None, lambda image: 2) is None
