"""The pages of `saywhich caption` and `find` in Chromium, as a reader opens them on a screen and on a phone."""

from pathlib import Path

import pytest
from saywhich_world import paint
from watched_pages import watch_pages

from saywhich.captioning_model import Caption
from saywhich.contact_sheet import make_sheet_entry, write_sheet
from saywhich.search_page import write_page

SCREENS = {"wide": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """Write a contact sheet and a page of retrieved photos; return their files by name."""
    folder = tmp_path_factory.mktemp("pages")
    files = [paint(folder / f"{'a-long-name' * 9 * number}{number}.png", number, (40, 60)) for number in range(3)]
    captions = [
        Caption("a red boat", ("a red boat", "a boat"), 1, 3, 0.2),
        Caption("", ("", "no" * 60, "a " * 60), 2, 3, -0.1, unlike=True),
        Caption("a dog", ("a dog",)),
    ]
    write_sheet(folder / "sheet.html", [make_sheet_entry(*pair) for pair in zip(files, captions, strict=True)])
    write_page(folder / "found.html", "a dog", [(file, 0.5) for file in files])
    return {name: folder / f"{name}.html" for name in ("sheet", "found")}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", ["sheet", "found"])
def test_axe_finds_no_fault_and_no_element_is_wider_than_the_screen(browser, pages, name, screen, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    with watch_pages(browser) as make_page:
        page = make_page(url := pages[name].as_uri(), viewport=SCREENS[screen], color_scheme=scheme)
        page.goto(url)
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS[screen]["width"]
        assert page.locator("main img").evaluate_all(
            "all => all.length > 0 && all.every(each => each.naturalWidth > 0)"
        )
        assert [found["id"] for found in axe.Axe().run(page).response["violations"]] == []
