"""Resumable downloads, used only if their size and SHA-256 are right."""

from __future__ import annotations

import re
import sys
import time
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tqdm import tqdm

from pipeline.errors import UserError, escape_line
from pipeline.runtime.files import compute_sha256, rename, write_atomically

CHUNK = 1 << 18  # bytes that are read at once
MIN_PROGRESS = 1 << 24  # bytes by which an attempt must extend the longest partial file to count as progress
TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}  # statuses after which another attempt may help


class _TransientError(Exception):
    """A fault after which another attempt may succeed."""


def download(
    url: str, path: Path, size: int, digest: str, *, attempts: int = 6, pause: float = 2.0, timeout: float = 60.0
) -> None:
    """Download `url` (http or https), of `size` bytes and the SHA-256 `digest`, to `path`.

    A partial download is kept in `path`.part and resumed by HTTP ranges, in this run and in later ones. The pause after
    n attempts in a row with little progress is `pause`·2ⁿ seconds, at most 60. An attempt fails if the server sends
    nothing for `timeout` seconds. Raises UserError after `attempts` attempts in a row with little progress, and at once
    for an error that another attempt cannot resolve. Raises UserError for a wrong digest; a received file is then
    removed, and an earlier file at `path` is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part, tag = get_partial_path(path), path.with_name(f"{path.name}.etag")
    if path.exists():
        if (actual := compute_sha256(path)) != digest:
            raise UserError(
                f"{path}: its SHA-256 is {actual}, and {digest} is expected; move it away and run this again"
            )
        return
    if _get_size(part) > size:
        part.unlink()
    longest, failures = _get_size(part), 0
    with tqdm(total=size, desc=path.name, unit="B", unit_scale=True, disable=None) as bar:
        while (received := _get_size(part)) != size:
            bar.update(received - bar.n)
            try:
                _receive(url, part, tag, size, timeout, bar)
            except _TransientError as fault:
                size_now = _get_size(part)
                failures = 0 if size_now - longest >= MIN_PROGRESS else failures + 1
                longest = max(longest, size_now)
                if failures == attempts:
                    raise UserError(
                        f"{url}: {fault}; tried {attempts} times with little progress; {size_now:,} of {size:,} "
                        "bytes are kept: run this again to go on"
                    ) from None
                seconds = min(pause * 2**failures, 60.0)
                tqdm.write(escape_line(f"{path.name}: {fault}; next attempt in {seconds:.0f} s"), file=sys.stderr)
                time.sleep(seconds)
        bar.update(size - bar.n)
    if (actual := compute_sha256(part)) != digest:
        part.unlink()
        tag.unlink(missing_ok=True)
        raise UserError(
            f"{url}: SHA-256 {actual} received, expected {digest}; the received file is removed: run this again, or "
            f"put the right file at {path}"
        )
    rename(part, path)
    tag.unlink(missing_ok=True)


def get_partial_path(path: Path) -> Path:
    """Return the path of the partial download of the file `path`."""
    return path.with_name(f"{path.name}.part")


def _receive(url: str, part: Path, tag: Path, size: int, timeout: float, bar: tqdm) -> None:
    """Send one request; append the response to `part`, or replace `part` where the server sends the whole file.

    Raises _TransientError where another attempt may succeed, else UserError.
    """
    received = _get_size(part)
    headers = {"User-Agent": "saywhich", "Accept-Encoding": "identity"}
    if received:
        headers["Range"] = f"bytes={received}-"
        if tag.exists():
            headers["If-Range"] = tag.read_text(encoding="latin-1")
    with _open(Request(_require_web_address(url), headers=headers), part, received, timeout) as response:
        if response.status == 206:
            _check_range(response, part, received, size)
        elif response.status == 200:
            received = 0
        else:
            raise _TransientError(f"the server answers {response.status}")
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and int(length) != size - received:
            raise _TransientError(f"the server announces {int(length):,} bytes, and {size - received:,} are expected")
        if response.status == 200:  # after the check of the length, so that a proxy's error page replaces nothing
            part.unlink(missing_ok=True)
            _save_version(response, tag)
        bar.update(received - bar.n)
        try:
            with open(part, "ab") as file:
                while received < size and (chunk := _read(response, min(CHUNK, size - received))):
                    file.write(chunk)
                    received += len(chunk)
                    bar.update(len(chunk))
        except OSError as error:  # errors of the file; connection errors are _TransientError
            raise UserError(
                f"{part}: {error.strerror or error}; make room or permit writing, and run this again to go on"
            ) from None
    if received < size:
        raise _TransientError(f"the connection ended after {received:,} bytes")


class _WebRedirectHandler(HTTPRedirectHandler):
    """Redirect handler that follows redirections to http and https only."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        return super().redirect_request(req, fp, code, msg, headers, _require_web_address(newurl))


def _require_web_address(url: str) -> str:
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"{url}: only http and https addresses are fetched; correct the address in the data card")
    return url


def _open(request: Request, part: Path, received: int, timeout: float) -> HTTPResponse:
    try:
        return build_opener(_WebRedirectHandler).open(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == 416:
            part.unlink(missing_ok=True)
            raise _TransientError(f"the server has nothing after {received:,} bytes") from None
        if error.code in TRANSIENT_STATUSES:
            raise _TransientError(f"the server answers {error.code} {error.reason}") from None
        raise UserError(
            f"{request.full_url}: the server answers {error.code} {error.reason}; a copy from elsewhere may be put at "
            f"{part.with_suffix('')}: its SHA-256 is checked"
        ) from None
    except UserError:
        raise
    except (OSError, HTTPException, ValueError) as error:  # ValueError: the address of a redirection is malformed
        raise _TransientError(f"no answer ({getattr(error, 'reason', error) or type(error).__name__})") from None


def _read(response: HTTPResponse, size: int) -> bytes:
    try:
        return response.read(size)
    except (OSError, HTTPException) as error:
        raise _TransientError(f"the connection broke ({error or type(error).__name__})") from None


def _check_range(response: HTTPResponse, part: Path, received: int, size: int) -> None:
    """Check that a 206 response continues at the end of `part`, in a file of the right size.

    Raises _TransientError for any other response, after the removal of `part`.
    """
    header = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", header.strip())
    if match is None or int(match[1]) != received or match[2] not in ("*", str(size)):
        part.unlink(missing_ok=True)
        sent = header or "an unknown range"
        raise _TransientError(f"expected the file from byte {received:,} of {size:,} on, and the server sends {sent}")


def _save_version(response: HTTPResponse, tag: Path) -> None:
    """Keep the identifier of this version of the file, so that a later range request gets the same version."""
    version = response.headers.get("ETag") or response.headers.get("Last-Modified")
    if version and not version.startswith("W/"):
        write_atomically(tag, version.encode("latin-1", "replace"))
    else:
        tag.unlink(missing_ok=True)


def _get_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
