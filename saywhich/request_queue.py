"""Queue of requests, whose work runs one at a time, within a time limit, and while the client is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from fastapi import HTTPException, Request, Response
from pydantic import BaseModel

from pipeline.errors import UserError
from pipeline.runtime.memory import return_freed
from saywhich.request_bodies import make_unprocessable

Check = Callable[[], object]  # raises AbandonedError where the response is no longer needed


class AbandonedError(Exception):
    """An error that ends work after its time limit, or after its client has disconnected."""


class RequestQueue:
    """A queue of requests: each waits at most `seconds`, and its work takes at most `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._worker = seconds, ThreadPoolExecutor(1)

    async def respond(self, request: Request, work: Callable[[Check], BaseModel]) -> Response:
        """Run `work` and return its result as a response; cancel it at the time limit or when the client disconnects.

        Cancelled work ends at its next call of `check`. Raises HTTPException at the time limit and for a disconnected
        client: 503 before the work has begun, 504 afterwards. Raises HTTPException 422 for a UserError.
        """
        loop, start_event, stop_event = asyncio.get_running_loop(), asyncio.Event(), Event()

        def check() -> None:
            if stop_event.is_set():
                raise AbandonedError

        def run_work() -> bytes:
            loop.call_soon_threadsafe(start_event.set)
            try:
                check()
                return work(check).model_dump_json().encode()
            finally:
                return_freed()

        result = asyncio.wrap_future(self._worker.submit(run_work))
        start_task = asyncio.create_task(start_event.wait())
        disconnect_task = asyncio.create_task(_wait_for_disconnect(request))
        awaited: set[asyncio.Future[bytes] | asyncio.Future[None]] = {result, disconnect_task}
        try:
            await asyncio.wait(
                {start_task, disconnect_task}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not start_event.is_set():
                raise HTTPException(503, "the server is busy with other photos; try again in a moment")
            await asyncio.wait(awaited, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise HTTPException(504, f"the request took longer than {self._seconds:g} seconds; send fewer photos")
            return Response(result.result(), media_type="application/json")
        except UserError as error:
            raise make_unprocessable(str(error)) from None
        finally:
            stop_event.set()
            for each in (result, start_task, disconnect_task):
                each.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the client has disconnected; never return if the next message is of another type.

    The request has been read, so a server sends no other message.
    """
    if (await request.receive())["type"] != "http.disconnect":
        await asyncio.Event().wait()
