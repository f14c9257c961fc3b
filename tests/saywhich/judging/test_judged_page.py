"""The pages of a judgement and of a comparison, in Chromium as a reader opens them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from colour_judge import ColourJudge
from PIL import Image
from watched_pages import watch_pages

import saywhich
from saywhich.judging import judge_sources
from saywhich.judging.judge_sources import JudgeSource
from saywhich.judging.judged_page import write_judged_page

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 40), "blue": (40, 50, 190), "red and green": (180, 170, 30)}
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """Write a page of one caption file and a page of two, for sixteen photos in shades of four colours."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "photos").mkdir()
    captions, other, references = {}, {}, {}
    for number in range(16):
        name, colour = list(COLOURS.items())[number % 4]
        shade = tuple(min(255, part + 12 * (number // 4)) for part in colour)
        Image.new("RGB", (60, 40 + number), shade).save(folder / f"photos/{number}.png")
        captions[f"{number}.png"] = f"a {name} wall <b>" if number % 5 else "a wall in"
        other[f"{number}.png"] = f"a {name} house" if number % 3 else "blue"
        references[f"{number}.png"] = [f"the {name} wall", "a wall"]
    other["0.png"] = "a house"  # no colour, so that each judge has a note about each file
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        source = JudgeSource(lambda name: name.startswith("colours"), ColourJudge)
        patch.setattr(judge_sources, "JUDGES", (source, *judge_sources.JUDGES))
        options = {"references": references, "judges": ["colours", "colours2"], "hard": 4, "metrics": ["BLEU"]}
        write_judged_page(folder / "judged.html", saywhich.judge(captions, folder / "photos", **options))
        found = saywhich.compare([captions, other], folder / "photos", rewarded_by=["colours2"], **options)
        write_judged_page(folder / "compared.html", found.judgement, found)
    return {name: folder / f"{name}.html" for name in ("judged", "compared")}


def test_a_second_page_of_one_process_shows_photos_that_changed_since_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = JudgeSource(lambda name: name.startswith("colours"), ColourJudge)
    monkeypatch.setattr(judge_sources, "JUDGES", (source, *judge_sources.JUDGES))
    photos, images = tmp_path / "photos", []
    photos.mkdir()
    for colours in (("red", "green"), ("blue", "red and green")):
        for name, colour in zip("ab", colours, strict=True):
            Image.new("RGB", (60, 40), COLOURS[colour]).save(photos / f"{name}.png")
        captions = {f"{name}.png": f"a {colour} wall" for name, colour in zip("ab", colours, strict=True)}
        found = saywhich.judge(captions, photos, judges=["colours"], hard=2, metrics=["BLEU"])
        write_judged_page(tmp_path / "page.html", found)
        sources = re.findall('src="(data:[^"]+)"', (tmp_path / "page.html").read_text(encoding="utf-8"))
        images.append(set(sources))
    assert images[0]
    assert images[0].isdisjoint(images[1])


@pytest.fixture
def open_page(browser, pages):
    """Yield a function that opens a page; fail at console messages and at requests to other addresses."""
    with watch_pages(browser) as make_page:

        def open_by_name(name, **options):
            page = make_page(url := pages[name].as_uri(), **{"viewport": WIDE, **options})
            page.goto(url)
            return page

        yield open_by_name


def test_the_headline_has_the_number_with_its_interval(open_page):
    page = open_page("judged")
    line = page.locator(".finding").inner_text()
    assert line.startswith("colours ranks the right image first ")
    assert "% [" in line
    assert line.endswith(" %).")
    assert page.locator(".charts figure").count() == 2  # one per judge
    assert page.locator(".charts figure").first.locator("dt").all_inner_texts() == [
        "captions", "human", "a photo of a NOUN",
    ]  # fmt: skip


def test_examples_frame_the_right_photo_and_escape_captions(open_page):
    page = open_page("judged")
    assert page.locator("h2").all_inner_texts()[2:] == ["Hardest galleries", "Worst captions", "Best captions"]
    first = page.locator("article").first
    assert first.locator(".strip .right img").first.get_attribute("alt").startswith("the right image: ")
    assert page.locator(".examples .text b").count() == 0  # “<b>” in a caption is text
    assert "<b>" in page.locator("#examples3 .text").first.inner_text()


def test_a_comparison_shows_captions_side_by_side_with_new_words_marked(open_page):
    page = open_page("compared")
    line = page.locator(".finding").inner_text()
    assert line.startswith("captions 2 against captions 1: ")
    assert re.search(r" by colours; open: (about [\d,]+|millions of) images would decide it\.$", line)
    assert page.locator("#pair1 tbody tr").count() > 20
    lines = page.locator("#pair1 .soft").all_inner_texts()
    assert lines[0].startswith("colours and colours2 agree on the better caption of 100 %")
    assert lines[1].startswith("R@1 (hard) by the judges that rewarded the training: ")
    assert lines[1].endswith("whether the judges differ is open.")
    article = page.locator("article").first
    assert article.locator(".text b").all_inner_texts() == ["captions 1", "captions 2"]
    assert article.locator("mark").count() > 0


def test_many_notes_are_folded_behind_their_number(open_page):
    """Folded notes leave room for the first result on a phone's screen."""
    page = open_page("compared", viewport=PHONE)
    notes = page.locator("header details")
    assert notes.locator("summary").inner_text() == "4 notes about the inputs"
    assert not notes.locator("li").first.is_visible()
    notes.locator("summary").click()
    assert notes.locator("li").first.inner_text().startswith("captions of captions 1 mostly of words that are unknown")
    assert open_page("judged").locator("header .warning li").count() == 0


def test_the_page_is_read_by_keyboard(open_page):
    page = open_page("compared")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    labels = []
    for _ in range(12):
        page.keyboard.press("Tab")
        focus = page.locator(":focus")
        labels.append(focus.get_attribute("aria-label") or focus.evaluate("focus => focus.tagName"))
    assert {"A", "Table of differences 1", "Table of all scores", "SUMMARY"} <= set(labels)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("name", ["judged", "compared"])
def test_axe_finds_no_fault_and_no_element_is_wider_than_the_screen(open_page, name, screen, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = open_page(name, viewport=screen, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= screen["width"]
    assert [found["id"] for found in axe.Axe().run(page).response["violations"]] == []
