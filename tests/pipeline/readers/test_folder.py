import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipeline.data.corpus import check_images, tokenise
from pipeline.errors import UserError
from pipeline.readers import read_corpus, read_folder, table_files
from pipeline.readers.checks import check_corpus
from pipeline.readers.splits import draw_split

ROWS = [
    ("001.png", "A cat, asleep.", "train"),
    ("trip/sea.jpg", 'The "blue"\n sea', "val"),
    ("001.png", "The cat sleeps", "train"),
    ("trip/day 2/rose.jpg", "NA", "test"),
]
WHOLE = [*ROWS, ("a.png", "one", "train"), ("b.png", "two", "val"), ("c.png", "three", "test")]
SHARES = {"val": 0.2, "test": 0.2, "seed": 0}


@pytest.fixture
def folder(tmp_path):
    for i, file in enumerate(sorted({row[0] for row in WHOLE})):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (5 + i, 7)).save(tmp_path / file)
    return tmp_path


def format_csv(rows, header="file,caption,split"):
    quoted = [",".join('"' + value.replace('"', '""') + '"' for value in row) for row in rows]
    return "\n".join([header, *quoted]) + "\n"


def write_csv(path):
    path.write_text("\ufeff" + format_csv(WHOLE).replace("\n", "\r\n"), encoding="utf-8")


def write_json_lines(path):
    lines = [json.dumps({"file": f, "caption": c, "split": s, "by": {"name": "me"}}) for f, c, s in WHOLE]
    path.write_text("\n\n".join(lines))


def write_parquet(path):
    columns = dict(zip(("file", "caption", "split"), zip(*WHOLE, strict=True), strict=True))
    columns["split"] = pa.array(columns["split"]).dictionary_encode()
    pq.write_table(pa.table(columns | {"stars": range(len(WHOLE))}), path)


def test_texts_of_a_parquet_file_are_counted_before_they_are_unpacked(tmp_path, monkeypatch):
    pq.write_table(pa.table({"file": ["a.png"] * 3000, "caption": ["a cat " * 1000] * 3000}), tmp_path / "c.parquet")
    assert (tmp_path / "c.parquet").stat().st_size < 20_000
    monkeypatch.setattr(table_files, "MAX_BYTES", 3000 * 6005)  # unpacked columns have bytes of offsets, too
    rows = list(table_files.read_texts(tmp_path / "c.parquet", ("file", "caption"), ("file",)))
    assert len(rows) == 3000
    assert rows[-1][1] == {"file": "a.png", "caption": ("a cat " * 1000).strip()}
    monkeypatch.setattr(table_files, "MAX_BYTES", 3000 * 6005 - 1)
    with pytest.raises(UserError, match=r"c.parquet: expected at most 18,014,999 bytes of texts"):
        list(table_files.read_texts(tmp_path / "c.parquet", ("file", "caption"), ("file",)))
    monkeypatch.setattr(table_files, "MAX_ROWS", 2999)
    with pytest.raises(UserError, match=r"c.parquet: expected at most 2,999 rows, got 3,000"):
        list(table_files.read_texts(tmp_path / "c.parquet", ("file",), ("file",)))


@pytest.mark.parametrize(
    ("name", "write"), [("c.csv", write_csv), ("c.jsonl", write_json_lines), ("c.parquet", write_parquet)]
)
def test_tables_of_every_kind_are_read(folder, name, write):
    write(folder / name)
    corpus = check_corpus(read_folder(folder / name, folder), folder)
    assert [(image.id, image.file, image.split) for image in corpus.images[:3]] == [
        ("001.png", "001.png", "train"),
        ("trip/sea.jpg", "trip/sea.jpg", "val"),
        ("trip/day 2/rose.jpg", "trip/day 2/rose.jpg", "test"),
    ]
    texts = [[caption.text for caption in image.captions] for image in corpus.images[:3]]
    assert texts == [["A cat, asleep.", "The cat sleeps"], ['The "blue" sea'], ["NA"]]
    assert corpus.images[0].captions[0].words == ("a", "cat", "asleep")
    # a column of splits takes precedence over shares
    assert read_corpus("mine", "folder", folder, name, folder, shares=SHARES).images == corpus.images


