import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from pipeline.analysis.selection import ReportSettings
from pipeline.errors import UserError
from pipeline.report.report_page import write_report
from pipeline.report.report_parts import ReportParts
from pipeline.worlds.gallery_scenes import find_gallery_scenes, has_simulated_captions

VOID = {"meta", "link", "img", "br", "hr", "input"}
SETTINGS = ReportSettings(images=3)


class PageParser(HTMLParser):
    """Parser that collects elements and text, and fails at an end tag that does not close the last open element."""

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

    def find_all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


FULL = ReportSettings(images=4, frozen_speakers=("mle", "luo"))


def write_page(world, out, settings=SETTINGS, crossed=None, parts=None):
    write_report(
        world.sweep,
        world.evaluations,
        world.prepared,
        world.images,
        out,
        settings,
        inputs={"crossed": crossed},
        parts=parts,
    )
    return (out / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def html(plain_report):
    return (plain_report / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def full_html(full_report):
    return (full_report / "report.html").read_text(encoding="utf-8")


def find_section(html, name):
    return re.search(rf'<section id="{name}".*?</section>', html, re.S).group()


FILES = [
    "along.png",
    "comparison.csv",
    "curve.csv",
    "curve.png",
    "gallery.png",
    "pairs.png",
    "photos.txt",
    "report.html",
    "rho.csv",
    "table.md",
    "tables.md",
]


@pytest.mark.slow
def test_all_files_are_written_and_equal_inputs_give_equal_bytes(full_world, full_report, tmp_path):
    write_page(full_world, tmp_path, FULL, full_world.crossed)
    names = sorted(path.name for path in full_report.iterdir())
    assert names == sorted([*FILES, "rho.png"])
    for name in set(names) - {"photos.txt"}:  # photos.txt contains the path of the photos
        assert (tmp_path / name).read_bytes() == (full_report / name).read_bytes(), name


def test_a_page_without_caption_scores_and_adapted_listener(plain_report, html):
    assert sorted(path.name for path in plain_report.iterdir()) == [name for name in FILES if name != "pairs.png"]
    assert "No intervals for MLE" in html
    assert 'id="rho"' not in html
    assert 'id="crossed-caption"' not in html


@pytest.mark.slow
def test_there_is_no_cross_play_section_without_its_file(full_world, tmp_path):
    html = write_page(full_world, tmp_path / "report", FULL, tmp_path / "crossed.json")
    assert 'id="crossed-caption"' not in html
    assert "crossed.json" not in html


@pytest.mark.slow
def test_without_image_files_the_page_has_results_and_no_pictures(full_world, tmp_path):
    (tmp_path / "along.png").write_bytes(b"of an earlier report")
    write_report(full_world.sweep, full_world.evaluations, full_world.prepared, None, tmp_path, SETTINGS)
    html = (tmp_path / "report.html").read_text()
    assert "there are no image files (prepare.images is null)" in find_section(html, "gallery")
    assert "<img" not in html
    assert "PSST-Multinomial" in find_section(html, "results")
    assert (tmp_path / "gallery.png").stat().st_size > 0
    assert not (tmp_path / "along.png").exists()


def test_failures_are_reported_first(world, tmp_path):
    cells = json.loads((world.sweep / "cells.json").read_text())
    for cell in cells:
        cell["test"]["diversity"]["distinct_captions"] = 0.01
    (world.sweep / "cells.json").write_text(json.dumps(cells))
    html = write_page(world, tmp_path / "report")
    assert "hardly differ between images" in html[: html.index("<nav")]
    assert (tmp_path / "report" / "table.md").read_text().startswith("- **WARNING:** Captions of")


def test_the_page_shows_the_settings(full_html):
    found = dict(re.findall(r"<dt>report\.(\w+)</dt><dd>(.*?)</dd>", full_html))
    assert (found["frozen_speakers"], found["images"], found["cider_levels"]) == (
        "mle, luo",
        "4",
        "derived from the results",
    )


def test_the_page_has_no_path_of_this_machine(plain_report, html):
    assert str(plain_report.parent) not in html


@pytest.mark.parametrize("which", ["html", "full_html"])
def test_tags_are_balanced_and_ids_unique(which, request):
    page = PageParser(request.getfixturevalue(which))
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for reference in ("aria-labelledby", "aria-describedby"):
            for name in (attributes.get(reference) or "").split():
                assert name in ids
    for link in page.find_all("a"):
        assert link["href"][1:] in ids


def test_nothing_is_fetched(full_html):
    page = PageParser(full_html)
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "poster", "action", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, name, value)
    assert not re.search(r"@import|url\(|fetch\(|https?://", full_html)
    images = page.find_all("img")
    assert len(images) == 4 + 1 + 8  # the gallery, one along λ, and four pairs on the first screen
    assert all(image["src"].startswith("data:image/jpeg;base64,") for image in images)


def test_the_page_forbids_scripts_and_styles_other_than_its_own(full_html):
    page = PageParser(full_html)
    (policy,) = [
        meta["content"] for meta in page.find_all("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag in ("script", "style"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", full_html, re.S)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    # the policy also blocks handlers and styles in attributes
    assert not any(name.startswith("on") or name == "style" for _, found in page.elements for name in found)


def read_thumbnails(html):
    return json.loads(re.search(r'id="thumbnails">(.*?)</script>', html, re.S).group(1))


def test_every_retrieved_image_is_embedded_once(full_html):
    rows = {attributes["data-row"] for _, attributes in PageParser(full_html).elements if "data-row" in attributes}
    thumbnails = read_thumbnails(full_html)
    assert rows
    assert set(thumbnails) == rows
    assert all(full_html.count(found["src"]) == 1 for found in thumbnails.values())


@pytest.mark.slow
def test_data_cannot_end_its_script_element(world, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = world.prepared / "captions.parquet"
    texts = pq.read_table(path).to_pylist()
    markup = "</script><script>alert(1)</script><!--<script>"
    pq.write_table(pa.Table.from_pylist([{**row, "text": markup} for row in texts]), path)
    html = write_page(world, tmp_path / "report")
    assert len(PageParser(html).find_all("script")) == 2
    assert markup not in html
    assert {found["text"] for found in read_thumbnails(html).values()} == {markup}


def test_text_from_data_is_escaped(world, cells, control, tmp_path):
    markup = "<script>alert(1)</script>"
    for entry in cells:
        entry["signature"] = f"decode {markup}"
        entry["not_computed"] = {"SPICE": f"because {markup}"}
        entry["method"] = entry["method"].replace("luo", f"luo{markup}")
    world.write(cells, [])
    html = write_page(world, tmp_path / "report")
    page = PageParser(html)
    assert len(page.find_all("script")) == 2  # the page's own and the thumbnails
    assert not re.search(r"<b>\d", html)
    assert not page.find_all("i")
    assert "alert(1)" in "".join(page.texts)
    assert "&lt;b&gt;" in html  # the captions
    assert "scenes &lt;toy&gt;" in html  # the data set's name
    assert markup not in html


def find_charts(page):
    return [attributes for attributes in page.find_all("svg") if attributes.get("aria-roledescription") == "chart"]


def test_the_page_holds_the_curves_the_tables_and_the_gallery(html):
    page = PageParser(html)
    text = " ".join("".join(page.texts).split())
    assert len(find_charts(page)) == 2 + 12 + 1  # the large chart for two screens, four metrics by three judges, drift
    points = [attributes for attributes in page.find_all("g") if attributes.get("class") == "point"]
    assert len(points) == 9 * 15
    label = "PSST-Multinomial, λ 0.005, ρ 0.25, seeds 1 2, CIDEr 0.945±0.007, R@10 86.5±0.7, chosen on validation"
    assert sum(point["aria-label"] == label for point in points) == 1
    assert "0.912, 95% of the CIDEr of MLE" in text
    assert "SPICE was not computed: its parser's files are missing" in text
    assert "human captions" in text
    assert "report.min_cider_share" in text
    assert "sweep/cells.json" in text
    assert "evaluation/mle/metrics.json" not in text  # the page shows the last two parts of a path
    assert "mle/metrics.json" in text


def test_the_full_page_has_its_sections_in_order(full_html):
    page = PageParser(full_html)
    sections = [attributes["id"] for attributes in page.find_all("section")]
    assert sections == [
        "first",
        "gallery",
        "curve",
        "results",
        "equal",
        "rho",
        "judges",
        "captions",
        "along",
        "runs",
        "settings",
    ]
    assert [link["href"][1:] for link in page.find_all("a") if link["href"] != "#main"][: len(sections)] == sections
    # twice the large chart, four metrics by four judges, drift, ρ by two judges
    assert len(find_charts(page)) == 2 + 4 * 4 + 1 + 2
    ids = {attributes.get("id") for attributes in page.find_all("caption")}
    names = {
        "results",
        "reverse",
        "drift",
        "human",
        "crossed",
        "galleries",
        "faithfulness",
        "diversity",
        "runs",
        "reader",
    }
    assert {f"{name}-caption" for name in (*names, "rho-psst_multinomial")} <= ids
    assert sum(name.startswith("equal-cider") for name in ids if name) == 2
    assert "crossed/crossed.json" in find_section(full_html, "settings")


def test_the_page_without_scripts_shows_the_default_metric_and_all_pictures(full_html):
    page = PageParser(full_html)
    figures = [attributes for attributes in page.find_all("div") if "data-metric" in attributes]
    assert [(figure["data-metric"], "hidden" in figure) for figure in figures] == [
        ("CIDEr", False), ("BLEU-4", True), ("METEOR", True), ("ROUGE-L", True)
    ]  # fmt: skip
    articles = page.find_all("article")
    assert len(articles) == 4
    assert not any("hidden" in article for article in articles)


def test_a_stronger_colour_is_a_higher_recall(full_html):
    cells = re.findall(r'<td class="heat-(\d)">([\d.]+)', find_section(full_html, "judges"))
    assert len(cells) == 3 * 6 - 1
    by_value = sorted((float(value), int(shade)) for shade, value in cells)
    assert by_value[0] == (51.0, 0)  # the mean of 50 and 52
    assert by_value[-1] == (66.0, 8)
    assert [shade for _, shade in by_value] == sorted(shade for _, shade in by_value)


def test_only_the_tables_of_the_headline_of_digests_and_of_pictures_are_unfolded(full_html):
    unfolded = re.sub(r"<details>.*?</details>", "", full_html, flags=re.S)
    names = [caption["id"] for caption in PageParser(unfolded).find_all("caption") if "-caption" in caption["id"]]
    assert [name for name in names if not name.startswith(("picture-", "example-", "along-"))] == [
        "headline-table-caption",
        "digests-caption",
    ]


def test_a_note_occurs_once_in_the_comparison_and_the_protocol_once_on_the_page(full_html):
    assert find_section(full_html, "equal").count("Read from each method") == 1
    assert "Protocol: " not in full_html
    assert find_section(full_html, "settings").count("<dt>protocol</dt>") == 1


def test_the_first_screen_is_a_sentence_a_picture_and_a_chart_whose_lines_are_labelled(full_html):
    finding = re.search(r'<p class="finding">(.*?)</p>', full_html).group(1)
    assert full_html.index(finding) < full_html.index("<nav")
    assert re.match(r"With captions by [-\w. ]+, the independent judge ranks the right image among the first", finding)
    assert "with captions by MLE in " in finding
    assert "95 % interval " in finding
    first = find_section(full_html, "first")
    assert first.count("<img") == 8
    assert first.count("</b> for both: ") == 4
    assert "MLE gives 32 of 32 test images a caption that another image also has." in first
    chart = first[first.index("<svg") :]
    assert all(re.search(rf">{name}</text>", chart) for name in ("MLE", "ST-Multinomial", "Luo et al."))
    assert re.findall(r'<th scope="col".*?>(.*?)</th>', first)[-4:] == [
        "Method",
        "CIDEr",
        "R@10, own listener",
        "R@10, independent judge",
    ]


@pytest.mark.slow
def test_true_and_false_words_of_drawn_scenes_are_marked_and_explained(full_world, tmp_path, one_scene, full_html):
    assert "<u>" not in full_html
    assert "<s>" not in full_html
    one_scene(full_world)
    html = write_page(
        full_world,
        tmp_path / "report",
        FULL,
        parts=ReportParts(scenes=find_gallery_scenes, simulated=has_simulated_captions),
    )
    marked = "<u>two</u> <s>red</s> <u>dogs</u> and <s>a</s> <s>cat</s> on a <u>farm</u>"
    for name in ("first", "gallery", "along"):
        assert marked in find_section(html, name)
    assert "<u>True</u> and <s>false</s> claims" in find_section(html, "first")
    assert "A simulated annotator:" in find_section(html, "gallery")
    assert "A person:" in find_section(full_html, "gallery")
    assert "A person:" not in html
    assert "similarity to captions of simulated annotators" in find_section(html, "first")
    assert "stands for these simulated annotators" in find_section(html, "first")
    assert "<u>underlined</u> words make true claims, <s>struck-through</s> words" in find_section(html, "gallery")
    assert PageParser(html).open == []


def test_on_a_phone_a_caption_is_a_block_and_nothing_is_wider_than_the_screen(full_html):
    style = re.findall(r"<style>(.*?)</style>", full_html, re.S)[0]
    narrow = style.partition("@media (max-width: 40rem) { /*")[2].partition("@media print")[0]
    assert ".captions tbody th, .captions td { display: block; }" in narrow
    assert ".captions td.retrieved { min-width: 0; width: auto;" in narrow
    rest = re.sub(r"@media \([^)]*\)|\.captions td\.retrieved { .*? }", "", style)
    widths = re.findall(r"[^-]\b(?:min-)?width: ([\d.]+)rem", rest)
    assert widths
    assert max(map(float, widths)) * 16 <= 390 - 2 * 16  # pixels between the page's margins
    ranks = [cell for cell in PageParser(full_html).find_all("td") if "rank" in (cell.get("class") or "").split()]
    assert ranks
    assert all(cell["data-by"] for cell in ranks)  # data-by names the listener where the table's head is hidden


def compute_luminance(colour):
    """Return the relative luminance of #rrggbb (WCAG 2)."""
    values = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    values = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * values[0] + 0.7152 * values[1] + 0.0722 * values[2]


@pytest.mark.parametrize("scheme", [0, 1])
def test_true_and_false_words_are_readable_on_every_background_in_light_and_dark(full_html, scheme):
    style = re.findall(r"<style>(.*?)</style>", full_html, re.S)[0]
    colours = dict(re.findall(r"--(\w+): (#\w{6})", re.findall(r":root \{(.*?)\}", style, re.S)[scheme]))
    for ink in ("ink", "right", "wrong"):
        for background in ("paper", "wash", "mark"):  # the page, a row under the mouse, a changed word
            low, high = sorted(compute_luminance(colours[name]) for name in (ink, background))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, background)


def test_tables_have_captions_and_scopes_and_images_have_descriptions(full_html):
    page = PageParser(full_html)
    assert len(page.find_all("table")) == len(page.find_all("caption"))
    assert all(heading.get("scope") in ("row", "col", "colgroup") for heading in page.find_all("th"))
    assert all(image["alt"].startswith("a <i>person</i> on image") for image in page.find_all("img"))
    assert page.find_all("html")[0]["lang"] == "en"
    regions = [division for division in page.find_all("div") if division.get("role") == "region"]
    assert regions
    assert all(region.get("tabindex") == "0" for region in regions)
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))
    for chart in find_charts(page):
        assert chart["aria-labelledby"]
        assert chart["aria-describedby"]


