"""The commands `saywhich caption` and `find`: outputs, one-line errors, signals, and the cache of embeddings."""

import base64
import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from closed_output import close_output
from PIL import Image
from pycocotools.coco import COCO
from saywhich_world import paint

import saywhich.commands
from saywhich.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]


def test_each_photo_is_captioned_and_a_broken_one_is_reported(photos, model_option, capsys):
    (photos / "broken.jpg").write_bytes(b"no photo")
    (photos / ".hidden.jpg").write_bytes(b"hidden photo")
    (photos / "notes.txt").write_text("no photo")
    (photos / "more").mkdir()
    paint(photos / "more/d.png", 7)
    assert main(["caption", ".", *model_option]) == 1
    printed = capsys.readouterr()
    lines = [line.split("\t") for line in printed.out.splitlines()]
    assert [name for name, _ in lines] == ["a.jpg", "b.jpg", "c.jpg", "more/d.png"]
    assert all(caption for _, caption in lines)
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("broken.jpg: the image cannot be decoded")


def test_a_table_and_json_lines_hold_ranks_and_candidates(photos, model_option, capsys):
    assert main(["caption", "a.jpg", "b.jpg", "--among", ".", "--csv", "captions.csv", *model_option]) == 0
    rows = list(csv.DictReader(Path("captions.csv").read_text().splitlines()))
    assert [row["file"] for row in rows] == ["a.jpg", "b.jpg"]
    assert all(1 <= int(row["rank"]) <= int(row["of"]) == 3 for row in rows)
    assert main(["caption", "a.jpg", "--among", ".", "--beam", "3", "--jsonl", "captions.jsonl", *model_option]) == 0
    content = json.loads(Path("captions.jsonl").read_text())
    assert content["candidates"][0] == content["caption"]
    assert len(content["candidates"]) == 3
    assert (content["rank"] == 1) == (content["margin"] > 0)
    assert capsys.readouterr().out == ""
    assert main(["caption", "a.jpg", "--among", ".", *model_option]) == 0
    rank = int(rows[0]["rank"])
    assert capsys.readouterr().out == f"a.jpg\t{rows[0]['caption']}\t{rank}/3\n"


def test_results_in_cocos_form_are_those_that_pycocotools_reads(photos, model_option, capsys):
    names = {"COCO_val2014_000000000042.jpg": 42, "000000000073.jpg": 73}
    for source, name in zip("ab", names, strict=True):
        Path(f"{source}.jpg").rename(name)
    assert main(["caption", *names, "--coco", "results.json", *model_option]) == 0
    annotations = {"images": [{"id": number} for number in names.values()], "annotations": [], "info": {}}
    Path("captions.json").write_text(json.dumps(annotations))
    found = COCO("captions.json").loadRes("results.json")
    capsys.readouterr()
    assert main(["caption", *names, *model_option]) == 0
    printed = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert {each["image_id"]: each["caption"] for each in found.loadAnns(found.getAnnIds())} == {
        number: printed[name] for name, number in names.items()
    }
    assert main(["caption", "c.jpg", "--coco", "none.json", *model_option]) == 2
    assert capsys.readouterr().err.startswith("c.jpg: --coco needs an image's id")
    Path("c.jpg").rename("other42.jpg")
    assert main(["caption", ".", "--coco", "none.json", *model_option]) == 2
    line = "other42.jpg: --coco needs a different id for each photo, and COCO_val2014_000000000042.jpg has 42, too; "
    assert capsys.readouterr().err == f"{line}rename one, or caption them in two runs\n"
    assert not Path("none.json").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["caption", "nothing.jpg"], "nothing.jpg: no such photo or folder"),
        (["caption", "empty"], "empty: no photos (.avif, "),
        (["caption", "", "--in-place"], "a photo's path is empty; give a photo or a folder, such as ."),
        (["caption", "a.jpg", "--model", "nowhere"], "nowhere: no trained model; train one (make repro)"),
        (["caption", "a.jpg", "--beam", "0"], "beam 0: give 1 or more"),
        (["find", "a dog", "a.jpg", "--top", "0"], "--top 0: give 1 or more"),
        (["find", "a dog", ".", "--html", "a.jpg"], "a.jpg: is also an input or another output of this command"),
    ],
)
def test_a_mistake_is_reported_in_one_line(photos, model_option, capsys, arguments, line):
    (photos / "empty").mkdir()
    assert main([*arguments, *([] if "--model" in arguments else model_option)]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(line)
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["caption", "a.jpg", "--samples", "x"], "saywhich caption: argument --samples: invalid int value: 'x'; "),
        (["caption"], "saywhich caption: the following arguments are required: PHOTO|FOLDER; "),
        (["study", "raters", "75", "x"], "saywhich study raters: argument PERCENT: x is no percentage above 50"),
        (["study", "--pairs", "0.5"], "saywhich study: argument --pairs: 0.5 is no whole number of 1 or more; "),
    ],
)
def test_a_wrong_option_is_reported_in_one_line(capsys, arguments, line):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr().err
    assert ended.value.code == 2
    assert printed.startswith(line)
    assert printed.count("\n") == 1
    assert printed.endswith(" --help lists the options\n")


def test_exhausted_memory_is_reported_in_one_line(photos, model_option, capsys):
    assert main(["caption", "a.jpg", "--samples", str(10**13), *model_option]) == 2
    assert capsys.readouterr().err.startswith("saywhich: too little memory; ask for fewer samples, ")


