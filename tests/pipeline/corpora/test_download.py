import hashlib
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.corpora import download as module
from pipeline.corpora.download import download, get_partial_path
from pipeline.errors import UserError

BODY = random.Random(0).randbytes(100_000)
DIGEST = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def fetch_body(web, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that downloads BODY through the given faults, without pauses, and returns its path."""
    web.files["a.zip"] = BODY

    def run(*faults: Callable, url: str | None = None, timeout: float = 60.0) -> Path:
        web.faults["a.zip"] = list(faults)
        path = tmp_path / "downloads" / "a.zip"
        download(url or f"{web.address}/a.zip", path, len(BODY), DIGEST, attempts=3, pause=0.0, timeout=timeout)
        return path

    return run


def list_files(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


def test_a_complete_file_is_not_downloaded_again(web, fetch_body):
    path = fetch_body()
    assert path.read_bytes() == BODY
    assert list_files(path) == ["a.zip"]
    assert fetch_body() == path
    assert web.ranges() == [None]


def test_a_broken_connection_is_resumed_where_it_ended(web, fetch_body):
    assert fetch_body(web.make_cut(30_000), web.make_cut(20_000)).read_bytes() == BODY
    assert web.ranges() == [None, "bytes=30000-", "bytes=50000-"]
    assert web.requests[1][1]["If-Range"] == web.requests[2][1]["If-Range"]  # the same version of the file


def test_a_later_run_resumes_a_partial_download(web, fetch_body, tmp_path):
    with pytest.raises(UserError, match="50,000 of 100,000 bytes are kept: run this again to go on"):
        fetch_body(web.make_cut(50_000), *[web.make_answer(503, content=b"")] * 3)
    web.requests.clear()
    assert fetch_body().read_bytes() == BODY
    assert web.ranges() == ["bytes=50000-"]
    assert list_files(tmp_path / "downloads" / "a.zip") == ["a.zip"]


def test_a_download_restarts_where_the_file_has_changed(web, fetch_body):
    web.files["a.zip"] = bytes(100_000)
    with pytest.raises(UserError, match="kept"):
        fetch_body(web.make_cut(50_000), *[web.make_answer(500, content=b"")] * 3)
    web.files["a.zip"] = BODY  # another ETag
    assert fetch_body().read_bytes() == BODY
    assert web.requests[-1][1]["Range"] == "bytes=50000-"


def test_a_server_that_ignores_ranges_sends_all_again(web, fetch_body):
    whole = web.make_answer(200, {"Content-Length": "100000"})
    assert fetch_body(web.make_answer(200, {"Content-Length": "100000"}, BODY[:40_000]), whole).read_bytes() == BODY
    assert web.ranges() == [None, "bytes=40000-"]


def test_an_error_page_replaces_no_partial_download(web, fetch_body):
    page = web.make_answer(200, {"Content-Length": "17"}, b"<h1>Log in</h1>..")
    assert fetch_body(web.make_cut(40_000), page).read_bytes() == BODY
    assert web.ranges() == [None, "bytes=40000-", "bytes=40000-"]


def test_a_server_without_length_or_version_suffices(web, fetch_body):
    assert fetch_body(web.make_answer(200, content=BODY[:40_000]), web.make_answer(200)).read_bytes() == BODY


@pytest.mark.parametrize(
    "content_range", ["bytes 0-99999/100000", "bytes 30000-99999/123456", "bytes */100000", "nonsense", ""]
)
def test_an_unrequested_range_is_not_used(web, fetch_body, content_range):
    wrong = web.make_answer(206, {"Content-Range": content_range}, BODY[30_000:])
    assert fetch_body(web.make_cut(30_000), wrong).read_bytes() == BODY
    assert web.ranges() == [None, "bytes=30000-", None]


def test_a_download_restarts_after_a_range_beyond_the_end(web, fetch_body, tmp_path):
    part = get_partial_path(tmp_path / "downloads" / "a.zip")
    part.parent.mkdir()
    part.write_bytes(BODY[:70_000])
    assert fetch_body(web.make_answer(416, content=b"")).read_bytes() == BODY
    assert web.ranges() == ["bytes=70000-", None]


def test_a_download_restarts_where_the_partial_file_is_too_long(web, fetch_body, tmp_path):
    part = get_partial_path(tmp_path / "downloads" / "a.zip")
    part.parent.mkdir()
    part.write_bytes(bytes(100_001))
    assert fetch_body().read_bytes() == BODY
    assert web.ranges() == [None]


def test_progress_counts_after_a_partial_file_that_is_too_long(web, fetch_body, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MIN_PROGRESS", 5_000)
    part = get_partial_path(tmp_path / "downloads" / "a.zip")
    part.parent.mkdir()
    part.write_bytes(bytes(100_001))
    assert fetch_body(*[web.make_cut(10_000)] * 9).read_bytes() == BODY


def test_a_complete_partial_file_is_checked_and_used_without_a_request(web, fetch_body, tmp_path):
    part = get_partial_path(tmp_path / "downloads" / "a.zip")
    part.parent.mkdir()
    part.write_bytes(BODY)
    assert fetch_body().read_bytes() == BODY
    assert web.requests == []


def test_wrong_bytes_are_removed_and_reported(web, fetch_body, tmp_path):
    web.files["a.zip"] = bytes(100_000)
    found = hashlib.sha256(bytes(100_000)).hexdigest()
    with pytest.raises(
        UserError,
        match=f"a.zip: SHA-256 {found} received, expected {DIGEST}; the received file is removed: run this again",
    ):
        fetch_body()
    assert list_files(tmp_path / "downloads" / "a.zip") == []


def test_wrong_bytes_in_one_part_are_detected(web, fetch_body, tmp_path):
    with pytest.raises(UserError, match="the received file is removed"):
        fetch_body(
            web.make_cut(30_000), web.make_answer(206, {"Content-Range": "bytes 30000-99999/100000"}, bytes(70_000))
        )
    assert list_files(tmp_path / "downloads" / "a.zip") == []


def test_another_file_of_that_name_is_reported_and_kept(web, fetch_body, tmp_path):
    path = tmp_path / "downloads" / "a.zip"
    path.parent.mkdir()
    path.write_bytes(b"somebody's own")
    with pytest.raises(UserError, match="move it away"):
        fetch_body()
    assert path.read_bytes() == b"somebody's own"


@pytest.mark.parametrize("length", [99_999, 100_001])
def test_a_wrong_content_length_is_retried_and_then_reported(web, fetch_body, tmp_path, length):
    wrong_length = web.make_answer(200, {"Content-Length": str(length)})
    assert fetch_body(wrong_length).read_bytes() == BODY
    (tmp_path / "downloads" / "a.zip").unlink()
    with pytest.raises(UserError, match=f"announces {length:,} bytes, and 100,000 are expected; tried 3 times"):
        fetch_body(wrong_length, wrong_length, wrong_length)
    assert not (tmp_path / "downloads" / "a.zip").exists()


@pytest.mark.parametrize("headers", [{"Content-Length": "100000"}, {}])
def test_more_bytes_than_expected_are_not_read(web, fetch_body, headers):
    assert fetch_body(web.make_answer(200, headers, BODY + b"more")).read_bytes() == BODY


def test_a_broken_chunked_response_is_resumed(web, fetch_body):
    chunked = b"%x\r\n%s\r\n" % (60_000, BODY[:60_000])
    path = fetch_body(web.make_answer(200, {"Transfer-Encoding": "chunked"}, chunked))
    assert path.read_bytes() == BODY
    assert len(web.requests) == 2


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_temporary_fault_is_retried_a_few_times(web, fetch_body, status):
    fault = web.make_answer(status, content=b"")
    assert fetch_body(fault, fault).read_bytes() == BODY
    os.remove(fetch_body())
    with pytest.raises(UserError, match=f"the server answers {status} .*; tried 3 times"):
        fetch_body(fault, fault, fault)


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_permanent_fault_is_reported_at_once_with_the_path_for_a_copy(web, fetch_body, tmp_path, status):
    with pytest.raises(
        UserError, match=f"answers {status} .*copy from elsewhere may be put at .*/downloads/a.zip: its"
    ):
        fetch_body(web.make_answer(status, content=b""))
    assert len(web.requests) == 1
    (tmp_path / "downloads" / "a.zip").write_bytes(BODY)
    fetch_body()
    assert len(web.requests) == 1


def test_a_redirection_is_followed_with_its_range(web, fetch_body):
    redirection = web.make_answer(302, {"Location": f"{web.address}/b.zip"}, b"")
    web.files["b.zip"] = BODY
    assert fetch_body(web.make_cut(30_000), redirection).read_bytes() == BODY
    assert web.requests[-1][0] == "b.zip"
    assert web.requests[-1][1]["Range"] == "bytes=30000-"


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/a.zip", "data:,a"])
def test_a_redirection_to_anything_but_the_web_is_refused(web, fetch_body, tmp_path, location):
    with pytest.raises(UserError, match=r"only http and https|not allowed"):
        fetch_body(web.make_answer(302, {"Location": location}, b""))
    assert list_files(tmp_path / "downloads" / "a.zip") == []


@pytest.mark.parametrize("location", ["http://[::1", f"http://{'a' * 80}.example/"])
def test_a_redirection_to_a_malformed_address_is_reported(web, fetch_body, location):
    with pytest.raises(UserError, match=r"no answer .*tried 3 times"):
        fetch_body(*[web.make_answer(302, {"Location": location}, b"")] * 3)


def test_text_from_a_server_is_printed_without_control_characters(web, fetch_body, capsys):
    assert fetch_body(web.make_answer(206, {"Content-Range": "\x1b[31mred"}, b"")).read_bytes() == BODY
    assert r"the server sends \x1b[31mred; next attempt" in capsys.readouterr().err


def test_a_redirection_in_circles_is_reported(web, fetch_body):
    circle = web.make_answer(302, {"Location": f"{web.address}/a.zip"}, b"")
    with pytest.raises(UserError, match="infinite loop"):
        fetch_body(*[circle] * 20)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/a.zip", "a.zip"])
def test_an_address_other_than_http_is_refused(fetch_body, url):
    with pytest.raises(UserError, match="only http and https"):
        fetch_body(url=url)


def test_a_refused_connection_is_reported(fetch_body):
    with pytest.raises(UserError, match=r"no answer .*tried 3 times"):
        fetch_body(url="http://127.0.0.1:1/a.zip")


def test_a_silent_server_fails_the_attempt(web, fetch_body, capsys):
    resume = threading.Event()

    def stall(request, body):
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[:10_000])
        resume.wait(60)

    try:
        assert fetch_body(stall, timeout=1.0).read_bytes() == BODY
    finally:
        resume.set()
    assert "the connection broke (timed out); next attempt" in capsys.readouterr().err


def test_attempts_with_progress_do_not_count_as_failed(web, fetch_body, monkeypatch):
    monkeypatch.setattr(module, "MIN_PROGRESS", 5_000)
    assert fetch_body(*[web.make_cut(10_000)] * 9).read_bytes() == BODY
    os.remove(fetch_body())
    web.requests.clear()
    shorter, longer = (web.make_answer(200, {"Content-Length": "100000"}, BODY[:size]) for size in (10_000, 20_000))
    with pytest.raises(UserError, match="tried 3 times"):
        fetch_body(*[shorter, longer] * 20)
    assert len(web.requests) == 5  # two attempts extended the longest partial file, and three did not


def test_pauses_between_attempts_grow(web, tmp_path, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pauses.append))
    web.faults["a.zip"] = [web.make_answer(503, content=b"")] * 7
    with pytest.raises(UserError):
        download(f"{web.address}/a.zip", tmp_path / "a.zip", 5, DIGEST, attempts=7, pause=2.0)
    assert pauses == [4, 8, 16, 32, 60, 60]


def test_a_failed_write_is_reported_and_the_downloaded_part_is_kept(web, fetch_body, tmp_path):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"a.zip.part: File too large; make room or permit .* again to go on"):
            fetch_body()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list_files(tmp_path / "downloads" / "a.zip") == ["a.zip.etag", "a.zip.part"]
    assert fetch_body().read_bytes() == BODY
    assert web.ranges() == [None, "bytes=30000-"]


def test_an_interrupted_download_leaves_a_partial_file_and_its_version(web, fetch_body, tmp_path, monkeypatch):
    read, sizes = module._read, []

    def interrupt_second_read(response, size):
        sizes.append(size)
        if len(sizes) == 2:
            raise KeyboardInterrupt
        return read(response, size)

    with monkeypatch.context() as patch:
        patch.setattr(module, "CHUNK", 30_000)
        patch.setattr(module, "_read", interrupt_second_read)
        with pytest.raises(KeyboardInterrupt):
            fetch_body()
    assert list_files(tmp_path / "downloads" / "a.zip") == ["a.zip.etag", "a.zip.part"]
    assert fetch_body().read_bytes() == BODY
    assert web.ranges() == [None, "bytes=30000-"]
