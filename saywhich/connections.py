"""Connections to the page's server: limits of their number, and of the time until a request's headers are complete."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_TIMEOUT = 10.0  # seconds until the headers of a request are complete
MAX_CONNECTIONS = 128  # connections at once; macOS lets a process open 256 files


class LimitedConnection(H11Protocol):
    """A connection that is closed where the headers of a request do not arrive in time; uvicorn would wait for ever.

    Where more than `max_connections` connections are open, the connection that has waited longest for a request is
    closed. A new connection is therefore closed only where all other connections are being answered.
    """

    header_timeout = HEADER_TIMEOUT
    max_connections = MAX_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None  # None while a request is answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, and close the longest waiting connection where too many are open."""
        super().connection_made(transport)
        self._start_waiting()
        if len(self.connections) > self.max_connections:
            connection_of_deadline = {
                each._deadline.when(): each
                for each in self.connections
                if isinstance(each, LimitedConnection) and each._deadline is not None
            }
            connection_of_deadline[min(connection_of_deadline)]._close()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, and stop waiting where its headers are complete."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._start_waiting()
        super().on_response_complete()  # may start a request that has already arrived
        if not self.cycle.response_complete:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline of a closed connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _start_waiting(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(self.header_timeout, self._close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None

    def _close(self) -> None:
        self._stop_waiting()
        self.connections.discard(self)  # at once: further connections are counted before `connection_lost`
        self.transport.abort()