@pytest.mark.parametrize(("request_to_end", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_request_to_end_waits_for_the_end_of_an_import(tmp_path, monkeypatch, capsys, request_to_end, status):
    code = f"import os, signal, time\nos.kill(os.getpid(), {int(request_to_end)})\ntime.sleep(0.3)\nwhole = True\n"
    (tmp_path / "ended.py").write_text(code + "def add(parser): time.sleep(9)\n")
    monkeypatch.setattr(saywhich.commands, "__path__", [*saywhich.commands.__path__, str(tmp_path)])
    monkeypatch.setitem(COMMANDS, "ended", "a command whose import is interrupted")
    assert main(["ended"]) == status
    assert sys.modules.pop("saywhich.commands.ended").whole
    assert capsys.readouterr().err == f"saywhich: ended by {request_to_end.name}\n"


def test_pages_and_copies_are_written_where_standard_output_is_closed(photos, model_option):
    with close_output():
        assert main(["find", "a red boat", ".", "--html", "found.html", *model_option]) == 0
    with close_output():
        assert main(["caption", "a.jpg", "b.jpg", "--html", "captions.html", "--xmp", "../copies", *model_option]) == 0
    assert Path("found.html").read_text().count("data:image/jpeg;base64,") == 3
    assert Path("captions.html").read_text().count("data:image/jpeg;base64,") == 2
    assert sorted(path.name for path in Path("../copies").iterdir()) == ["a.jpg", "b.jpg"]


def test_a_run_without_other_outputs_ends_where_standard_output_is_closed(photos, model_option, monkeypatch):
    texts = []
    monkeypatch.setattr("saywhich.caption_outputs.escape_line", lambda text: texts.append(text) or text)
    with close_output():
        assert main(["caption", ".", *model_option]) == 0
    assert texts[0::2] == ["a.jpg"]


def test_retrieved_photos_are_printed_best_first_and_shown_on_a_page(photos, model_option, model, capsys):
    assert main(["find", "a red boat", ".", "--top", "2", "--html", "found.html", *model_option]) == 0
    names = ["a.jpg", "b.jpg", "c.jpg"]
    expected = model.find("a red boat", names, top=2)
    assert capsys.readouterr().out == "".join(f"{each.score:.3f}\t{names[each.index]}\n" for each in expected)
    page = Path("found.html").read_text()
    assert page.index(names[expected[0].index]) < page.index(names[expected[1].index])
    assert page.count("data:image/jpeg;base64,") == 2
    assert main(["find", "a zebra", ".", *model_option]) == 0
    assert capsys.readouterr().err == f"note: words that are not in the vocabulary of {model_option[1]}: zebra\n"


def test_a_second_search_encodes_only_new_or_changed_photos(photos, model_option, monkeypatch, capsys):
    from saywhich import streaming

    encoded = []
    original = streaming.stream_embeddings

    def stream_and_record(model, paths):
        encoded.extend(Path(path).name for path in paths)
        return original(model, paths)

    def run_search():
        encoded.clear()
        assert main(["find", "a dog", ".", *model_option]) == 0
        return sorted(line.split("\t")[1] for line in capsys.readouterr().out.splitlines()), sorted(encoded)

    monkeypatch.setattr(streaming, "stream_embeddings", stream_and_record)
    assert run_search() == (["a.jpg", "b.jpg", "c.jpg"], ["a.jpg", "b.jpg", "c.jpg"])
    assert run_search() == (["a.jpg", "b.jpg", "c.jpg"], [])
    paint(photos / "d.jpg", 5)
    paint(photos / "b.jpg", 6, (30, 70))
    (photos / "c.jpg").unlink()
    assert run_search() == (["a.jpg", "b.jpg", "d.jpg"], ["b.jpg", "d.jpg"])
    os.utime("a.jpg")  # only the modification time changes
    assert run_search()[1] == ["a.jpg"]
    assert sorted(path.name for path in photos.iterdir()) == ["a.jpg", "b.jpg", "d.jpg"]


def test_scores_from_the_cache_equal_computed_ones(photos, model_option, capsys):
    for _ in range(2):
        assert main(["find", "a red dog", ".", *model_option]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == lines[3:]


def test_a_truncated_cache_is_filled_again(photos, model_option, capsys):
    for _ in range(2):
        assert main(["find", "a red dog", ".", *model_option]) == 0
        (file,) = Path(os.environ["XDG_CACHE_HOME"]).rglob("vectors.sqlite")
        assert file.stat().st_size > 5000
        os.truncate(file, 5000)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == lines[3:]


def test_an_unwritable_cache_is_skipped(photos, model_option, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main(["find", "a dog", ".", *model_option]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.slow
def test_a_search_with_a_filled_cache_does_not_wait_for_pytorch(photos, model_option, repository):
    code = "import sys; from saywhich.cli import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    command = [sys.executable, "-c", code, "find", "a dog", ".", *model_option]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for imported in ("True", "False"):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == imported


def test_the_page_has_no_metadata_of_photos(photos, model_option):
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    Image.open("a.jpg").save("a.jpg", exif=exif)
    assert main(["find", "a dog", "a.jpg", "--html", "found.html", *model_option]) == 0
    page = Path("found.html").read_text()
    copy = page.split("data:image/jpeg;base64,")[1].split('"')[0]
    assert b"taken at home" not in base64.b64decode(copy)
