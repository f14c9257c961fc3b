"""Pages in Chromium that fail a test on console messages and on requests to other addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def watch_pages(browser) -> Iterator[Callable[..., Any]]:
    """Yield a function that makes a page in a new browser context with the given options.

    The page may request only addresses that begin with one of `allowed`, and data: and blob: addresses. At its end the
    block fails if a page wrote to its console, raised an error or requested another address.
    """
    contexts, faults = [], []

    def make_page(*allowed: str, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page, prefixes = context.new_page(), ("data:", "blob:", *allowed)
        page.set_default_timeout(300_000)  # for a busy machine
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: request.url.startswith(prefixes) or faults.append(request.url))
        return page

    yield make_page
    for context in contexts:
        context.close()
    assert faults == []
