"""Caption files of every form, and the notes of their faults: one line each, with a count and up to three examples."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from colour_judge import ColourJudge, write_example
from PIL import Image

import saywhich
from pipeline.analysis import bootstrap
from pipeline.analysis.bootstrap import draw_in_blocks, draw_resamples
from pipeline.errors import UserError
from saywhich.judging import judge_sources
from saywhich.judging.caption_files import read_caption_set, read_ids
from saywhich.judging.hard_galleries import find_neighbour_galleries
from saywhich.judging.notes import Notes
from saywhich.judging.photo_index import PhotoIndex
from saywhich.judging.photo_vectors import encode_gallery
from saywhich.judging.thumbnails import Thumbnails

CAPTIONS = {"COCO_val_000000000007.jpg": ["a dog", "two dogs"], "b.jpg": ["a boat"]}
KARPATHY = {
    "images": [
        {"filename": name, "sentences": [{"raw": text} for text in captions]} for name, captions in CAPTIONS.items()
    ]
}
COCO = {
    "images": [{"id": 7, "file_name": "COCO_val_000000000007.jpg"}, {"id": 8, "file_name": "b.jpg"}],
    "annotations": [
        {"id": 1, "image_id": 7, "caption": "a dog"},
        {"id": 2, "image_id": 8, "caption": "a boat"},
        {"id": 3, "image_id": 7, "caption": "two  dogs"},
    ],
}
RESULTS = [{"image_id": each["image_id"], "caption": each["caption"]} for each in COCO["annotations"]]
ROWS = [(name, text) for name, captions in CAPTIONS.items() for text in captions]


def write_file(path, content):
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"file": [n for n, _ in ROWS], "caption": [t for _, t in ROWS]}), path)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", CAPTIONS),
        ("a.json", KARPATHY),
        ("a.json", [{"file": name, "caption": text} for name, text in ROWS]),
        ("a.csv", "file,caption\n" + "".join(f"{name},{text}\n" for name, text in ROWS)),
        ("a.token", "".join(f"{name}#{n}\t{text}\n" for n, (name, text) in enumerate(ROWS))),
        ("Flickr8k.token.txt", "".join(f"{name}#{n}\t{text} \r\n" for n, (name, text) in enumerate(ROWS))),
        ("a.tsv", "caption\timage\n" + "".join(f"{text}\t{name}\n" for name, text in ROWS)),
        (
            "a.jsonl",
            "".join(json.dumps({"file": name, "captions": captions}) + "\n" for name, captions in CAPTIONS.items()),
        ),
        ("a.parquet", None),
    ],
)
def test_forms_with_names_of_files(tmp_path, name, content):
    notes = Notes()
    assert read_caption_set(write_file(tmp_path / name, content), notes).captions == CAPTIONS
    assert not list(notes.lines())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", RESULTS),
        ("a.json", COCO),
        ("a.csv", "image_id,caption\n7,a dog\n8,a boat\n7,two dogs\n"),
        ("a.csv", "image_id,caption\n7.0,a dog\n8.0,a boat\n7.0,two dogs\n"),  # pandas writes ids with gaps as floats
        ("a.json", [{**row, "image_id": float(row["image_id"])} for row in RESULTS]),
        ("a.jsonl", "".join(json.dumps(row) + "\n" for row in RESULTS)),
    ],
)
def test_forms_with_ids(tmp_path, name, content):
    found = read_caption_set(write_file(tmp_path / name, content), Notes())
    assert found.captions == {7: ["a dog", "two dogs"], 8: ["a boat"]}
    assert found.files == ({7: "COCO_val_000000000007.jpg", 8: "b.jpg"} if content is COCO else {})


@pytest.mark.parametrize("image_id", ["7", 7.0, "000007"])
def test_ids_that_are_no_integers_in_the_file_still_name_their_photo(tmp_path, image_id):
    content = {
        "images": [{"id": image_id, "file_name": "b.jpg"}],
        "annotations": [{"image_id": image_id, "caption": "a boat"}],
    }
    found = read_caption_set(write_file(tmp_path / "a.json", content), Notes())
    assert (found.captions, found.files) == ({7: ["a boat"]}, {7: "b.jpg"})


def test_a_table_of_ids_may_have_gaps(tmp_path):
    """A column of ids with gaps has ids such as 7.0; a missing file names no photo."""
    table = write_file(tmp_path / "ids.csv", "image_id,file\n7.0,a.jpg\n8.0,b.jpg\n9.0,\n,c.jpg\n")
    assert read_ids(table) == {7: "a.jpg", 8: "b.jpg"}


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        (
            {Path("a.jpg"): "x"},
            r'captions: expected a text or a whole number as key, got "a.jpg"; name files with str\(path\)',
        ),
        ({"a.jpg": {"x"}}, r"""captions, "a.jpg": is "\{'x'\}", and a caption or a list of captions is expected"""),
        (
            {"a.jpg": b"x"},
            r"""captions, "a.jpg": is "b'x'", and a caption or a list of captions is expected; the forms""",
        ),
    ],
)
def test_python_values_of_other_types_are_refused(captions, message):
    with pytest.raises(UserError, match=message):
        read_caption_set(captions, Notes())


def test_results_are_those_that_pycocotools_reads(tmp_path):
    from pycocotools import coco

    (tmp_path / "annotations.json").write_text(json.dumps(COCO))
    results = coco.COCO(str(tmp_path / "annotations.json")).loadRes(str(write_file(tmp_path / "a.json", RESULTS)))
    expected: dict[int, list[str]] = {}
    for each in results.loadAnns(results.getAnnIds()):
        expected.setdefault(each["image_id"], []).append(" ".join(each["caption"].split()))
    assert read_caption_set(tmp_path / "a.json", Notes()).captions == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "7", "a.json: holds 7; the forms are COCO's results"),
        ("a.json", '{"a.jpg": 7}', r'a.json, "a.jpg": is 7, and a caption or a list of captions is expected'),
        ("a.json", '[{"image_id": 7}]', r'entry 1: is {"image_id": 7}, and an object with a file and a caption'),
        (
            "a.json",
            '[{"caption": "a dog"}]',
            "entry 1: names no image; one of file, image, filename, image_id is needed",
        ),
        ("a.json", "{}", "a.json: holds no captions"),
        ("a.json", '{"images": [], "annotations": 7}', "a.json, annotations: is 7, and a list is expected"),
        (
            "a.json",
            '{"images": [{"id": 1, "sentences": true}]}',
            r"images\[0\].sentences: is true, and a list is expected",
        ),
        ("a.jsonl", "null", "a.jsonl, entry 1: is null, and an object with a file and a caption"),
        ("a.json", '{"a.jpg": "x"', "a.json: not JSON"),
        ("a.json", "[" * 99, "a.json: not JSON"),
        ("a.jsonl", '{"file": "a.jpg", "caption": "x"}\n{', "a.jsonl, line 2: not JSON"),
        ("a.csv", "file,text\na.jpg,x\n", 'a.csv, row 1: a column caption is needed; there are "file", "text"'),
        ("a.xlsx", "", "a.xlsx: is a spreadsheet; save it as “CSV UTF-8” and give that file"),
        ("a.pkl", "", "a.pkl: expected captions, found the extension '.pkl'; the forms are COCO's results"),
        (
            "a.txt",
            "image,caption\na.jpg,x\n",
            'a.txt, line 1: is "image,caption", and NAME#NUMBER, a tab and a caption',
        ),
    ],
)
def test_other_forms_are_reported_in_one_line(tmp_path, name, content, message):
    with pytest.raises(UserError, match=message) as error:
        read_caption_set(write_file(tmp_path / name, content), Notes())
    assert "\n" not in error.value.args[0]


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(UserError, match="expected captions, found a folder; the forms are COCO's results"):
        read_caption_set(tmp_path, Notes())
    with pytest.raises(UserError, match="nowhere: expected captions, found no such file; the forms are"):
        read_caption_set(tmp_path / "nowhere", Notes())


def test_photos_are_found_by_path_name_stem_and_id(tmp_path):
    for name in ("x/a.jpg", "y/a.jpg", "x/b_000042.jpg", "y/c_007.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    index = PhotoIndex(tmp_path, {5: "y/a.jpg"})
    found = {name: index.find(name) for name in ("x/a.jpg", "b_000042.jpg", "b_000042", "folder/c_007.png", 42, "7", 5)}
    paths = ("x/a.jpg", "x/b_000042.jpg", "x/b_000042.jpg", "y/c_007.png", "x/b_000042.jpg", "y/c_007.png", "y/a.jpg")
    assert found == {name: tmp_path / path for name, path in zip(found, paths, strict=True)}
    assert [index.find(name) for name in ("a.jpg", "a", "d.jpg", 43)] == [None] * 4  # ambiguous or missing


def test_photos_of_equal_names_are_found_by_the_paths_that_caption_prints(tmp_path):
    for name in ("holiday/a.jpg", "holiday/x/a.jpg", "holiday/y/a.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    index = PhotoIndex(tmp_path / "holiday")
    for path in index.files:
        assert index.find(str(path)) == index.find(f"holiday/{path.relative_to(tmp_path / 'holiday')}") == path


def test_letters_of_names_may_be_composed_or_not(tmp_path):
    """Systems write ü in a name as one or as two characters."""
    composed, decomposed = "stra\u00dfe \u00fc.jpg", "re\u0301sume\u0301.png"
    for name in (composed, decomposed):
        (tmp_path / name).touch()
    index = PhotoIndex(tmp_path)
    assert index.find("stra\u00dfe u\u0308.jpg") == index.find("stra\u00dfe u\u0308") == tmp_path / composed
    assert index.find("r\u00e9sum\u00e9.png") == tmp_path / decomposed
    (tmp_path / "r\u00e9sum\u00e9.png").touch()
    assert PhotoIndex(tmp_path).find(decomposed) == tmp_path / decomposed  # an exact name takes precedence


def test_a_number_in_a_name_with_more_digits_than_an_id_is_no_id(tmp_path):
    (tmp_path / f"photo_{'1' * 20}.jpg").touch()
    assert PhotoIndex(tmp_path).find(int("1" * 18)) is None


def test_cycles_in_a_table_of_ids_end(tmp_path):
    """A table names an id by its own number, or two ids by each other's number."""
    (tmp_path / "photo_000000000007.jpg").touch()
    index = PhotoIndex(tmp_path, {5: "5", 6: "8", 8: "6", 9: "7"})
    assert [index.find(image) for image in (5, "5", 6, "08")] == [None] * 4
    assert index.find(9) == index.find("9") == index.find(7) == tmp_path / "photo_000000000007.jpg"


