"""The page in headless Chromium, with photos set in its file input and controls used by mouse and keyboard."""

import json

import pytest
from watched_pages import watch_pages

from pipeline.study.game import read_game

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 760}


@pytest.fixture
def open_page(browser, server):
    """Yield a function that opens the page; fail for console messages, page errors and requests to other servers."""
    with watch_pages(browser) as make_page:

        def open_with(**options):
            page = make_page(f"{server}/", **{"viewport": WIDE, **options})
            page.goto(server)
            return page

        yield open_with


def caption_photos(page, photos, count=3):
    """Caption the first `count` of the photos a, b and c on the page; return the page."""
    page.set_input_files("#files", [str(photos / f"{name}.jpg") for name in "abc"[:count]])
    page.get_by_text(f"{count} photos, each captioned by 2 models.").wait_for()
    return page


def test_photos_are_captioned_by_all_models_side_by_side(open_page, photos):
    page = caption_photos(open_page(), photos)
    assert page.locator("article").count() == 3
    first = page.locator("article").first
    assert first.locator("h3").all_inner_texts() == ["psst_multinomial", "other"]
    assert first.locator(".text").first.inner_text().strip(), (
        "expected a caption by psst_multinomial; only the speaker 'other' may generate an empty caption"
    )
    assert first.locator(".thumbs").first.locator("img").count() == 3
    assert page.locator(".thumbs .right").count() == 6


def test_a_photo_unlike_the_training_images_has_a_warning_and_no_green_frame(open_page, photos):
    def mark_as_unlike_for_the_first_model(route):
        answer = route.fetch()
        content = answer.json()
        for captions in content["photos"]:
            captions[0]["unlike"] = True
        route.fulfill(response=answer, json=content)

    page = open_page()
    page.route("**/caption", mark_as_unlike_for_the_first_model)
    caption_photos(page, photos)
    assert page.locator(".unlike").count() == 3
    assert page.locator(".thumbs .right").count() == 3


def test_a_word_shows_the_speakers_attention(open_page, photos):
    page = caption_photos(open_page(), photos)
    overlay = page.locator("article .attention").first
    assert overlay.locator("i").count() == 0
    page.locator("article .word").first.focus()
    shares = overlay.locator("i").evaluate_all("cells => cells.map(cell => Number(cell.style.opacity))")
    assert len(shares) == 4
    assert max(shares) == 0.85
    page.keyboard.press("Tab")
    page.locator("#text").focus()
    assert overlay.locator("i").count() == 0


def test_an_invalid_photo_is_reported_and_the_others_are_captioned(open_page, photos):
    (photos / "notes.jpg").write_text("no photo")
    page = open_page()
    page.set_input_files("#files", [str(photos / "notes.jpg"), str(photos / "a.jpg"), str(photos / "b.jpg")])
    page.get_by_text("notes.jpg: not a photo").wait_for()
    assert page.locator("article").count() == 2


def test_a_text_search_ranks_the_photos_and_reports_unknown_words(open_page, photos):
    page = caption_photos(open_page(), photos)
    page.get_by_label("What does the photo show?").fill("a red zebra")
    page.keyboard.press("Enter")
    page.locator("#found li").first.wait_for()
    assert page.locator("#found li").count() == 3
    assert page.get_by_role("status").first.inner_text() == "Words that are not in the vocabulary: zebra."


def test_the_game_is_played_by_keyboard_and_its_rounds_are_saved(open_page, tmp_path):
    page = open_page(accept_downloads=True)
    page.get_by_role("button", name="Take ten samples").click()
    page.get_by_text("10 photos, each captioned by 2 models.").wait_for()
    for count in (1, 2):
        page.get_by_role("button", name="New round").click()
        page.locator("#choices button").first.wait_for()
        assert page.locator("#choices button").count() == 10
        assert page.locator("#shown-caption").inner_text().startswith("“")
        page.keyboard.press("3")
        assert f"of {count}; the listener:" in page.locator("#score").inner_text()
        assert page.locator("#choices .right").count() == 1
        page.keyboard.press("4")  # a second answer to the same round is ignored
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the rounds").click()
    rounds = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert [each["chosen"] for each in rounds] == [each["shown"][2] for each in rounds]
    score = page.locator("#score").inner_text()
    assert f"You: {sum(each['right'] == each['chosen'] for each in rounds)} of 2" in score
    assert f"the listener: {sum(each['right'] == each['listener'] for each in rounds)} of 2" in score
    assert all(each["model"] == "psst_multinomial" and len(each["shown"]) == 10 for each in rounds)
    file = tmp_path / "rounds.jsonl"
    download.value.save_as(file)
    (game,) = read_game([file])  # the reader of `saywhich study read`
    assert f"You: {sum(game.person)} of 2; the listener: {sum(game.listener)} of 2" in score


