"""Outputs of commands: older files stay, refusals are one line, and untrusted names and captions are text."""

import csv
import io
import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt
from saywhich_world import paint

import saywhich
from pipeline.errors import escape_line
from pipeline.runtime.escaping import escape_csv_cell, escape_markdown_text, format_markdown_code
from pipeline.runtime.records import parse_json
from saywhich import caption_outputs
from saywhich.captioning_model import Caption
from saywhich.cli import main
from saywhich.contact_sheet import make_sheet_entry, write_sheet
from saywhich.model import Model
from saywhich.model_card import make_model_card

ROOT = Path(__file__).parents[2]
HOSTILE = ("=1+1.png", "a\nb\x1b[31m\u202egpj.png", os.fsdecode(b"caf\xe9.png"), "<b>&.png", "@x.png")
MARKUP = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "![x](http://far.example)", "[x](http://far.example)",
    "x\n\n# head", "# head", "- item", "1. item", "`x` <b>", "```\nx", "---\nlicense: mit\n---", "a | b | c",
    "**x** _y_",
    "&lt;b&gt;", "x\\", "\\<b>", "~~x~~", "+ x", "=== ", "> x", "    code", "\u202e x", "'\"{}: [] # x", "x: y",
    "!!python/x",
)  # fmt: skip


@pytest.mark.parametrize("option", ["--csv", "--jsonl"])
def test_an_older_table_stays_until_the_new_one_is_complete(photos, model_option, monkeypatch, option):
    Path("captions").write_text("old")
    original, contents = Model.caption_features, []

    def interrupt(self, *arguments, **options):
        contents.append(Path("captions").read_text())
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "caption_features", interrupt)
    assert main(["caption", "a.jpg", option, "captions", *model_option]) == 130
    assert (contents, Path("captions").read_text()) == (["old"], "old")
    assert [path.name for path in Path().glob(".*")] == []
    monkeypatch.setattr(Model, "caption_features", original)
    assert main(["caption", "a.jpg", option, "captions", *model_option]) == 0
    assert "a.jpg" in Path("captions").read_text()


@pytest.mark.parametrize("output", ["full", ".", "a.jpg/captions", "/proc/captions"])
@pytest.mark.parametrize(
    "command",
    [
        ["caption", "a.jpg", "--csv"],
        ["caption", "a.jpg", "--jsonl"],
        ["caption", "a.jpg", "--html"],
        ["find", "a dog", "a.jpg", "--html"],
    ],
)
def test_an_unwritable_output_is_reported_in_one_line(photos, model_option, capsys, command, output):
    Path("full").symlink_to("/dev/full")
    assert main([*command, output, *model_option]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(("saywhich: ", f"{output}: "))
    assert printed.count("\n") == 1
    assert ".part" not in printed
    assert Path("full").is_symlink(), "expected the link to the device to stay"


INPUTS = ["c.json", "d.json", "--images", "."]


@pytest.mark.parametrize(
    "arguments",
    [
        ["caption", "a.jpg", "--csv", "captions", "--html", "../photos/captions"],
        ["caption", "a.jpg", "--csv", "../photos/a.jpg"],
        ["find", "a dog", "a.jpg", "--html", "a.jpg"],
        ["judge", "c.json", "--images", ".", "--references", "d.json", "--csv", "d.json"],
        ["compare", *INPUTS, "--json", "d.json"],
        ["hacked", *INPUTS, "--reward", "x", "--judge", "y", "--html", "c.json"],
        ["calibrate", "c.json", "--images", ".", "--json", "c.json"],
        ["bags", ".", "--json", "found", "--galleries", "found"],
        ["bench", "score", "folder", "c.json", "--json", "c.json"],
    ],
)
def test_no_output_replaces_an_input_or_another_output(photos, capsys, arguments):
    for name in ("c.json", "d.json"):
        Path(name).write_text("{}")
    contents = {path: path.read_bytes() for path in photos.iterdir()}
    assert main(arguments) == 2
    line = f"{arguments[-1]}: is also an input or another output of this command; name another file to write\n"
    assert capsys.readouterr().err == line
    assert {path: path.read_bytes() for path in photos.iterdir()} == contents


@pytest.mark.parametrize(
    "arguments",
    [
        ["bags", ".", "--galleries", "a.jpg"],
        ["judge", "c.json", "--images", ".", "--csv", "a.jpg"],
        ["compare", *INPUTS, "--json", "a.jpg"],
        ["hacked", *INPUTS, "--reward", "x", "--judge", "y", "--html", "a.jpg"],
        ["calibrate", "c.json", "--images", ".", "--json", "a.jpg"],
        ["bench", "score", "folder", "c.json", "--json", "a.jpg"],
    ],
)
def test_no_output_replaces_a_photo(photos, capsys, arguments):
    content = (photos / "a.jpg").read_bytes()
    assert main(arguments) == 2
    assert capsys.readouterr().err == "a.jpg: is a photo or film; name another file to write\n"
    assert (photos / "a.jpg").read_bytes() == content


def test_no_table_replaces_a_photo_of_the_captioned_folder(photos, model_option, capsys):
    content = (photos / "a.jpg").read_bytes()
    assert main(["caption", ".", "--csv", "a.jpg", *model_option]) == 2
    assert (
        capsys.readouterr().err
        == "a.jpg: is also an input or another output of this command; name another file to write\n"
    )
    assert (photos / "a.jpg").read_bytes() == content


def test_a_photo_without_any_other_has_no_margin_in_json_lines(photos, model_option):
    assert main(["caption", "a.jpg", "--among", "a.jpg", "--jsonl", "captions.jsonl", *model_option]) == 0
    found = parse_json(Path("captions.jsonl").read_bytes(), "captions.jsonl", "write standard JSON")
    assert (found["rank"], found["of"], found["margin"]) == (1, 1, None)


def test_help_is_printed_where_python_keeps_no_docstrings(monkeypatch, capsys):
    monkeypatch.setattr(saywhich, "__doc__", None)  # as in python -OO
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "caption photos" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["study", "raters", "75", "72"]])
def test_a_full_standard_output_is_reported_in_one_line(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "saywhich", *arguments]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("saywhich: the disk is full")


