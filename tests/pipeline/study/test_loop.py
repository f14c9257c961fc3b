"""A whole study: its construction, its pages in a browser, and the analysis of the answers; the command `study`."""

import json
import re
from argparse import ArgumentParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from watched_pages import watch_pages

from pipeline.errors import UserError
from pipeline.study.design import PICTURE_ROOT, StudyDesign
from pipeline.study.study_tables import build_study_tables
from saywhich.commands import study as command

DESIGN = StudyDesign(pairs=4, raters=2, rounds=4, methods=("psst_multinomial", "st_multinomial"))
RIGHT = {"psst_multinomial", "human"}  # synthetic raters choose the key's first option for captions of these methods


@pytest.fixture(scope="module")
def study_folder(finished_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    finished_run.make(out, DESIGN)
    return out


@pytest.fixture
def key(study_folder):
    return json.loads((study_folder / "key.json").read_text())


@pytest.fixture
def open_sheet(browser):
    """Yield a function that opens a sheet as a rater, in `page` if one is given.

    The fixture fails for console messages, for errors of a page, and for requests to other addresses.
    """
    with watch_pages(browser) as make_page:

        def open_page(path: Path, rater: str | None = "R1", query: str = "", page=None, **options):
            page = page or make_page(path.parent.as_uri(), **options)
            page.goto(path.as_uri() + query)
            if rater is not None:
                page.get_by_label("Your participant ID").fill(rater)
                page.get_by_role("button", name="Begin").click()
            return page

        yield open_page


def read_content(page):
    return json.loads(page.locator("#content").text_content())


def answer_rounds(page, key, wrong=lambda question: False):
    """Answer by keyboard with the first option of the key, or with the second where `wrong` returns True.

    The page shows a round until all are answered, or until the rater has failed the qualification.
    """
    questions = {each["name"]: each for each in key["questions"]}
    content = read_content(page)
    for each in (*content["qualification"], *content["rounds"]):
        if not page.locator("#round").is_visible():
            return
        question = questions[each["question"]]
        chosen = question["options"][wrong(question)]
        page.keyboard.press("ArrowRight" if each["shown"].index(chosen) else "ArrowLeft")


def save_answers(page, folder: Path) -> Path:
    with page.expect_download() as download:
        page.get_by_text("Save the answers", exact=True).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def is_misunderstood(question):
    return not question["qualification"] and not RIGHT & set(question["methods"])


@pytest.mark.slow
def test_the_tables_have_the_accuracies_of_synthetic_raters(study_folder, key, open_sheet, tmp_path):
    sheets = {sheet["sheet"]: sheet for sheet in key["sheets"]}
    page = None
    for name, sheet in sheets.items():
        page = open_sheet(study_folder / "pages" / f"{name}.html", f"rater of {name}", page=page)
        answer_rounds(page, key, is_misunderstood)
        assert page.locator("#code").inner_text() == sheet["completion_code"]
        save_answers(page, tmp_path)
    retrieval, naturalness = build_study_tables(study_folder, [tmp_path])
    share = {row[0]: row[3] for row in retrieval.rows}
    assert share.keys() == {"st_multinomial", "psst_multinomial", "human"}
    assert share["psst_multinomial"] == share["human"] == "100.0 [100.0, 100.0]"
    assert share["st_multinomial"] == "0.0 [0.0, 0.0]"
    assert {row[1] for row in retrieval.rows} == {"4"}
    assert {row[2] for row in retrieval.rows} == {"8"}
    (preferred,) = naturalness.rows
    assert (preferred[0], preferred[3], preferred[5]) == ("psst_multinomial", "100.0 [100.0, 100.0]", "+100.0")
    assert "α is 1.00" in retrieval.notes[0]


def find_first_sheet(study_folder, task="retrieval"):
    return study_folder / "pages" / f"{task}-001.html"


def test_raters_who_fail_the_qualification_are_excluded(study_folder, key, open_sheet, tmp_path):
    page = open_sheet(find_first_sheet(study_folder))
    answer_rounds(page, key, lambda question: True)
    sheet = next(each for each in key["sheets"] if each["sheet"] == "retrieval-001")
    assert page.locator("#code").inner_text() == sheet["screen_out_code"]
    path = save_answers(page, tmp_path)
    assert len(path.read_text().splitlines()) == 10
    assert build_study_tables(study_folder, [path]) == []


def test_a_reopened_page_resumes(study_folder, key, open_sheet):
    page = open_sheet(find_first_sheet(study_folder))
    page.locator("#options button").first.click()
    page.reload()
    page.get_by_label("Your participant ID").fill("R1")
    page.keyboard.press("Enter")
    assert page.locator("#progress").inner_text() == "Qualification round 2 of 10"


def test_the_participant_id_of_prolific_is_filled_in(study_folder, open_sheet):
    page = open_sheet(find_first_sheet(study_folder), rater=None, query="?PROLIFIC_PID=5f3c")
    assert page.get_by_label("Your participant ID").input_value() == "5f3c"


def test_both_pictures_are_visible_and_named_and_the_tab_key_focuses_the_left_picture(study_folder, open_sheet):
    page = open_sheet(find_first_sheet(study_folder))
    assert page.evaluate("document.activeElement.id") == "asked"
    images = page.locator("#options img")
    images.last.evaluate("image => image.decode()")
    assert images.evaluate_all("all => all.map(i => [i.alt, i.naturalWidth > 0])") == [
        ["left image", True],
        ["right image", True],
    ]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent || document.activeElement.firstChild.alt") == "left image"


@pytest.fixture
def collector():
    """Start a server that accepts bodies sent to /answers only; yield its address and the list of these bodies."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            bodies.extend([body] if self.path == "/answers" else [])
            self.send_response(200 if self.path == "/answers" else 500)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("path", "message"), [("answers", "The answers were sent."), ("refused", "could not be sent")])
def test_answers_are_sent_to_the_given_address_or_the_refusal_is_shown(
    finished_run, browser, collector, tmp_path, path, message
):
    address, bodies = collector
    finished_run.make(tmp_path, DESIGN, f"{address}/{path}")
    key = json.loads((tmp_path / "key.json").read_text())
    page = browser.new_context().new_page()
    page.set_default_timeout(300_000)
    page.goto(find_first_sheet(tmp_path).as_uri())
    page.get_by_label("Your participant ID").fill("R1")
    page.keyboard.press("Enter")
    answer_rounds(page, key)
    page.get_by_text(message).wait_for()
    (tmp_path / "sent.jsonl").write_text("".join(bodies))
    assert page.locator("#answers").input_value() == "".join(bodies) or path == "refused"
    assert len(build_study_tables(tmp_path, [tmp_path / "sent.jsonl"])) == (path == "answers")
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_a_phone_and_follows_its_colour_scheme(study_folder, open_sheet, scheme):
    page = open_sheet(
        find_first_sheet(study_folder, "naturalness"), viewport={"width": 360, "height": 700}, color_scheme=scheme
    )
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")


def test_label_studios_export_is_read_like_the_pages_answers(study_folder, key, tmp_path):
    questions = {each["name"]: each for each in key["questions"]}
    tasks = []
    for path in sorted((study_folder / "label_studio").glob("*.json")):
        for n, task in enumerate(json.loads(path.read_text())):
            question = questions[task["data"]["question"]]
            left = task["data"]["left"].removeprefix(PICTURE_ROOT)
            side = "left" if left == question["options"][is_misunderstood(question)] else "right"
            annotation, cancelled = (
                {"completed_by": {"email": path.stem}, "lead_time": 3.5 + n}
                | {"result": [{"from_name": "chosen", "type": "choices", "value": {"choices": [choice]}}]}
                for choice in (side, "right" if side == "left" else "left")
            )
            cancelled["was_cancelled"] = True
            tasks.append({**task, "annotations": [cancelled, {"result": []}, annotation]})
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    retrieval, naturalness = build_study_tables(study_folder, [tmp_path / "export.json"])
    expected = {"psst_multinomial": "100.0", "st_multinomial": "0.0", "human": "100.0"}
    assert {row[0]: row[3].split()[0] for row in retrieval.rows} == expected
    assert {row[0]: row[3].split()[0] for row in naturalness.rows} == {"psst_multinomial": "100.0"}


def test_repeated_foreign_and_unreadable_answers_are_reported(study_folder, key, answer_correctly, tmp_path):
    path = tmp_path / "answers.jsonl"
    good = answer_correctly(key, key["sheets"][0])
    path.write_text("".join(json.dumps(each) + "\n" for each in [*good, *good[:1]]))
    assert any(
        "1 answers to questions that the rater had answered before" in n
        for n in build_study_tables(study_folder, [path])[0].notes
    )
    for change, pattern in (
        ({"study": "other"}, "expected an answer of the study .*, found one of other"),
        ({"chosen": "something"}, "expected a question and an option of the study's key, got .* and something; give"),
    ):
        path.write_text(json.dumps(good[0] | change) + "\n")
        with pytest.raises(UserError, match=f"answers.jsonl, line 1: {pattern}"):
            build_study_tables(study_folder, [path])
    path.write_text("{\n")
    with pytest.raises(UserError, match="line 1: not JSON"):
        build_study_tables(study_folder, [path])
    with pytest.raises(UserError, match="no such file or folder of answers"):
        build_study_tables(study_folder, [tmp_path / "nowhere"])


def run_study_command(*arguments: object) -> None:
    parser = ArgumentParser()
    command.add(parser)
    assert command.run(parser.parse_args([str(each) for each in arguments])) == 0


def test_the_command_makes_a_study_reads_its_answers_and_plans_raters(finished_run, answer_correctly, tmp_path, capsys):
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["prepare"] |= {"root": str(finished_run.root), "images": "images"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params, allow_unicode=True))
    out = tmp_path / "study"
    inputs = ["--data", finished_run.root, "--params", tmp_path / "params.yaml"]
    run_study_command(*inputs, "--out", out, "--pairs", 4, "--raters", 1)
    assert re.search(r"\d+ pages, one for each rater", capsys.readouterr().out)
    key = json.loads((out / "key.json").read_text())
    (out / "answers").mkdir()
    for sheet in key["sheets"]:
        lines = "".join(json.dumps(each) + "\n" for each in answer_correctly(key, sheet))
        (out / "answers" / f"{sheet['sheet']}.jsonl").write_text(lines)
    run_study_command("read", out / "answers", "--study", out)
    assert "| PSST-Multinomial | " in re.sub(" +", " ", capsys.readouterr().out)
    run_study_command("raters", "75", "72%")
    plan = capsys.readouterr().out
    assert "in 13%" in plan
    assert " 3399 |" in plan  # the number in docs/how_to/study.md


def test_the_option_pairs_may_precede_the_step(capsys):
    run_study_command("--pairs", 50, "raters", 75, 72)
    assert "With 50 pairs and 5 raters a pair" in capsys.readouterr().out
    run_study_command("raters", 75, 72)
    assert "With 300 pairs and 5 raters a pair" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["0,9", "nan", "inf"])
@pytest.mark.parametrize("option", ["--cider", "--score"])
def test_a_level_that_is_no_finite_number_is_refused(option, text, capsys):
    """With NaN, the study would take the first setting of each method, and its key could not be read."""
    with pytest.raises(SystemExit):
        run_study_command(option, text)
    assert f"argument {option}: {text} is no finite number" in capsys.readouterr().err
