"""A drawn benchmark: its difficulties, the content of its folder, and its scores, computed by hand."""

import hashlib
import json
import shutil
from itertools import combinations

import pyarrow.parquet as pq
import pytest

from pipeline.errors import UserError
from pipeline.runtime.files import compute_sha256, read_checked
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_facts import Scene, Thing, name_atmosphere
from saywhich.cli import main
from saywhich.drawn_benchmark import benchmark_folder
from saywhich.drawn_benchmark.benchmark_folder import DrawnBenchmark, make_benchmark, read_benchmark
from saywhich.drawn_benchmark.benchmark_galleries import has_equal_counts_and_colours, sample_galleries
from saywhich.drawn_benchmark.benchmark_scores import (
    CLAIMS,
    EXACT,
    KIND_TITLES,
    OTHERS,
    RECALL,
    STATED,
    TRUE,
    TRUE_CAPTIONS,
    UNKNOWN,
    score_answers,
)

SEED = 5


def list_facts(scene):
    """Return the facts of a scene: attributes of its objects, its place, and its weather or light."""
    kinds = ("count", "colour", "pattern", "size", "pose")
    things = {(thing.category, kind, getattr(thing, kind)) for thing in scene.things for kind in kinds}
    return things | {("setting", scene.setting), ("weather", name_atmosphere(scene))}


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """Make a benchmark of 16 pictures; return its folder and its key."""
    folder = tmp_path_factory.mktemp("drawn") / "bench"
    make_benchmark(folder, folder.with_suffix(".key"), SEED, images=16, workers=1)
    return folder, folder.with_suffix(".key")


def test_scenes_of_a_higher_difficulty_differ_in_fewer_or_less_conspicuous_facts():
    differing, subtle = {}, {}
    for difficulty in (1, 2, 3, 4):
        numbers = sample_galleries(SEED, 2, difficulty, workers=1)
        assert [len({*each}) for each in numbers] == [8, 8]
        assert not {*numbers[0]} & {*numbers[1]}
        galleries = [[sample_scene(SEED, n) for n in each] for each in numbers]
        pairs = [(a, b) for scenes in galleries for a, b in combinations(scenes, 2)]
        differing[difficulty] = sum(len(list_facts(a) - list_facts(b)) for a, b in pairs) / len(pairs)
        subtle[difficulty] = [has_equal_counts_and_colours(scenes) for scenes in galleries]
    assert differing[1] > differing[2] > differing[3] + 1
    assert max(differing[3], differing[4]) < 3
    assert all(subtle[4])
    assert not any(subtle[1] + subtle[2])


def test_the_folder_has_pictures_and_their_galleries_and_no_fact(benchmark):
    folder, key = benchmark
    assert sorted(path.name for path in folder.iterdir()) == ["images", "images.parquet"]
    table = pq.read_table(folder / "images.parquet").to_pydict()
    assert list(table) == ["file", "gallery", "sha256"]
    assert sorted(table["gallery"]) == [0] * 8 + [1] * 8
    assert table["gallery"] != sorted(table["gallery"])  # the order of the files does not reveal the galleries
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    record = json.loads(read_checked(key))
    for word in {thing["category"] for scene in record["scenes"] for thing in scene["objects"]} | {"sunny", "seed"}:
        assert word.encode() not in content or len(word) < 4


def test_the_same_seed_draws_the_same_benchmark_with_any_number_of_workers(benchmark, tmp_path):
    folder, key = benchmark
    make_benchmark(tmp_path / "again", tmp_path / "key", SEED, images=16, workers=2)
    assert compute_sha256(tmp_path / "again/images.parquet") == compute_sha256(folder / "images.parquet")
    assert (tmp_path / "key").read_bytes() == key.read_bytes()
    make_benchmark(tmp_path / "other", tmp_path / "other.key", SEED + 1, images=16, workers=1)
    assert compute_sha256(tmp_path / "other/images.parquet") != compute_sha256(folder / "images.parquet")


def test_files_that_appear_in_the_folder_while_pictures_are_drawn_are_kept(tmp_path, monkeypatch):
    def draw(*arguments):
        (tmp_path / "bench").mkdir()
        (tmp_path / "bench/mine.txt").write_text("mine")
        return draw_all(*arguments)

    draw_all = benchmark_folder.draw_all
    monkeypatch.setattr(benchmark_folder, "draw_all", draw)
    with pytest.raises(OSError, match="not empty"):
        make_benchmark(tmp_path / "bench", tmp_path / "bench.key", SEED, images=16, workers=1)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["bench", "bench/mine.txt"]