def test_splits_are_random_without_a_column_and_independent_of_order_and_other_images(tmp_path):
    names = [f"{i}.png" for i in range(40)]
    for name in names:
        Image.new("L", (3, 3)).save(tmp_path / name)

    def read_splits(some):
        (tmp_path / "c.csv").write_text(format_csv([(name, f"photo {name}") for name in some], "file,caption"))
        return {
            image.file: image.split
            for image in check_corpus(read_folder(tmp_path / "c.csv", tmp_path, SHARES), tmp_path).images
        }

    whole = read_splits(names)
    assert whole == {name: draw_split(name, 0.2, 0.2, 0) for name in names}
    assert read_splits(names[::-1]) == whole
    assert read_splits(names[:30]) == {name: whole[name] for name in names[:30]}


def test_random_splits_that_are_too_small_name_a_seed_that_suffices(tmp_path):
    names = [f"{i}.png" for i in range(7)]  # the first seed with an image in each split does not suffice
    for name in names:
        Image.new("L", (3, 3)).save(tmp_path / name)
    (tmp_path / "c.csv").write_text(format_csv([(name, "it") for name in names], "file,caption"))

    def count_smallest_split(seed):
        drawn = [draw_split(name, 0.2, 0.2, seed) for name in names]
        return min(drawn.count(split) for split in ("train", "val", "test"))

    for small in (next(seed for seed in range(100) if count_smallest_split(seed) == count) for count in (0, 1)):
        with pytest.raises(
            UserError, match=r"fewer than two of 7 images in \w+, .* with seed: \d+ each split has"
        ) as error:
            check_corpus(read_folder(tmp_path / "c.csv", tmp_path, SHARES | {"seed": small}), tmp_path)
        seed = int(str(error.value).split("seed: ")[1].split()[0])
        assert count_smallest_split(seed) >= 2
        counts = check_corpus(read_folder(tmp_path / "c.csv", tmp_path, SHARES | {"seed": seed}), tmp_path).counts()
        assert min(counts.values()) == count_smallest_split(seed)


def test_a_column_that_leaves_a_split_too_small_is_reported(folder):
    Image.new("L", (3, 3)).save(folder / "d.png")
    (folder / "c.csv").write_text(format_csv([*WHOLE[:-1], ("d.png", "four", "train")]))
    with pytest.raises(UserError, match=r"c.csv: fewer than two of 6 images are in test; each split needs two"):
        check_corpus(read_folder(folder / "c.csv", folder), folder)


