import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from pipeline.errors import UserError
from pipeline.reporting import ReportSettings, write_report

VOID = {"meta", "link", "img", "br", "hr", "input"}
SETTINGS = ReportSettings(images=3)


class Reader(HTMLParser):
    """Collects elements and text; fails where a tag is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def write(world, out, settings=SETTINGS):
    write_report(world.sweep, world.evaluations, world.prepared, world.images, out, settings)
    return (out / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def html(world, tmp_path):
    return write(world, tmp_path / "report")


def test_all_files_are_written_and_equal_inputs_give_equal_bytes(world, tmp_path):
    write(world, tmp_path / "one")
    write(world, tmp_path / "two")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["curve.csv", "curve.png", "gallery.png", "report.html", "table.md"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_the_place_of_the_files_is_not_in_the_page(world, html):
    assert str(world.root) not in html


def test_tags_are_balanced_and_ids_unique(html):
    page = Reader(html)
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids
    for link in page.all("a"):
        assert link["href"][1:] in ids


def test_nothing_is_fetched(html):
    page = Reader(html)
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "poster", "action", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, name, value)
    assert not re.search(r"@import|url\(|fetch\(|https?://", html)
    images = page.all("img")
    assert len(images) == 3
    assert all(image["src"].startswith("data:image/jpeg;base64,") for image in images)


def test_text_from_data_is_escaped(world, cells, control, tmp_path):
    evil = "<script>alert(1)</script>"
    for entry in cells:
        entry["signature"] = f"decode {evil}"
        entry["not_computed"] = {"SPICE": f"because {evil}"}
        entry["method"] = entry["method"].replace("luo", f"luo{evil}")
    world.write(cells, [])
    html = write(world, tmp_path / "report")
    page = Reader(html)
    assert len(page.all("script")) == 1
    assert not page.all("b")
    assert not page.all("i")
    assert "alert(1)" in "".join(page.texts)
    assert "&lt;b&gt;" in html  # the captions
    assert "scenes &lt;toy&gt;" in html  # the data set's name
    assert evil not in html


def test_the_page_holds_the_curves_the_tables_and_the_gallery(html):
    page = Reader(html)
    text = " ".join("".join(page.texts).split())
    charts = [attributes for attributes in page.all("svg") if attributes.get("aria-roledescription") == "chart"]
    assert len(charts) == 12  # CIDEr and three other metrics by three judges
    points = [attributes for attributes in page.all("g") if attributes.get("class") == "point"]
    assert len(points) == 9 * 12
    label = "psst_multinomial, λ 0.005, ρ 0.25, seeds 1 2, CIDEr 0.945±0.007, R@10 86.5±0.7, chosen on validation"
    assert any(point["aria-label"] == label for point in points)
    assert "0.912, 95% of that of mle" in text
    assert "SPICE was not computed: its parser's files are missing" in text
    assert text.count("Protocol: gallery test 40 | decode beam 2") == 4
    assert "human captions" in text
    assert "report.min_cider_share" in text
    assert "sweep/cells.json" in text
    assert "evaluation/mle/metrics.json" not in text  # names are short: the last two parts of the path
    assert "mle/metrics.json" in text


def test_tables_have_captions_and_scopes_and_images_have_descriptions(html):
    page = Reader(html)
    assert len(page.all("table")) == len(page.all("caption")) == 4 + 3 + 1
    assert all(heading.get("scope") in ("row", "col", "colgroup") for heading in page.all("th"))
    assert all(image["alt"].startswith("a <i>person</i> on image") for image in page.all("img"))
    assert page.all("html")[0]["lang"] == "en"
    assert all(region.get("tabindex") == "0" for region in page.all("div") if region.get("role") == "region")


def test_rows_of_every_table_have_equal_length(html):
    for table in re.findall(r"<table>.*?</table>", html, re.S):
        body = table.split("<tbody>")[1]
        assert len({row.count("<td") for row in body.split("</tr>")[:-1]}) == 1
        assert table.count("<colgroup") == 0 or sum(map(int, re.findall(r'colgroup span="(\d+)"', table))) == (
            body.split("</tr>")[0].count("<td") + 1
        )


def test_different_protocols_are_announced_on_the_page(world, cells, control, tmp_path):
    control["signature"] = "gallery test 99|decode beam 2|EOS in reward yes|df train"
    world.write(cells, [control])
    html = write(world, tmp_path / "report")
    assert html.count("Different protocols.") == 5  # the curve and four tables
    assert "they differ in: gallery test 99 / gallery test 40" in html


def test_bare_results_make_a_page_with_dashes(world, make_cell, tmp_path):
    bare = {"method": "luo", "settings": {"seed": 1}, "signature": "x", "val": {}, "test": {}, "not_computed": {}}
    world.write([bare], [])
    for folder in world.evaluations:
        (folder / "metrics.json").unlink()
    write_report(world.sweep, [], world.prepared, world.images, tmp_path / "report", SETTINGS)
    html = (tmp_path / "report" / "report.html").read_text()
    page = Reader(html)
    assert page.open == []
    results = re.search(r'<caption id="results-caption">.*?</table>', html, re.S).group()
    cells = re.findall(r"<td>(.*?)</td>", results)
    assert cells[:3] == ["–", "–", "1"]
    assert set(cells[3:]) == {"–"}
    assert "not measured" in "".join(page.texts)


def test_a_missing_manifest_is_named(world, tmp_path):
    (world.prepared / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest\.json: no such file"):
        write(world, tmp_path / "report")
    assert not (tmp_path / "report" / "report.html").exists()


def test_the_gallery_can_be_empty(world, tmp_path):
    html = write(world, tmp_path / "report", replace(SETTINGS, images=0))
    assert Reader(html).open == []
    assert "<img" not in html