def test_the_description_of_the_drift_chart_names_the_table_of_drift(full_html):
    description = re.search(r'<desc id="drift-chart-1-desc">(.*?)</desc>', full_html)[1]
    assert "the table Drift of the listener: " in description


def test_rows_of_every_table_have_equal_length(full_html):
    tables = re.findall(r"<table.*?</table>", full_html, re.S)
    assert len(tables) > 5
    for table in tables:
        body = table.split("<tbody>")[1]
        assert len({row.count("<td") for row in body.split("</tr>")[:-1]}) == 1
        assert table.count("<colgroup") == 0 or sum(map(int, re.findall(r'colgroup span="(\d+)"', table))) == (
            body.split("</tr>")[0].count("<td") + 1
        )


@pytest.mark.slow
def test_different_protocols_are_announced_on_the_page(world, cells, control, tmp_path):
    control["signature"] = "gallery test 99|decode beam 2|EOS in reward yes|df train"
    world.write(cells, [control])
    html = write_page(world, tmp_path / "report")
    for name in ("curve", "results", "equal", "judges", "captions", "runs"):
        assert "Different protocols." in find_section(html, name), name
    assert "they differ in: gallery test 99 / gallery test 40" in html


def test_bare_results_make_a_page_with_dashes(world, make_cell, tmp_path):
    bare = {"method": "luo", "cell": "only", "settings": {"seed": 1}, "signature": "x", "val": {}, "test": {}}
    world.write([bare], [])
    for folder in world.evaluations:
        (folder / "metrics.json").unlink()
    write_report(world.sweep, [], world.prepared, world.images, tmp_path / "report", SETTINGS)
    html = (tmp_path / "report" / "report.html").read_text()
    page = PageParser(html)
    assert page.open == []
    cells = re.findall(r"<td>(.*?)</td>", find_section(html, "results").split("<details>")[1])
    assert cells[:3] == ["–", "–", "1"]
    assert set(cells[3:]) == {"–"}
    assert "not measured" in "".join(page.texts)


def test_a_missing_manifest_is_named(world, tmp_path):
    (world.prepared / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest\.json: no such file"):
        write_page(world, tmp_path / "report")
    assert not (tmp_path / "report" / "report.html").exists()


@pytest.mark.slow
def test_the_gallery_can_be_empty(world, tmp_path):
    html = write_page(world, tmp_path / "report", replace(SETTINGS, images=0))
    assert PageParser(html).open == []
    assert "<img" not in html
