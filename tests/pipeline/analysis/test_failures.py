from pipeline.analysis.failures import list_training_failures
from pipeline.analysis.results import read_results
from pipeline.analysis.selection import ReportSettings, choose_all


def find_failures(world, cells, control, alter=lambda test: None):
    for entry in (*cells, control):
        alter(entry["test"])
    world.write(cells, [control])
    results = read_results(world.sweep, world.evaluations)
    return list_training_failures(results, choose_all(results, ReportSettings()))


def test_captions_of_which_90_percent_are_distinct_are_no_failure(world, cells, control):
    assert find_failures(world, cells, control) == []


def test_captions_that_are_all_alike_are_reported(world, cells, control):
    def alter(test):
        test["diversity"]["distinct_captions"] = 1 / 40

    (line,) = find_failures(world, cells, control, alter)
    assert line.startswith("Captions of psst_multinomial, st_multinomial, luo, mle hardly differ between images.")


def test_a_listener_at_chance_is_reported(world, cells, control):
    """The mean of 40 random ranks is 20.5 ± 1.83. A mean of 16.85 is two standard errors better than chance."""

    def set_human_mean_rank(rank):
        def alter(test):
            test["judges"]["judge"]["human"]["text_to_image"]["mean_rank"] = rank

        return alter

    assert find_failures(world, cells, control, set_human_mean_rank(16.8)) == []
    (line,) = find_failures(world, cells, control, set_human_mean_rank(16.9))
    assert "rank the 40 test images not clearly better than chance" in line
    assert "judge (mean rank 16.9)" in line


def test_a_listener_that_is_at_chance_in_the_evaluation_of_one_method_only_is_not_reported(world, cells, control):
    control["test"]["judges"]["judge"]["human"]["text_to_image"]["mean_rank"] = 20.0
    assert find_failures(world, cells, control) == []


def test_a_method_whose_captions_retrieve_at_chance_is_named(world, cells, control):
    def alter(test):
        test["judges"]["own"]["text_to_image"]["mean_rank"] = 20.0

    (line,) = find_failures(world, cells[:1], control, alter)
    assert f"{cells[0]['method']} (own)" in line
