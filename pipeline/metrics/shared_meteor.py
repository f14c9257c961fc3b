"""One METEOR process for many: whoever starts a grid owns a small server, and every cell of it asks that.

METEOR takes ten CPU seconds to read its tables and as many to get warm, more than a cell's captions take. `share`
starts `python -m pipeline.metrics.shared_meteor` for a process and its children, who find it in SAYWHICH_METEOR and use
it through `meteor`. The server ends with the process that started it, however that ends, because its standard input
does. Where there is no server, or none any more, everybody has a METEOR of their own.
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

    What is returned must be kept for as long as it is needed; None where there is a server already.
    """
    if ADDRESS in environment:
        return None
    pipe = subprocess.PIPE
    # a session of its own: after Ctrl-C the cells that are at work end first
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
    """The server's METEOR, or one of one's own. `timeout`: seconds that one set of captions may take."""
    with suppress(OSError, KeyError):
        return SharedMeteor(os.environ[ADDRESS], timeout)
    return Meteor(timeout)


class SharedMeteor:
    """`Meteor` at the server's; if that ends, or has another METEOR than is installed here, a process of one's own."""

    def __init__(self, address: str, timeout: float) -> None:
        """Raises OSError where no server is."""
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
        """METEOR of tokenised captions. Raises NotComputedError if the process fails or is late, and ever after."""
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
        """Leave the server, and end the process of one's own."""
        with suppress(OSError):
            self._stream.close()
        self._socket.close()
        if self._own is not None:
            self._own.close()

    def _say(self, what: object) -> None:
        self._stream.write(f"{json.dumps(what)}\n")
        self._stream.flush()


class _Server(socketserver.ThreadingUnixStreamServer):
    """Hears many at once, and asks METEOR for one after the other."""

    daemon_threads = True

    def __init__(self, address: Path) -> None:
        super().__init__(str(address), _Client)
        self._jar = sha256(meteor_jar())
        self._turn = threading.Lock()
        self._meteor: Meteor | None = None

    def welcome(self, jar: str) -> bool:
        """Whether it is the METEOR that the client would run; that is started, to be ready when it is needed."""
        if jar == self._jar and self._turn.acquire(blocking=False):  # else it runs already
            with suppress(NotComputedError):  # the reason is told who asks for scores
                self._meteor = self._meteor or Meteor(0)
            self._turn.release()
        return jar == self._jar

    def answer(
        self, timeout: float, hypotheses: list[str], references: list[list[str]]
    ) -> tuple[float, list[float], str | None]:
        """The scores, and why there are none. A process that failed is replaced for whoever comes next."""
        with self._turn:
            if self._meteor is not None and self._meteor.ended:
                self.end_meteor()
            try:
                self._meteor = self._meteor or Meteor(timeout)
                self._meteor.timeout = timeout
                return *self._meteor.score(hypotheses, references), None
            except NotComputedError as reason:
                self.end_meteor()
                return 0.0, [], str(reason)

    def end_meteor(self) -> None:
        if self._meteor is not None:
            self._meteor.close()
            self._meteor = None


class _Client(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with suppress(OSError, ValueError):  # it went away in the middle of something
            if self.server.welcome(json.loads(self.rfile.readline())):
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