def test_an_id_of_thousands_of_digits_is_a_name(colours):
    digits = "9" * 5000
    (colours / "a.json").write_text(json.dumps([{"image_id": digits, "caption": "a dog"}]))
    assert read_caption_set(colours / "a.json", Notes()).captions == {digits: ["a dog"]}
    (colours / "ids.json").write_text(json.dumps({digits: "a.png", "٣": "b.png", "7": "c.png"}))
    assert read_ids(colours / "ids.json") == {7: "c.png"}
    captions = {"a.png": "red", "b.png": "green"}
    instances = {"images": [{"id": digits}], "categories": [{"id": 1, "name": "dog"}]}
    (colours / "instances.json").write_text(json.dumps({**instances, "annotations": []}))
    assert saywhich.judge(captions, "photos", judges=["colours"], instances=["instances.json"]).rows
    (colours / "instances.json").write_text(
        json.dumps({**instances, "annotations": [{"image_id": "x" * 999, "category_id": 1}]})
    )
    with pytest.raises(
        UserError, match=r'instances.json, annotations\[0\] .*: image "x+…? or category 1 is not'
    ) as error:
        saywhich.judge(captions, "photos", judges=["colours"], instances=["instances.json"])
    assert len(str(error.value)) < 300


def test_faults_are_counted_with_the_first_three(colours):
    captions = {"a.png": ["a red wall", "a red wall"], "b.png": "", "c.png": "xyz " * 21}
    captions |= {f"{name}.png": "red" for name in "vwxyz"}
    notes = list(saywhich.judge(captions, "photos", judges=["colours"]).notes)
    assert notes == [
        "captions that captions gives twice for one image, and that count twice: 1 (a.png)",
        "empty captions in captions, which count like others: 1 (b.png)",
        "images of captions that are not in photos, or have a name that several photos have: "
        "5 (v.png, w.png, x.png, …)",
        f"captions of captions that are longer than the input of colours, and are cut: 1 ({('xyz ' * 21)[:39]}…)",
        f"captions of captions mostly of words that are unknown to colours: 1 ({('xyz ' * 21)[:39]}…)",
    ]
    captions, references = {"a.png": "red", "b.png": "red"}, {"a.png": ["red"], "b.png": ["green"]}
    notes = list(saywhich.judge(captions, "photos", references=references, judges=["colours"], metrics=()).notes)
    assert notes == ["photos without a caption in captions, which are left out: 1 (c.png)"]


