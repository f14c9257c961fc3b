"""The report in Chromium without a window, opened as a file."""

import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from watched_pages import watch_pages

from pipeline.analysis.selection import ReportSettings
from pipeline.report.report_page import write_report

pytestmark = pytest.mark.slow
SETTINGS = ReportSettings(images=4, frozen_speakers=("mle", "luo"))
WIDE, NARROW, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 760}, {"width": 390, "height": 844}


@pytest.fixture
def report(full_report):
    return full_report / "report.html"


@pytest.fixture
def open_page(browser, report):
    """Yield a function that opens the report; fail at the end for console messages, errors and other requests."""
    with watch_pages(browser) as make_page:

        def open_file(file=report, **options):
            page = make_page(file.as_uri(), **{"viewport": WIDE, **options})
            page.goto(file.as_uri())
            return page

        yield open_file


@pytest.fixture
def page(open_page):
    return open_page()


def read_captions(page):
    """Return the visible captions of the gallery."""
    return page.locator("article:visible tbody tr:visible td.text").all_inner_texts()


@pytest.mark.parametrize("content", ['<img src="file:///nowhere.png">', '<script>throw new Error("thrown")</script>'])
def test_watch_pages_fails_for_requests_and_errors(browser, tmp_path, content):
    file = tmp_path / "other.html"
    file.write_text(content)
    with pytest.raises(AssertionError), watch_pages(browser) as make_page:
        make_page(file.as_uri()).goto(file.as_uri())


def test_hovering_shows_method_lambda_seeds_and_values(page):
    panel = page.locator("#curve .panel:visible").first
    marker = panel.locator('.point[aria-label^="Luo et al., λ 0.8"] .reach')
    marker.hover(force=True)
    text = panel.locator(".readout").inner_text()
    assert re.match(r"Luo et al\., λ 0\.8, seeds 1 2, CIDEr 0\.9\d\d±0\.\d+, R@10 [\d.]+±[\d.]+", text)