GOOD = format_csv(ROWS)
MISTAKES = {
    "no column": (
        "c.csv",
        GOOD.replace("caption", "text", 1),
        r'c.csv, row 1: a column caption is needed; there are "f',
    ),
    "two columns": ("c.csv", GOOD.replace("split", "file", 1), r"c.csv, row 1: there are two columns file"),
    "empty caption": ("c.csv", GOOD + "001.png, ,train\n", 'c.csv, row 6: the caption of "001.png" is empty'),
    "no words": ("c.csv", GOOD + "001.png,?!,train\n", r'c.csv, row 6: the caption is empty \("\?!"\)'),
    "no file": ("c.csv", GOOD + ",a cat,train\n", "c.csv, row 6: the file is empty"),
    "above": (
        "c.csv",
        GOOD + "trip/../../x.png,a cat,val\n",
        r'c.csv, row 6: the file "trip/../../x.png" lies outside',
    ),
    "absolute": ("c.csv", GOOD + "/x.png,a cat,val\n", r'c.csv, row 6: the file "/x.png" lies outside'),
    "of windows": ("c.csv", GOOD + "C:\\x.png,a cat,val\n", r"c.csv, row 6: the file .* lies outside"),
    "unknown split": ("c.csv", GOOD + "./001.png,my cat,dev\n", r'c.csv, row 6: the split "dev" is unknown'),
    "two splits": (
        "c.csv",
        GOOD + "./001.png,my cat,val\n",
        "row 6: 001.png is in the split val here, and in train at row 2",
    ),
    "a repeated caption": (
        "c.csv",
        GOOD + "001.png,A cat,train\n001.png,A  cat,train\n",
        "row 7: .* same caption at row 6",
    ),
    "missing": (
        "c.csv",
        GOOD + "trip/x.png,a cat,val\n",
        r'c.csv, row 6: the image "trip/x.png" is missing in /.*; put it there',
    ),
    "long name": ("c.csv", GOOD + '"' + 300 * "x" + '\n",a cat,val\n', r"c.csv, row 6: the image .* is missing in"),
    "a comma": (
        "c.csv",
        GOOD + "001.png,a cat, a dog,val\n",
        r"c.csv, row 6: 4 values for 3 columns \(\"001.png,a cat",
    ),
    "an open quote": ("c.csv", GOOD + '001.png,"a cat,val\n', "c.csv, row [67]: .*double quote"),
    "no rows": ("c.csv", "file,caption\n", "c.csv: the table has no rows"),
    "no text": ("c.csv", "", "c.csv: not a CSV table"),
    "latin-1": (
        "c.csv",
        GOOD.encode() + b"001.png,caf\xe9,train\n",
        "c.csv, line 7: the file cannot be read: not UTF-8",
    ),
    "no split": (
        "c.csv",
        format_csv([row[:2] for row in WHOLE], "file,caption"),
        "row 1: there is no column split; add one",
    ),
    "a number": (
        "c.jsonl",
        '{"file": "001.png", "caption": "a"}\n{"file": 1}',
        r'c.jsonl, row 2: the caption of "1" is empty; write one$',
    ),
    "no JSON": ("c.jsonl", '{"file": "001.png"\n', "c.jsonl.* JSON"),
    "no object": (  # pyarrow's reader of JSON Lines ends the process here
        "c.jsonl",
        "null\n",
        "c.jsonl, row 1: expected one JSON object of texts, found null",
    ),
    "a list": ("c.jsonl", '{"file": ["001.png"]}\n', r'c.jsonl, row 1: the file is \["001.png"\], and a text is'),
    "no key": (
        "c.jsonl",
        '{"file": "001.png", "text": "a"}\n',
        r'c.jsonl, row 1: a column caption is needed; there are "f',
    ),
    "a misspelt key": (
        "c.jsonl",
        '{"file": "001.png", "captoin": "a", "caption": null}\n',
        r'c.jsonl, row 1: a column caption is needed; there are "file", "captoin"; rename or add a column$',
    ),
    "no lines": ("c.jsonl", "\n", "c.jsonl: the table has no rows; add one or more$"),
    "a row without a key": (
        "c.jsonl",
        '{"file": "001.png", "caption": "a"}\n{"file": "001.png"}\n',
        'row 2: the caption of "001.png" is empty',
    ),
    "no Parquet": ("c.parquet", "file,caption", "c.parquet: not a Parquet file"),
    "no table": ("c.txt", "", r"c.txt: expected a table whose name ends in .csv, .tsv, .jsonl, .parquet"),
    "a spreadsheet": ("c.xlsx", "", "c.xlsx: a spreadsheet; save it as “CSV UTF-8” and name that file"),
    "one photo": ("c.csv", "file,caption\n001.png,a cat\n", r"c.csv: the table has captions of 1 photo; 6 are needed"),
    "another extension": (
        "c.csv",
        GOOD + "A.JPG,one,train\n",
        r'row 6: the image "A.JPG" is missing in .*; "a.png" exists',
    ),
    "backslashes": (
        "c.csv",
        GOOD + r"trip\sea.jpg,blue,val" + "\n",
        r"row 6: the image .* is missing in .*; trip/sea.jpg exists: write / in place of \\",
    ),
    "semicolons in a caption": (
        "c.csv",
        "file;caption\n001.png;a cat; a dog\n",
        r"c.csv, row 2: 3 values for 2 columns .*; put a caption with semicolons in double quotes",
    ),
    "words without blanks": (
        "c.csv",
        GOOD + "001.png,一只猫在厨房的椅子上睡觉,train\n",
        "c.csv, row 6: the caption has no blanks between its words",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_table_is_reported_in_one_line_with_file_and_row(folder, name):
    file, text, message = MISTAKES[name]
    (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message) as error:
        check_corpus(read_folder(folder / file, folder), folder)
    assert str(error.value).startswith(str(folder / file))
    assert "\n" not in error.value.args[0]


def test_a_quote_inside_an_unquoted_caption_is_kept(folder):
    (folder / "c.csv").write_text(GOOD + '001.png,a 5" pipe,train\n002.png,"a ""big"" ship",train\n')
    captions = [texts["caption"] for _, texts in table_files.read_rows(folder / "c.csv")]
    assert captions[-2:] == ['a 5" pipe', 'a "big" ship']


def test_a_missing_table_a_missing_column_and_values_other_than_texts_are_reported(folder):
    with pytest.raises(UserError, match=r"none.csv: the table is missing"):
        check_corpus(read_folder(folder / "none.csv", folder), folder)
    pq.write_table(pa.table({"file": ["001.png"], "captoin": ["a cat"]}), folder / "c.parquet")
    with pytest.raises(
        UserError, match=r'c.parquet: a column caption is needed; there are "file", "captoin"; rename or'
    ):
        check_corpus(read_folder(folder / "c.parquet", folder), folder)
    pq.write_table(pa.table({"file": ["001.png"], "caption": [["a", "cat"]]}), folder / "c.parquet")
    with pytest.raises(UserError, match=r"c.parquet: the column caption must hold texts, not list"):
        check_corpus(read_folder(folder / "c.parquet", folder), folder)


@pytest.mark.parametrize(("name", "separator"), [("c.csv", ";"), ("c.csv", "\t"), ("c.tsv", "\t")])
def test_semicolons_and_tabs_separate_columns_too(folder, name, separator):
    lines = [separator.join(("file", "caption", "split")), *(separator.join(row) for row in WHOLE)]
    (folder / name).write_text("\n".join(lines).replace('The "blue"\n sea', "The blue sea, calm"))
    corpus = read_folder(folder / name, folder)
    assert [image.split for image in corpus.images[:2]] == ["train", "val"]
    assert corpus.images[1].captions[0].text == "The blue sea, calm"


def test_a_table_under_another_name_is_named(folder):
    (folder / "captions.xlsx").touch()
    with pytest.raises(UserError, match=r"captions.csv: the table is missing; there is captions.xlsx: save it as"):
        read_folder(folder / "captions.csv", folder)
    (folder / "captions.jsonl").touch()
    with pytest.raises(UserError, match=r"captions.csv: the table is missing; there is captions.jsonl$"):
        read_folder(folder / "captions.csv", folder)


def test_photos_without_a_row_are_reported(folder, capsys):
    (folder / "c.csv").write_text(format_csv(WHOLE))
    read_folder(folder / "c.csv", folder)
    assert capsys.readouterr().err == ""
    for file in ("trip/z.JPG", "a.jpeg"):
        Image.new("L", (3, 3)).save(folder / file)
    (folder / "album.jpg").mkdir()  # a folder is not a photo
    read_folder(folder / "c.csv", folder)
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert f"2 of the photos in {folder} have no row, such as a.jpeg" in printed


def test_the_warning_of_photos_without_a_row_is_one_line_without_control_characters(folder, capsys):
    (folder / "c.csv").write_text(format_csv(WHOLE))
    Image.new("L", (3, 3)).save(folder / "a\n\x1b[31m.png")
    read_folder(folder / "c.csv", folder)
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "a\\n\\x1b[31m.png; they are" in printed


def test_a_heic_photo_with_the_extension_of_a_png_is_reported(folder):
    (folder / "c.csv").write_text(format_csv(WHOLE))
    (folder / "b.png").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    with pytest.raises(UserError, match=r"b.png: a HEIC photo, which cannot be read here; convert it to JPEG"):
        check_corpus(read_folder(folder / "c.csv", folder), folder)


def test_words_with_combining_marks_are_not_split():
    assert tokenise("बिल्ली, कुर्सी पर।") == ("बिल्ली", "कुर्सी", "पर")
    assert tokenise("Cafe\u0301 l’eau") == ("café", "l’eau")
    assert tokenise("a sunny day ☀\ufe0f and ❤\ufe0f") == ("a", "sunny", "day", "and"), "an emoji's mark is no word"


def test_a_folder_named_as_an_image_is_no_image(tmp_path):
    (tmp_path / "a.jpg").mkdir()
    with pytest.raises(UserError, match=r"a\.jpg: the image cannot be decoded"):
        check_images(tmp_path, ["a.jpg"])


def test_the_share_of_missing_images_is_a_share_of_their_number(tmp_path):
    """0.29 · 100 is less than 29 in floating point."""
    for n in range(71):
        Image.new("RGB", (2, 2)).save(tmp_path / f"{n}.png")
    names = [f"{n}.png" for n in range(100)]
    assert check_images(tmp_path, names, missing=0.29) == names[71:]
    with pytest.raises(UserError, match=r"with it, 29 of 100 images are left out, more than"):
        check_images(tmp_path, names, missing=0.28)