def test_captions_that_are_cut_after_the_prompt_of_clip_score_are_counted(colours):
    """The judge's input has at most 20 words; the prompt, “A photo depicts”, has three."""
    captions = {"a.png": "red " * 17, "b.png": "green " * 18}
    (note,) = (note for note in saywhich.judge(captions, "photos", judges=["colours"]).notes if "cut" in note)
    assert note.startswith(
        "captions of captions that are longer than the input of colours, and are cut: 1 (green green"
    )


def test_repeated_keys_of_a_json_object_are_noted(tmp_path):
    notes = Notes()
    (tmp_path / "a.json").write_text('{"a.jpg": "x", "b.jpg": "y", "a.jpg": "z"}')
    assert read_caption_set(tmp_path / "a.json", notes).captions["a.jpg"] == ["z"]
    assert list(notes.lines()) == ["images that a.json lists more than once; only the last captions count: 1 (a.jpg)"]


def test_inputs_that_cannot_be_judged_are_refused(colours):
    with pytest.raises(
        UserError, match=r"captions: 0 of its 1 images \(the first is 'q'\) are photos in photos \(the first is a"
    ):
        saywhich.judge({"q": "red"}, "photos", judges=["colours"])
    captions = {"a.png": "red", "b.png": "green"}
    with pytest.raises(UserError, match="--neighbours colours: is also a judge, and would choose its own galleries"):
        saywhich.judge(captions, "photos", judges=["colours"], neighbours="colours")
    with pytest.raises(UserError, match=r"--neighbours \./colours: is also a judge, and would choose its own"):
        saywhich.judge(captions, "photos", judges=["colours"], neighbours="./colours")
    with pytest.raises(UserError, match="--hard 1: give 2 or more"):
        saywhich.judge(captions, "photos", judges=["colours"], hard=1)


