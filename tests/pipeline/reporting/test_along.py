from dataclasses import replace

from pipeline.reporting.along import example_along, example_line, views
from pipeline.reporting.compared import compare
from pipeline.reporting.gallery import gallery
from pipeline.reporting.results import read_results
from pipeline.reporting.selection import ReportSettings, choose_all

SETTINGS = ReportSettings(images=3, at_cider=(0.9,), at_recall=(80.0, 200.0))


def read(world, settings=SETTINGS):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    choices = choose_all(results, settings)
    return results, choices, views(results, choices, compare(results, settings))


def test_a_view_shows_the_settings_nearest_to_a_level(world):
    results, _, found = read(world)
    by_name = {view.name: view for view in found}
    assert list(by_name) == ["all", "chosen", "equal-0", "equal-1", "equal-2"]
    assert [view.label for view in found[2:]] == ["at CIDEr 0.900", "at R@10 80%", "at R@10 200%"]

    def shown(name):
        points = [point for point in results.points if id(point) in by_name[name].points]
        return {(point.method, point.settings.get("lambda")) for point in points}

    assert len(shown("all")) == 9
    assert len(shown("chosen")) == 4
    # test CIDEr of PSST: .975, .945, .825; of ST: .95, .92, .80; Luo ends at .91, mle has .97 alone
    # these two lie above .9, so they have at least what they have there
    assert shown("equal-0") == {("psst_multinomial", 0.005), ("st_multinomial", 0.005), ("luo", 0.9), ("mle", None)}
    assert "own listener" not in by_name["equal-0"].words
    # test R@10 of PSST: 74.5, 86.5, 95.5; of ST: 70, 82, 91; Luo ends at 79
    assert shown("equal-1") == {("psst_multinomial", 0.001), ("st_multinomial", 0.005)}
    assert "R@10 80% (own listener)" in by_name["equal-1"].words
    assert shown("equal-2") == set()


def test_the_example_is_psst_with_the_chosen_rho(full_world):
    results, choices, _ = read(full_world)
    (chosen,) = [choice.point for choice in choices if choice.method == "psst_multinomial"]
    assert example_line(results, choices) == f"psst_multinomial ρ {chosen.settings['rho']:g}"


def test_another_method_is_the_example_where_psst_was_not_run(world, make_cell):
    cells = [make_cell("luo", 0.9, 70.0, **{"lambda": lam, "seed": 1}) for lam in (0.5, 0.9)]
    world.write(cells, [])
    results = read_results(world.sweep, world.evaluations)
    assert example_line(results, []) == "luo"
    world.write(cells[:1], [])
    assert example_line(read_results(world.sweep, world.evaluations), []) is None


def test_the_example_picture_has_the_most_different_captions_highest_lambda_first(world):
    results, _, seen = read(world)
    pictures = gallery(results, seen, world.prepared, world.images, SETTINGS)
    same = replace(pictures[0], said=tuple(replace(words, caption="the same") for words in pictures[0].said))
    picture, said = example_along([same, *pictures[1:]], "psst_multinomial")
    assert picture is pictures[1]
    assert [words.setting for words in said] == ["λ 0.02, ρ 0.25", "λ 0.005, ρ 0.25", "λ 0.001, ρ 0.25"]
    assert example_along(pictures, None) is None
    assert example_along([], "psst_multinomial") is None
