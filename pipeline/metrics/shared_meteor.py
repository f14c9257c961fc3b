"""One METEOR process for many: the process that runs a grid starts a small server, which every cell asks.

METEOR takes seven CPU seconds to read its tables and as many until Java has compiled it, more than a cell's captions
take. `share` starts `python -m pipeline.metrics.shared_meteor` for a process and its children, which find it by the
environment variable SAYWHICH_METEOR and use it through `meteor`. The server ends with the process that started it,
however that ends, because its standard input does. Where there is no server, each process has its own METEOR.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener

from pipeline.metrics.java import Meteor, NotComputedError, Score, meteor_jar
from pipeline.runtime.files import sha256

ADDRESS = "SAYWHICH_METEOR"  # the path of the server's socket


def share(environment: MutableMapping[str, str]) -> subprocess.Popen[str] | None:
    """Start a server that ends with this process, and write its address into `environment`, the children's.

    Keep the returned process for as long as the server is needed; None where there is a server already.
    """
    if ADDRESS in environment:
        return None
    pipe = subprocess.PIPE
    # its own process group: after Ctrl-C the cells that are running end first
    server = subprocess.Popen(
        [sys.executable, "-m", "pipeline.metrics.shared_meteor"],
        stdin=pipe,
        stdout=pipe,
        text=True,
        start_new_session=True,
    )
    assert server.stdout is not None
    if address := server.stdout.readline().strip():
        environment[ADDRESS] = address
    return server


def meteor(timeout: float) -> Meteor | SharedMeteor:
    """The server's METEOR, or this process' own. `timeout`: seconds that one set of captions may take."""
    with suppress(OSError, KeyError):
        return SharedMeteor(os.environ[ADDRESS], timeout)
    return Meteor(timeout)


class SharedMeteor:
    """`Meteor` at the server; this process' own if the server ends, or has another METEOR than is installed here."""

    def __init__(self, address: str, timeout: float) -> None:
        """Raises OSError where there is no server."""
        self._timeout = timeout
        self._failed: str | None = None
        self._own: Meteor | None = None
        self._server = Client(address)
        self._server.send(sha256(meteor_jar()))

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """`Meteor.score`; it raises NotComputedError in the same cases."""
        if self._failed:
            raise NotComputedError(self._failed)
        if self._own is None:
            try:
                self._server.send((self._timeout, hypotheses, references))
                overall, each, self._failed = self._server.recv()
            except (OSError, EOFError):  # the server ended, before an answer or in the middle of it
                self._own = Meteor(self._timeout)
            else:
                if self._failed:
                    raise NotComputedError(self._failed)
                return overall, each
        return self._own.score(hypotheses, references)

    def close(self) -> None:
        """Disconnect, and end the process' own METEOR."""
        self._server.close()
        if self._own is not None:
            self._own.close()


class _Server:
    """One METEOR, which is asked by one client after the other."""

    def __init__(self) -> None:
        self._jar = sha256(meteor_jar())
        self._meteor: Meteor | None = None
        self._turn = threading.RLock()

    def serve(self, client: Connection) -> None:
        with client, suppress(OSError, EOFError):  # until it closes the connection, or ends in the middle of something
            if client.recv() != self._jar:
                return
            with suppress(NotComputedError):  # the reason is for the first who asks for scores
                self._running(0)  # so that METEOR is ready by then
            while True:
                client.send(self._answer(*client.recv()))

    def close(self) -> None:
        if self._meteor is not None:
            self._meteor.close()

    def _answer(
        self, timeout: float, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> tuple[float, list[float], str | None]:
        """The score of all, those of each, and why there are none."""
        with self._turn:
            try:
                return *self._running(timeout).score(hypotheses, references), None
            except NotComputedError as reason:
                return 0.0, [], str(reason)

    def _running(self, timeout: float) -> Meteor:
        """METEOR with this timeout, started where none runs or the last one failed."""
        with self._turn:
            if self._meteor is None or self._meteor.ended:
                self.close()
                self._meteor = Meteor(timeout)
            self._meteor.timeout = timeout
            return self._meteor


def main() -> None:
    """Serve until standard input ends; the socket lies in a folder that nobody else may enter."""
    server = _Server()
    with Listener(family="AF_UNIX") as listener:

        def accept() -> None:
            while True:
                with suppress(OSError):  # a client that ended before it was connected
                    threading.Thread(target=server.serve, args=(listener.accept(),), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        print(listener.address, flush=True)
        sys.stdin.read()
        server.close()


if __name__ == "__main__":
    main()