def test_a_round_of_the_game_shows_the_photos_that_the_listener_ranks_first(open_page, repository):
    page = open_page()
    page.set_input_files("#files", [str(repository / f"images/{number}.png") for number in range(12)])
    page.get_by_text("12 photos, each captioned by 2 models.").wait_for()
    ranked = page.evaluate("captions.map(([caption]) => caption.retrieved.map((number) => photos[number].name))")
    names = [f"{number}.png" for number in range(12)]
    galleries = [sorted([own, *[x for x in order if x != own][:9]]) for own, order in zip(names, ranked, strict=True)]
    page.get_by_role("button", name="New round").click()
    page.locator("#choices button").first.wait_for()
    shown = page.evaluate("round.shown.map((name) => name.split(' ')[1]).sort()")
    assert shown in galleries
    tops = "['play-title', 'captions-title'].map((id) => document.getElementById(id).getBoundingClientRect().top)"
    game, captions = page.evaluate(tops)
    assert game < captions  # the game is above the captions


def test_all_photos_can_be_removed_without_losing_the_focus(open_page, photos):
    page = caption_photos(open_page(), photos)
    page.get_by_role("button", name="Remove all").click()
    assert page.locator("article").count() == 0
    assert page.evaluate("document.activeElement.id") == "files"


HOLD_REQUESTS = """() => {
  const send = window.fetch;
  window.fetch = (...request) => new Promise((resolve) => {
    window.release = async () => { resolve(send(...request)); await new Promise((done) => setTimeout(done, 1000)); };
  });
}"""


def test_photos_removed_during_the_caption_request_leave_no_error(open_page, photos):
    page = open_page()
    page.evaluate(HOLD_REQUESTS)
    page.set_input_files("#files", [str(photos / "a.jpg")])
    page.get_by_text("generating captions").wait_for()
    page.get_by_role("button", name="Remove all").click()
    page.evaluate("release()")
    assert page.locator("article").count() == 0
    assert page.get_by_role("status").first.inner_text() == ""


def test_a_new_round_ends_the_unanswered_round(open_page, photos):
    page = caption_photos(open_page(), photos)
    page.get_by_role("button", name="New round").click()
    page.locator("#choices button").first.wait_for()
    page.evaluate(HOLD_REQUESTS)
    page.get_by_role("button", name="New round").click()
    page.keyboard.press("1")  # no round is shown: nothing is answered
    assert page.evaluate("rounds.length") == 0
    page.evaluate("release()")
    page.locator("#choices button").first.wait_for()
    page.keyboard.press("1")
    assert page.evaluate("rounds.length") == 1


def test_the_page_requests_the_selected_kind_of_captions(open_page, photos):
    page = caption_photos(open_page(), photos)
    requests = []
    page.on("request", lambda request: requests.append(request.post_data_json) if request.method == "POST" else None)
    for option in ("similar", "apart", "words"):
        page.locator("#caption-choice").select_option(option)
        page.get_by_text("3 photos, each captioned by 2 models.").wait_for()
    settings = [{key: each[key] for key in each if key != "photos"} for each in requests]
    assert settings == [{"score": "similarity"}, {"among": True}, {"among": True, "pragmatic": 1}]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_the_width_of_a_phone_in_both_colour_schemes(open_page, photos, scheme):
    page = caption_photos(open_page(viewport=NARROW, color_scheme=scheme), photos)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    text = page.evaluate("getComputedStyle(document.body).color")
    assert (text == "rgb(0, 0, 0)") == (scheme == "light"), (background, text)


def test_every_control_has_a_name_and_every_image_a_description(open_page, photos):
    page = caption_photos(open_page(), photos)
    unnamed = """all => all.filter(each => !(each.labels && each.labels.length) && !each.textContent.trim()
        && !each.getAttribute("aria-label")).map(each => each.outerHTML)"""
    assert page.locator("button, input, select").evaluate_all(unnamed) == []
    assert page.locator("article img:not([alt])").count() == 0