def test_untrusted_names_are_one_line_each_and_no_formula(photos, model_option, capsys):
    (photos / "strange").mkdir()
    for number, name in enumerate(HOSTILE):
        paint(Path("x.png"), number).rename(photos / "strange" / name)
    os.chdir("strange")
    expected = {"=1+1.png", "a\\nb\\x1b[31m\\u202egpj.png", "caf\\xe9.png", "<b>&.png", "@x.png"}
    assert main(["caption", *HOSTILE, *model_option]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split("\t")[0] for line in lines} == expected
    assert main(["find", "a dog", ".", "--html", "../found.html", *model_option]) == 0
    assert {line.split("\t")[1] for line in capsys.readouterr().out.splitlines()} == expected
    page = Path("../found.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;&amp;.png" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "caf%E9.png" in page
    assert main(["caption", *HOSTILE, "--html", "../captions.html", *model_option]) == 0
    assert {line.split("\t")[0] for line in capsys.readouterr().out.splitlines()} == expected
    assert {name for name, _ in read_sheet(Path("../captions.html"))[1]} == expected
    assert main(["caption", *HOSTILE, "--csv", "../captions.csv", *model_option]) == 0
    with open("../captions.csv", newline="", encoding="utf-8") as table:
        names = [row["file"] for row in csv.DictReader(table)]
    assert names == ["'=1+1.png", HOSTILE[1], "caf\\xe9.png", "<b>&.png", "'@x.png"]
    assert main(["caption", *HOSTILE, "--jsonl", "../captions.jsonl", *model_option]) == 0
    content = Path("../captions.jsonl").read_bytes()
    assert content.isascii()
    assert [json.loads(line)["file"] for line in content.splitlines()] == list(HOSTILE)


class SheetReader(HTMLParser):
    """A parser that collects the tags and addresses of a contact sheet, and its texts by tag."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.texts, self._open = set(), [], {}, []

    def handle_starttag(self, tag, attributes):
        if tag == "link":
            assert attributes == [("rel", "icon"), ("href", "data:,")]
            return
        self.tags.add(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "srcset", "action")]
        assert not any(name.startswith("on") for name, _ in attributes)
        if tag not in ("meta", "img", "br", "source"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, text):
        if self._open:
            self.texts[self._open[-1]][-1] += text


def read_sheet(path):
    """Return the reader of a page, and names and captions of its photos."""
    reader = SheetReader()
    reader.feed(path.read_text(encoding="utf-8"))
    assert not reader._open
    assert all(address.startswith(("data:image/jpeg;base64,", "file:///")) for address in reader.addresses)
    assert not reader.tags & {"script", "link", "iframe", "object", "form", "base"}
    return reader, [*zip(reader.texts["a"], reader.texts["figcaption"], strict=True)]


def test_a_contact_sheet_shows_photos_captions_ranks_and_other_candidates(photos, model_option):
    options = ["--among", ".", "--samples", "4", "--jsonl", "captions.jsonl", "--html", "captions.html"]
    assert main(["caption", "a.jpg", "b.jpg", "c.jpg", *options, *model_option]) == 0
    rows = [json.loads(line) for line in Path("captions.jsonl").read_text().splitlines()]
    reader, pairs = read_sheet(Path("captions.html"))
    assert pairs == [(row["file"], row["caption"] or "(no words)") for row in rows]
    first = sum(row["rank"] == 1 for row in rows)
    page = Path("captions.html").read_text(encoding="utf-8")
    assert f": {first} of 3 photos rank first." in page
    for row in rows:
        assert f"{row['file']}</a> · {row['rank']}/3</p>" in page
    candidates = [text for row in rows for text in dict.fromkeys(row["candidates"]) if text != row["caption"]]
    items = [text.strip("\n") for text in reader.texts["li"] if text.strip()]
    assert items == [text or "(no words)" for text in candidates]
    assert page.count("data:image/jpeg;base64,") == 3
    assert [address for address in reader.addresses if address.startswith("file")] == [
        Path(f"{name}.jpg").resolve().as_uri() for name in "abc"
    ]


def test_untrusted_captions_are_text_on_a_contact_sheet(tmp_path):
    paint(tmp_path / "a.png", 0)
    entries = [make_sheet_entry(tmp_path / "a.png", Caption(text, (text, f"{text}!"))) for text in MARKUP]
    write_sheet(tmp_path / "captions.html", entries)
    reader, pairs = read_sheet(tmp_path / "captions.html")
    assert [caption for _, caption in pairs] == [escape_line(text) for text in MARKUP]
    assert [text.strip("\n") for text in reader.texts["li"] if text.strip()] == [
        escape_line(f"{text}!") for text in MARKUP
    ]


def test_untrusted_captions_are_text_in_tables_and_on_terminals(capsys):
    out = io.StringIO(newline="")
    write = caption_outputs._make_table_writer(out, has_ranks=True)
    for text in ("=cmd()", "+1", "-1", "@x", "\t=1", "\r=1", " =1", "\n=1", "＝1", "\u200d=1", "a = b"):
        write(Path("a.jpg"), Caption(text, (), 1, 3, -0.25))
    rows = list(csv.DictReader(io.StringIO(out.getvalue(), newline="")))
    assert all(row["caption"].startswith("'") for row in rows[:-1])
    assert (rows[-1]["caption"], rows[-1]["margin"]) == ("a = b", "-0.2500")
    assert all(escape_csv_cell(f"{hidden}=1") == f"'{hidden}=1" for hidden in ("\0", "\ufeff", "\u200b", "\u200d \xad"))
    caption_outputs._print_caption(Path("a\tb"), Caption("x\x1b]0;owned\x07\n2 \u2066y\x9b", (), 1, 3))
    assert capsys.readouterr().out == "a\\tb\tx\\x1b]0;owned\\x07\\n2 \\u2066y\\x9b\t1/3\n"


def test_harmless_text_is_unchanged():
    for text in ("ein Hund, grün", "犬", "👩‍🚒 und می‌خواهم", "a b", ""):
        assert escape_line(text) == text
        assert escape_csv_cell(text) == text
    assert escape_csv_cell(-0.5) == -0.5


def make_description(text):
    """Return the description of a model, in which every text except `weights` is `text`."""
    metric = {"name": text, "type": text, "value": 0.735123, "low": 0.7, "high": 0.8}
    data = {
        "dataset": text,
        "title": text,
        "licence": text,
        "weights": "other",
        "citation": text,
        "images": {"train": 9},
    }
    description = {
        "name": text,
        "version": text,
        "network": text,
        "signature": text,
        "settings": {text: text},
        "data": data,
    }
    return description | {"metrics": [metric], "samples": [{"file": text, "caption": text}], "images": 40}


def parse_structure(text):
    """Return the elements of Markdown, without their texts."""
    parser = MarkdownIt("commonmark").enable("table").enable("strikethrough")
    return [
        (
            token.type,
            [inner.type for inner in token.children or () if inner.type not in ("text", "text_special", "entity")],
        )
        for token in parser.parse(text)
    ]


@pytest.mark.parametrize("text", MARKUP)
def test_a_model_card_shows_untrusted_texts_literally(text):
    _, front, body = make_model_card(make_description(text)).split("---\n", 2)
    plain = escape_line(text)
    card, (result,) = yaml.safe_load(front), yaml.safe_load(front)["model-index"][0]["results"]
    assert sorted(card) == sorted(yaml.safe_load(make_model_card(make_description("x")).split("---\n")[1]))
    assert (card["license"], card["license_name"], card["datasets"]) == ("other", plain, [plain])
    assert result["metrics"] == [{"type": plain, "name": plain, "value": 0.7351}]
    assert parse_structure(body) == parse_structure(make_model_card(make_description("x")).split("---\n", 2)[2])


@pytest.mark.parametrize("text", MARKUP)
def test_markdown_renders_untrusted_texts_literally(text):
    html = (
        MarkdownIt("commonmark")
        .enable("table")
        .render(f"x {escape_markdown_text(text)}\n\n- {escape_markdown_text(text)}\n\n{format_markdown_code(text)}")
    )
    assert html.count("<") == len(["p>", "/p>", "ul>", "li>", "/li>", "/ul>", "p>", "code>", "/code>", "/p>"])