@pytest.mark.parametrize("screen", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_first_screen_holds_the_sentence_the_chart_and_the_picture(open_page, screen):
    page = open_page(viewport=screen)
    (chart,) = page.locator("#first .large svg[aria-roledescription]:visible").all()
    for whole in (page.locator(".finding"), chart, page.locator(".pairs img").first):
        box = whole.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= screen["width"]
        assert box["y"] + box["height"] <= screen["height"]


def test_a_chart_is_read_by_keyboard(page):
    panel = page.locator("#curve .panel:visible").first
    panel.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    first = panel.locator(".readout").inner_text()
    assert first.startswith("MLE, seed 1, CIDEr")
    page.keyboard.press("ArrowRight")
    second = panel.locator(".readout").inner_text()
    assert second.startswith("MLE (frozen)")
    page.keyboard.press("ArrowLeft")
    assert panel.locator(".readout").inner_text() == first
    page.keyboard.press("ArrowLeft")  # from the first point to the last
    assert panel.locator(".readout").inner_text().startswith("Luo et al. (frozen)")


def test_the_metric_is_switched(page):
    def read_titles():
        titles = page.locator("#curve svg[aria-roledescription]:visible title").evaluate_all(
            "titles => titles.filter(t => t.id).map(t => t.textContent)"
        )
        assert len(titles) == 4
        return titles

    assert all(title.endswith("against CIDEr") for title in read_titles())
    page.get_by_role("radio", name="METEOR").check()
    assert all(title.endswith("against METEOR") for title in read_titles())
    page.keyboard.press("ArrowRight")
    assert all(title.endswith("against ROUGE-L") for title in read_titles())


def test_the_judge_is_switched_and_kept_when_the_metric_changes(page):
    panels = page.locator("#curve .panel:visible")
    assert panels.count() == 4
    page.get_by_role("radio", name="Adapted listener").check()
    assert panels.locator("h3").all_inner_texts() == ["Adapted listener"]
    page.get_by_role("radio", name="BLEU-4").check()
    assert panels.locator("h3").all_inner_texts() == ["Adapted listener"]
    page.get_by_role("radio", name="all, side by side").check()
    assert panels.count() == 4


def test_a_line_is_hidden_by_its_name_and_left_out_by_the_keyboard(page):
    button = page.locator("#curve .legend button", has_text=re.compile(r"^\s*MLE$"))
    points = page.locator('#curve .panel:visible .point[aria-label^="MLE,"]:visible')
    assert points.count() == 4
    button.focus()
    page.keyboard.press("Space")
    assert button.get_attribute("aria-pressed") == "false"
    assert points.count() == 0
    panel = page.locator("#curve .panel:visible").first
    panel.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    assert panel.locator(".readout").inner_text().startswith("MLE (frozen)")
    button.click()
    assert points.count() == 4


def test_an_image_is_picked_by_mouse_and_by_keyboard(page):
    assert page.locator("article:visible").count() == 1
    first = read_captions(page)
    page.locator(".picker label").nth(2).click()
    third = read_captions(page)
    assert page.locator("article:visible").count() == 1
    assert len(third) == len(first)
    assert not set(first) & set(third)
    page.keyboard.press("ArrowRight")
    fourth = read_captions(page)
    assert not set(fourth) & set(third)
    page.keyboard.press("ArrowRight")  # from the last image to the first
    assert read_captions(page) == first


def test_a_picked_image_is_announced(page):
    status = page.get_by_role("status")
    assert status.inner_text() == ""
    page.locator(".picker input").nth(1).check()
    name = page.locator("article:visible h3").inner_text()
    assert status.inner_text().startswith(f"{name}, a <i>person</i> on image")
    assert status.inner_text().endswith(f": {len(read_captions(page))} captions below.")


def test_a_view_shows_some_settings_and_stays_for_the_next_image(page):
    page.get_by_role("radio", name="every λ").check()
    every = read_captions(page)
    page.get_by_role("radio", name="chosen on validation").check()
    chosen = read_captions(page)
    assert len(chosen) == len(set(page.locator("#first table").last.locator("tbody th").all_inner_texts())) == 7
    assert set(chosen) < set(every)
    assert page.locator("p.view:visible").all_inner_texts() == [
        "One setting per method: the setting chosen on validation."
    ]
    page.locator(".picker label").nth(1).click()
    assert len(read_captions(page)) == 7


def test_retrieved_images_are_shown_and_the_right_one_is_described_as_such(page):
    rows = page.locator("article:visible tbody tr:visible")
    ranks = [int(cells[1]) for cells in (row.locator("td").all_inner_texts() for row in rows.all())]
    assert any(rank > 5 for rank in ranks)
    for row, rank in zip(rows.all(), ranks, strict=True):
        images = row.locator(".retrieval").first.locator("img")
        assert images.count() == 5
        assert all(images.evaluate_all("all => all.map(i => i.complete && i.naturalWidth > 0)"))
        right = [alt.startswith("the right image: ") for alt in images.evaluate_all("all => all.map(i => i.alt)")]
        assert right == [n == rank - 1 for n in range(5)]


def test_every_image_has_a_description_and_every_control_a_name(page):
    assert page.locator("img:not([alt])").count() == 0
    missing = page.evaluate(
        """() => [...document.querySelectorAll("img")].filter(i => i.alt === "" && !i.closest(".picker")).length"""
    )
    assert missing == 0
    names = page.locator("input, button, summary, a").evaluate_all(
        "all => all.map(c => c.getAttribute('aria-label') || (c.closest('label') ?? c).textContent.trim())"
    )
    assert names
    assert all(names)


def test_tab_reaches_every_control_and_outlines_it(page):
    """A group of radio buttons is one tab stop. The tests above press its arrow keys."""
    expected = page.evaluate(
        """() => {
          const all = [...document.querySelectorAll("a, button, summary, [tabindex='0'], input:checked")];
          return all.map((c, n) => (c.dataset.stop = n, c)).filter(c => c.checkVisibility()).map(c => c.dataset.stop);
        }"""
    )
    assert expected
    reached, without_outline = [], []
    for _ in range(len(expected) + 1):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => {
              const control = document.activeElement;
              const outlined = control.matches("input") ? control.nextElementSibling : control;
              const style = getComputedStyle(outlined).outlineStyle;
              return [control.dataset.stop ?? null, style, control.outerHTML.slice(0, 80)];
            }"""
        )
        reached.append(found[0])
        if found[0] is not None and found[1] == "none":
            without_outline.append(found[2])
    assert set(expected) <= set(reached)
    assert without_outline == []


def test_the_skip_link_leads_to_the_content(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window_scrolls_tables_and_not_the_page(open_page, scheme):
    page = open_page(viewport=NARROW, color_scheme=scheme)
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    boxes = page.locator(".scroll:visible").evaluate_all("all => all.map(b => [b.scrollWidth, b.clientWidth])")
    assert any(inside > outside for inside, outside in boxes)
    assert all(outside <= NARROW["width"] for _, outside in boxes)
    assert page.locator(".panel:visible").evaluate_all("all => Math.max(...all.map(p => p.clientWidth))") <= 360


def test_on_a_phone_ranks_and_thumbnails_are_within_the_screen(open_page):
    page = open_page(viewport=PHONE)
    for cell in page.locator("#first .retrieval:visible, article:visible .captions td:visible").all():
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert page.locator("article:visible .retrieval img").count() > 0
    within = page.locator(".captions:visible").evaluate_all("all => all.map(t => t.parentElement.scrollWidth)")
    assert max(within) <= 390


CONTRAST = """() => {
  const rgba = (text) => {
    const numbers = text.match(/[\\d.]+/g).map(Number);
    const scale = text.startsWith("color(srgb") ? 255 : 1;
    return [...numbers.slice(0, 3).map(v => v * scale), numbers[3] ?? 1];
  };
  const over = (top, below) => [0, 1, 2].map(n => top[n] * top[3] + below[n] * (1 - top[3]));
  const light = (colour) => {
    const [r, g, b] = colour.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.unshift(rgba(getComputedStyle(e).backgroundColor));
    return layers.reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, title, desc")) continue;
    const style = getComputedStyle(element), ground = behind(element);
    const ink = over(rgba(element.closest("svg") ? style.fill : style.color), ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    found.push([(a + .05) / (b + .05), walker.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_a_contrast_ratio_of_at_least_4_5(open_page, scheme):
    page = open_page(color_scheme=scheme)
    found = page.evaluate(CONTRAST)
    assert len(found) > 400
    assert [(round(ratio, 2), text) for ratio, text in found if ratio < 4.5] == []


@pytest.mark.parametrize("screen", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_reports_no_violation_in_the_unfolded_page(open_page, screen, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = open_page(viewport=screen, color_scheme=scheme, bypass_csp=True)
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    found = axe.Axe().run(page)
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found.response["violations"]] == []


def test_dark_mode_is_dark(open_page):
    def read_background(scheme):
        page = open_page(color_scheme=scheme)
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert read_background("light") == "rgb(255, 255, 255)"
    assert max(map(int, re.findall(r"\d+", read_background("dark")))) < 40


def test_the_page_without_scripts_shows_the_curve_and_all_pictures(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator("#curve .panel").locator("visible=true").count() == 4
    assert page.locator("article").locator("visible=true").count() == SETTINGS.images
    assert page.locator("fieldset").locator("visible=true").count() == 0
    assert page.locator("article .retrieval .right").first.inner_text().endswith("✓")


def test_bare_captions_and_three_judges_make_a_page_without_errors(world, open_page, tmp_path):
    out = tmp_path / "three"
    settings = replace(SETTINGS, frozen_speakers=())
    write_report(world.sweep, world.evaluations, world.prepared, world.images, out, settings)
    page = open_page(out / "report.html")
    assert page.locator("#curve .panel:visible").count() == 3
    assert page.locator("article:visible .retrieval").count() == 0


def test_a_page_without_pictures_works(full_world, open_page, tmp_path):
    out = tmp_path / "bare"
    settings = replace(SETTINGS, images=0)
    write_report(full_world.sweep, full_world.evaluations, full_world.prepared, full_world.images, out, settings)
    page = open_page(out / "report.html")
    page.get_by_role("radio", name="METEOR").check()
    assert page.locator("#curve .panel:visible").count() == 4
    assert page.locator("#gallery").inner_text().startswith("Example captions")


PAYLOADS = (
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "<svg onload='window.ran = 1'>",
    "</script><script>window.ran = 1</script>",
    "</title><script>window.ran = 1</script>",
    "</style><img src=x onerror=window.ran=1>",
    '" autofocus onfocus="window.ran = 1',
    '<iframe srcdoc="<script>parent.ran = 1</script>"></iframe>',
    "<details open ontoggle=window.ran=1>x</details>",
    '<a href="javascript:window.ran = 1">a dog</a>',
    "<!--><img src=x onerror=window.ran=1>-->",
    "<math><mtext><script>window.ran = 1</script></mtext></math>",
)


def test_markup_in_captions_is_not_executed(browser, full_world, tmp_path):
    for path in (full_world.sweep / "captions.parquet", *full_world.root.glob("evaluation/*/captions.parquet")):
        rows = pq.read_table(path).to_pylist()
        rows = [row | {"caption": PAYLOADS[(n + n // 7) % len(PAYLOADS)]} for n, row in enumerate(rows)]
        pq.write_table(pa.Table.from_pylist(rows), path)
    settings = replace(SETTINGS, images=12)
    write_report(full_world.sweep, full_world.evaluations, full_world.prepared, full_world.images, tmp_path, settings)
    for policy in (True, False):
        context = browser.new_context(bypass_csp=not policy)
        page = context.new_page()
        page.goto((tmp_path / "report.html").as_uri())
        assert page.locator("a[href^=javascript]").count() == 0
        assert page.evaluate("window.ran") is None
        text = page.evaluate("document.body.textContent")
        assert [payload for payload in PAYLOADS if payload not in text] == []
        context.close()


def test_unescaped_markup_is_executed_in_this_browser(browser, tmp_path):
    """The browser executes payloads that are not escaped, so the test above can fail; two of the payloads suffice."""
    (tmp_path / "raw.html").write_text(f"<body>{PAYLOADS[1]}{PAYLOADS[8]}</body>")
    context = browser.new_context()
    page = context.new_page()
    page.goto((tmp_path / "raw.html").as_uri())
    page.wait_for_function("window.ran === 1")
    context.close()