def test_an_empty_name_of_the_folder_of_photos_is_reported(colours):
    """An unset shell variable gives an empty name, which must not mean the current folder."""
    with pytest.raises(UserError, match=r"a photo's path is empty; give a photo or a folder, such as \."):
        saywhich.judge({"a.png": "red", "b.png": "green"}, "", judges=["colours"])


def test_the_caption_file_that_is_given_twice_is_named(colours):
    for name in "ab":
        (colours / f"{name}.json").write_text(json.dumps({"a.png": "red", "b.png": "green"}))
    with pytest.raises(UserError, match=r"^b\.json: is given twice; give different caption files$"):
        saywhich.compare(["a.json", "b.json", "b.json"], "photos", judges=["colours"])


def test_judges_of_equal_names_have_scores_of_their_own(colours, monkeypatch):
    """The name of a judge with a file of weights may equal the name of a judge without a file."""
    source = judge_sources.JudgeSource(
        lambda name: name.startswith("colours"), lambda name: ColourJudge(name.partition("=")[0])
    )
    monkeypatch.setattr(judge_sources, "JUDGES", (source,))
    captions = {"a.png": "red", "b.png": "green"}
    for judges, names in (
        (["colours=own.safetensors", "colours"], ["colours", "colours 2"]),
        (["colours", "colours=own.safetensors"], ["colours", "colours=own.safetensors"]),
        ([ColourJudge(name) for name in ("a", "a 2", "a")], ["a", "a 2", "a 3"]),
    ):
        found = saywhich.judge(captions, "photos", judges=judges)
        assert found.judges == names
        assert {key.judge for key in found.rows[0].scores} == {*names, ""}


