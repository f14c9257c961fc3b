"""One METEOR process for many: the process that runs a grid starts a small server, which every cell asks.

METEOR takes seven CPU seconds to read its tables and as many until Java has compiled it, more than a cell's captions
take. `share` starts `python -m pipeline.metrics.shared_meteor` for a process and its children, which find it by the
environment variable SAYWHICH_METEOR and use it through `meteor`. The server ends with the process that started it,
however that ends, because its standard input does. Where there is no server, each process has its own METEOR.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path

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
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(address)
            self._stream = self._socket.makefile("rw", encoding="utf-8")
            self._say(sha256(meteor_jar()))
        except OSError:
            self._socket.close()
            raise

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """`Meteor.score`; it raises NotComputedError in the same cases."""
        if self._failed:
            raise NotComputedError(self._failed)
        if self._own is None:
            try:
                self._say([self._timeout, hypotheses, references])
                overall, each, self._failed = json.loads(self._stream.readline())
            except (OSError, ValueError):  # the connection ended, before an answer or in the middle of it
                self._own = Meteor(self._timeout)
            else:
                if self._failed:
                    raise NotComputedError(self._failed)
                return overall, each
        return self._own.score(hypotheses, references)

    def close(self) -> None:
        """Disconnect, and end the process' own METEOR."""
        with suppress(OSError):
            self._stream.close()
        self._socket.close()
        if self._own is not None:
            self._own.close()

    def _say(self, what: object) -> None:
        self._stream.write(f"{json.dumps(what)}\n")
        self._stream.flush()


class _Server(socketserver.ThreadingUnixStreamServer):
    """Hears many clients at once, and asks METEOR for one after the other."""

    daemon_threads = True

    def __init__(self, address: Path) -> None:
        super().__init__(str(address), _Client)
        self.jar = sha256(meteor_jar())
        self.meteor: Meteor | None = None
        self.turn = threading.RLock()

    def running(self, timeout: float) -> Meteor:
        """METEOR with this timeout, started where none runs or the last one failed."""
        with self.turn:
            if self.meteor is None or self.meteor.ended:
                self.end_meteor()
                self.meteor = Meteor(timeout)
            self.meteor.timeout = timeout
            return self.meteor

    def answer(
        self, timeout: float, hypotheses: list[str], references: list[list[str]]
    ) -> tuple[float, list[float], str | None]:
        """The score of all, those of each, and why there are none."""
        with self.turn:
            try:
                return *self.running(timeout).score(hypotheses, references), None
            except NotComputedError as reason:
                return 0.0, [], str(reason)

    def end_meteor(self) -> None:
        if self.meteor is not None:
            self.meteor.close()
            self.meteor = None


class _Client(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with suppress(OSError, ValueError):  # the client ended in the middle of a line
            if json.loads(self.rfile.readline()) != self.server.jar:
                return
            with suppress(NotComputedError):  # the reason is for the first who asks for scores
                self.server.running(0)  # so that METEOR is ready by then
            for line in self.rfile:
                self.wfile.write(f"{json.dumps(self.server.answer(*json.loads(line)))}\n".encode())


def main() -> None:
    """Serve until standard input ends; the socket lies in a folder that nobody else may enter."""
    with tempfile.TemporaryDirectory(prefix="saywhich-") as folder, _Server(Path(folder, "meteor")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address, flush=True)
        sys.stdin.read()
        server.end_meteor()


if __name__ == "__main__":
    main()