def test_no_picture_is_left_without_its_key(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(benchmark_folder, "write_checked", fail)
    with pytest.raises(OSError, match="the disk is full"):
        make_benchmark(tmp_path / "bench", tmp_path / "bench.key", SEED, images=16, workers=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["new/bench", "new"])
def test_the_key_is_not_the_folder_of_the_pictures_or_one_above_it(tmp_path, name):
    with pytest.raises(UserError, match="the key would be the folder of the pictures, or one above it"):
        make_benchmark(tmp_path / "new/bench", tmp_path / name, SEED, images=16, workers=1)
    assert list(tmp_path.iterdir()) == []


def test_exact_captions_have_no_false_claim_and_captions_of_other_images_retrieve_nothing(benchmark):
    folder, key = benchmark
    drawn = read_benchmark(folder, key)
    found = score_answers(drawn, folder, {drawn.files[0]: "a dog"})
    exact = next(row for row in found.rows if row.name == EXACT)
    assert (exact.scores[TRUE].value, exact.scores[TRUE_CAPTIONS].value) == (100, 100)
    assert exact.scores[RECALL].value > 50
    assert exact.compute_interval(RECALL)[0] < exact.scores[RECALL].value <= exact.compute_interval(RECALL)[1]
    other = next(row for row in found.rows if row.name == OTHERS)
    assert other.scores[RECALL].value == 0
    assert any(line.endswith(f" {OTHERS}") for line in found.lines()), "expected a space between the names of rows"


def test_scores_of_three_captions_by_hand(benchmark, tmp_path):
    """Three of 16 images have a caption. The first and third captions make three claims each, the second makes none.

    The first caption states a false colour. Claims of a count are true if the scene has one such object.
    """
    folder, key = benchmark
    drawn = read_benchmark(folder, key)
    thing = drawn.scenes[0].things[0]
    false_colour = "purple" if thing.colour != "purple" else "red"
    third = drawn.scenes[2].things[0]
    answers = tmp_path / "answers.json"
    answers.write_text(
        json.dumps(
            {
                drawn.files[0]: f"a {false_colour} {thing.category}",  # claims: category, count and colour
                drawn.files[1]: "blorp",
                drawn.files[2]: f"a {third.colour} {third.category}",
            }
        )
    )
    found = score_answers(drawn, folder, answers)
    row = found.rows[0]
    truths = [True, thing.count == 1, False, True, third.count == 1, True]
    assert row.scores[CLAIMS].value == pytest.approx(6 / 16)
    assert row.scores[TRUE].value == pytest.approx(100 * sum(truths) / 6)
    assert row.scores[KIND_TITLES[TRUE][2]].value == 50  # one of two colours is true
    assert row.scores[TRUE_CAPTIONS].value == pytest.approx(100 * (third.count == 1) / 16)
    assert row.scores[UNKNOWN].value == pytest.approx(100 / 7)  # one of seven words
    categories = sum(len(scene.things) for scene in drawn.scenes)
    assert row.scores[KIND_TITLES[STATED][0]].value == pytest.approx(100 * 2 / categories)
    assert found.notes[0].startswith("images without a caption, which count as missed: 13")


def make_scene(colour, count):
    box = (0.1, 0.5, 0.4, 0.8)
    dog = Thing("dog", colour, "plain", "medium", count, "running", "ground", "left", (box,) * count, box)
    return Scene("farm", "sunny", "day", 0.45, 0.45, {}, (dog,))


def test_a_caption_is_a_hit_if_it_fits_no_other_scene_of_the_gallery_as_well(tmp_path):
    """In two galleries of two scenes, a caption with a fact of its scene alone is a hit.

    A caption that fits both scenes, or that states a false colour, is missed.
    """
    files = [f"images/{n}.png" for n in range(4)]
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    scenes = [make_scene("brown", 1), make_scene("white", 1), make_scene("brown", 2), make_scene("black", 2)]
    drawn = DrawnBenchmark(3, files, [0, 0, 1, 1], scenes)
    captions = ("a brown dog", "a dog", "two brown dogs", "two white dogs")
    found = score_answers(drawn, tmp_path, dict(zip(files, captions, strict=True)))
    assert found.rows[0].scores[RECALL].value == 50
    assert found.rows[0].scores[RECALL].sums.tolist() == [100, 0, 100, 0]


def test_the_commands_make_and_score_a_benchmark_and_report_errors(benchmark, tmp_path, capsys, monkeypatch):
    folder, _ = benchmark
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "make", "x\n\x1b[2J", "--images", "16", "--difficulty", "1"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [r"x\n\x1b[2J", r"x\n\x1b[2J.key"]
    (tmp_path / "x\n\x1b[2J").rename(tmp_path / "b")
    (tmp_path / "x\n\x1b[2J.key").rename(tmp_path / "b.key")
    table = pq.read_table(tmp_path / "b/images.parquet").to_pydict()
    (tmp_path / "a.csv").write_text("file,caption\n" + "".join(f"{file},two dogs\n" for file in table["file"]))
    out = tmp_path / "scores.json"
    assert main(["bench", "score", str(tmp_path / "b"), str(tmp_path / "a.csv"), "--json", str(out)]) == 0
    assert "R@1 (hard), %" in capsys.readouterr().out
    assert json.loads(out.read_text())["captions"]["a.csv"][CLAIMS]["value"] == 2
    monkeypatch.chdir(tmp_path / "b")
    assert main(["bench", "score", ".", str(tmp_path / "a.csv")]) == 0
    capsys.readouterr()
    index = str(tmp_path / "b/images.parquet")
    for command, message in (
        (
            ["score", ".", str(tmp_path / "a.csv"), "--json", index],
            "is also an input or another output of this command",
        ),
        (["make", str(tmp_path / "b")], "exists"),
        (["make", "/"], "/: has no name; give another folder, or --key FILE"),
        (["make", str(tmp_path / "c"), "--images", "12"], "multiple of 8"),
        (["make", str(tmp_path / "c"), "--difficulty", "5"], "--difficulty 5"),
        (["make", str(tmp_path / "c"), "--secret", "-1"], "--secret: give a whole number from 0 to 2^63"),
        (["make", str(tmp_path / "c"), "--key", str(tmp_path / "c/key")], "would lie in the folder"),
        (["score", str(folder), str(tmp_path / "a.csv"), "--key", str(tmp_path / "none")], "missing"),
        (["score", str(folder), str(tmp_path / "a.csv"), "--key", str(tmp_path / "b.key")], "or not the index of"),
    ):
        assert main(["bench", *command]) == 2
        assert message in (line := capsys.readouterr().err)
        assert line.count("\n") == 1


def test_a_damaged_key_and_a_changed_picture_are_refused(benchmark, tmp_path):
    folder, key = benchmark
    copied = shutil.copytree(folder, tmp_path / "bench")
    content = bytearray(key.read_bytes())
    content[-40] ^= 1
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(UserError, match="expected the bytes that"):
        read_benchmark(copied, tmp_path / "key")
    (picture := copied / "images/0003.png").write_bytes(picture.read_bytes() + b"0")
    with pytest.raises(UserError, match=r"0003\.png: is missing, or not the picture"):
        read_benchmark(copied, key)


def test_values_of_an_untrusted_key_are_validated(benchmark, tmp_path):
    """The digest in a key detects damage only: a forged key can have a matching digest."""
    folder, key = benchmark
    record = json.loads(key.read_bytes().partition(b"\n")[2])

    def provoke_error(**changes):
        body = json.dumps(record | changes).encode()
        (tmp_path / "key").write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        with pytest.raises(UserError) as error:
            read_benchmark(folder, tmp_path / "key")
        assert "\n" not in error.value.args[0]
        return str(error.value)

    first, *rest = record["scenes"]
    thing = first["objects"][0]
    for change in (
        {"file": 7}, {"gallery": "x"}, {"setting": None}, {"weather": ["rainy"]}, {"scenery": 1}, {"objects": []},
        {"objects": [None]}, {"objects": [thing | {"category": "x"}]}, {"objects": [thing | {"count": -1}]},
        {"objects": [thing | {"pose": {}}]}, {"objects": [{"box": [0, 0, 1, 1]}]}, {"file": rest[0]["file"]},
    ):  # fmt: skip
        assert "key: its facts do not describe drawn scenes (" in provoke_error(scenes=[first | change, *rest])
    assert "its facts do not describe" in provoke_error(scenes=7)
    assert "its facts do not describe" in provoke_error(difficulty="3")
    assert "images.parquet: is missing, or not the index of the benchmark of" in provoke_error(index=None)