def test_each_file_may_number_its_images_in_its_own_way(colours):
    """References number the photos in the opposite order; a file without image names uses the references' numbers."""
    for name, files, texts in (("captions", "ab", ("red", "green")), ("people", "ba", ("grass", "a red wall"))):
        images = [{"id": number, "file_name": f"{file}.png"} for number, file in enumerate(files, 1)]
        captions = [{"image_id": number, "caption": text} for number, text in enumerate(texts, 1)]
        (colours / f"{name}.json").write_text(json.dumps({"images": images, "annotations": captions}))
    (colours / "results.json").write_text(json.dumps(captions))
    options = {"references": "people.json", "judges": ["colours"], "metrics": ()}
    (row,) = saywhich.judge("captions.json", "photos", **options).rows
    assert row.captions == [["red"], ["green"]]
    assert row.references == [["a red wall"], ["grass"]]
    (row,) = saywhich.judge("results.json", "photos", **options).rows
    assert row.captions == [["a red wall"], ["grass"]]
    (colours / "ids.csv").write_text("image_id,file\n1,b.png\n2,a.png\n")
    (row,) = saywhich.judge("captions.json", "photos", ids="ids.csv", **options).rows
    assert row.captions == [["green"], ["red"]]


def test_a_reference_without_a_word_counts_as_none(colours):
    captions, references = {"a.png": "a red wall", "b.png": "green"}, {"a.png": "a red wall", "b.png": ["...", ""]}
    found = saywhich.judge(captions, "photos", references=references, judges=["colours"], metrics=["BLEU"])
    assert found.rows[0].references == [["a red wall"], []]
    assert found.rows[0].value("", "BLEU-1") == pytest.approx(1)
    assert [row.name for row in found.baselines] == ["a photo of a NOUN"]
    assert found.notes[-1] == (
        "judged photos without a reference in captions, so that there is no row of human captions: 1 (b.png)"
    )


def test_near_duplicates_are_in_hard_galleries_only_on_request(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_example(tmp_path)
    with Image.open(tmp_path / "photos/00.png") as image:
        image.resize((20, 20)).save(tmp_path / "photos/00b.jpg", quality=90)
    found = encode_gallery(Thumbnails(), sorted((tmp_path / "photos").iterdir()))
    vectors = torch.from_numpy(found.vectors)
    names = [path.name for path in found.files]
    first, copy = names.index("00.png"), names.index("00b.jpg")
    with_duplicates = find_neighbour_galleries(vectors, vectors, 5, True)
    assert with_duplicates[first, 0] == copy
    assert with_duplicates.shape == (41, 4)
    without_duplicates = find_neighbour_galleries(vectors, vectors, 5, False)
    assert copy not in without_duplicates[first]
    assert first not in without_duplicates[copy]
    assert without_duplicates[first].tolist()[:3] == with_duplicates[first].tolist()[1:]
    few = vectors[[first, copy, names.index("01.png")]]
    assert find_neighbour_galleries(few, few, 5, False).tolist()[:2] == [[2, -1], [2, -1]]


def test_resamples_are_the_same_in_blocks(monkeypatch):
    whole = draw_resamples(7, 10, seed=3)
    monkeypatch.setattr(bootstrap, "BLOCK_COUNTS", 21)
    blocks = list(draw_in_blocks(7, 10, seed=3))
    assert [len(block) for block in blocks] == [3, 3, 3, 1]
    assert (draw_resamples(7, 10, seed=3) == whole).all()
