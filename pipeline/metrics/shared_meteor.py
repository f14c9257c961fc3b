"""METEOR server shared by processes: the process that runs a grid starts the server, and every cell queries it.

METEOR takes seven CPU seconds to load its tables, and seven more until Java has compiled its code. Scoring the captions
of a cell takes less. `start_server` starts `python -m pipeline.metrics.shared_meteor` for a process and its children.
The environment variable SAYWHICH_METEOR has the server's address, and `connect_meteor` uses it. The server ends when
its standard input closes, that is, with the process that started it. Without a server, each process has its own METEOR.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener

from pipeline.metrics.java import Meteor, NotComputedError, Score, find_meteor_jar
from pipeline.runtime.files import compute_sha256

ADDRESS = "SAYWHICH_METEOR"  # environment variable with the path of the server's socket


def start_server(environment: MutableMapping[str, str]) -> subprocess.Popen[str] | None:
    """Start a server that ends with this process, and write its address into the children's `environment`.

    Keep the returned process for as long as the server is needed. Returns None if `environment` has an address already.
    A server that cannot open its socket ends with a warning, and `environment` stays as it is.
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


def connect_meteor(timeout: float) -> Meteor | SharedMeteor:
    """Return the server's METEOR, or else this process's own. `timeout`: the limit in seconds for one set of captions.

    Raises NotComputedError if there is no server and no Java runs.
    """
    with suppress(OSError, KeyError):
        return SharedMeteor(os.environ[ADDRESS], timeout)
    return Meteor(timeout)


class SharedMeteor:
    """Client of the server's `Meteor`; the client starts its own process if the server ends or has another jar."""

    def __init__(self, address: str, timeout: float) -> None:
        """Connect to the server. Raises OSError if there is none."""
        self._timeout = timeout
        self._failure: str | None = None
        self._fallback: Meteor | None = None
        self._server = Client(address)
        self._server.send(compute_sha256(find_meteor_jar()))

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Return the scores of `Meteor.score`. Raises NotComputedError if METEOR fails or cannot start."""
        if self._failure:
            raise NotComputedError(self._failure)
        if self._fallback is None:
            try:
                self._server.send((self._timeout, hypotheses, references))
                overall, per_caption, self._failure = self._server.recv()
            except (OSError, EOFError):  # the server ended before or during its answer
                self._fallback = Meteor(self._timeout)
            else:
                if self._failure:
                    raise NotComputedError(self._failure)
                return overall, per_caption
        return self._fallback.score(hypotheses, references)

    def close(self) -> None:
        """Disconnect, and end this process's own METEOR."""
        self._server.close()
        if self._fallback is not None:
            self._fallback.close()


class _Server:
    """Server of one METEOR, which serves one client's request at a time."""

    def __init__(self) -> None:
        self._jar = compute_sha256(find_meteor_jar())
        self._meteor: Meteor | None = None
        self._lock = threading.RLock()

    def serve(self, client: Connection) -> None:
        with client, suppress(OSError, EOFError):  # until the client disconnects or ends
            if client.recv() != self._jar:
                return
            with suppress(NotComputedError):  # the first request for scores reports the reason
                self._get_meteor(0)  # start METEOR before the first request
            while True:
                client.send(self._answer(*client.recv()))

    def close(self) -> None:
        if self._meteor is not None:
            self._meteor.close()

    def _answer(
        self, timeout: float, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> tuple[float, list[float], str | None]:
        """Return the corpus score, each caption's score, and the reason if there are none."""
        with self._lock:
            try:
                return *self._get_meteor(timeout).score(hypotheses, references), None
            except NotComputedError as reason:
                return 0.0, [], str(reason)

    def _get_meteor(self, timeout: float) -> Meteor:
        """Return METEOR with this timeout, restarted if its process has ended."""
        with self._lock:
            if self._meteor is None or self._meteor.ended:
                self.close()
                self._meteor = Meteor(timeout)
            self._meteor.timeout = timeout
            return self._meteor


def main() -> None:
    """Serve until standard input ends; the socket lies in a folder that only the user can access."""
    server = _Server()
    try:
        listener = Listener(family="AF_UNIX")
    except OSError as error:  # a socket's path has at most about 100 bytes
        remedy = "set TMPDIR to a writable folder with a short path"
        print(f"warning: each process starts its own METEOR: {error}; {remedy}", file=sys.stderr)
        return
    with listener:

        def accept() -> None:
            while True:
                with suppress(OSError):  # the client ended before the connection was accepted
                    threading.Thread(target=server.serve, args=(listener.accept(),), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        print(listener.address, flush=True)
        sys.stdin.read()
        server.close()


if __name__ == "__main__":
    main()
