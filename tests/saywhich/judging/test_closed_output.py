"""Output files are written where standard output is closed, and files that cannot be written end a run early."""

import json

import pytest
from closed_output import close_output
from colour_judge import ColourJudge

from saywhich.cli import main
from saywhich.judging.thumbnails import Thumbnails

CAPTIONS = {"a.png": "a red square", "b.png": "a red cat", "c.png": "red and green"}
RATINGS = "image,caption,rating\na.png,a red square,4\nb.png,a red cat,1\nc.png,green,2\n"
JUDGING = ["--images", "photos", "--judge", "colours"]
COMMANDS = {
    "judge": (["captions.json", *JUDGING], ("json", "csv", "html")),
    "compare": (["captions.json", "other.json", *JUDGING], ("json", "csv", "html")),
    "hacked": (["captions.json", "other.json", *JUDGING, "--reward", "colours2"], ("json", "html")),
    "calibrate": (["ratings.csv", *JUDGING], ("json",)),
    "bags": (["photos", "--size", "2", "--min-cosine", "-1"], ("json", "galleries", "html")),
}


@pytest.fixture
def folder(colours):
    (colours / "captions.json").write_text(json.dumps(CAPTIONS))
    (colours / "other.json").write_text(json.dumps({**CAPTIONS, "b.png": "green"}))
    (colours / "ratings.csv").write_text(RATINGS)
    return colours


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"calibrate"}))  # the intervals of calibrate take seconds
def test_files_are_written_where_standard_output_is_closed(folder, command):
    arguments, outputs = COMMANDS[command]
    files = [f"--{output}={output}.out" for output in outputs]
    with close_output():
        assert main([command, *arguments, *files]) == 0
    assert all((folder / f"{output}.out").stat().st_size for output in outputs)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_cannot_be_written_is_reported_in_one_line_before_the_work(folder, command, capsys, monkeypatch):
    for encoder in (ColourJudge, Thumbnails):
        monkeypatch.setattr(encoder, "encode_photos", None)
    arguments, outputs = COMMANDS[command]
    for output in outputs:
        assert main([command, *arguments, f"--{output}=photos"]) == 2
        assert capsys.readouterr().err == "photos: is a folder; name a file to write\n"
        assert main([command, *arguments, f"--{output}=captions.json/x"]) == 2
        line = "captions.json/x: cannot be written, since captions.json is no folder; name another file\n"
        assert capsys.readouterr().err == line
