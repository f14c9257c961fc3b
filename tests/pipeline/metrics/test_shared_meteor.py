"""Clients of a shared METEOR get their scores, also after a process is killed, and no process stays running.

The fixture `fake_java` replaces Java by a script that starts at once and answers in METEOR's format.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from pipeline.metrics import java, shared_meteor
from pipeline.metrics.java import Meteor, NotComputedError
from pipeline.metrics.language import LanguageScorer

GOLDEN = Path(__file__).parents[2] / "golden" / "language.json"
FAKE_JAVA = """#!{python}
import sys
if "-version" in sys.argv:
    sys.exit()
for line in sys.stdin:
    first, *parts = line.rstrip("\\n").split(" ||| ")
    if first == "SCORE":
        print(*[len(parts[-1])] * 23)
    else:
        print(*(part.split()[0] for part in parts), len(parts), sep="\\n")
    sys.stdout.flush()
"""
CAPTIONS, HUMAN = ["a dog", "a cat sits"], [["the dog"], ["a cat"]]
SCORES = (2.0, [5.0, 10.0])  # of the script: the number of captions, and the number of characters of each


class MeteorServer:
    """A server process that shares one METEOR."""

    def __init__(self) -> None:
        environment: dict[str, str] = {}
        server = shared_meteor.start_server(environment)
        assert server is not None
        self.server, self.address = server, environment[shared_meteor.ADDRESS]

    def find_meteor(self) -> psutil.Process:
        return wait_for_child(self.server.pid, "meteor-1.5.jar")

    def end(self) -> None:
        self.server.stdin.close()
        self.server.wait(600)
        self.server.stdout.close()
        shutil.rmtree(Path(self.address).parent, ignore_errors=True)  # a killed server leaves its folder


@pytest.fixture
def fake_java(tmp_path, monkeypatch):
    (tmp_path / "java").write_text(FAKE_JAVA.format(python=sys.executable))
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    java._find_java.cache_clear()
    yield
    java._find_java.cache_clear()


@pytest.fixture
def meteor_server(fake_java, monkeypatch):
    server = MeteorServer()
    monkeypatch.setenv(shared_meteor.ADDRESS, server.address)
    yield server
    server.end()


def wait_for_child(pid: int, word: str) -> psutil.Process:
    for _ in range(12_000):
        for child in psutil.Process(pid).children():
            with suppress(psutil.NoSuchProcess):  # a process that just ended has no command line
                if any(word in part for part in child.cmdline()):
                    return child
        time.sleep(0.05)
    raise TimeoutError(word)


def has_ended(process: psutil.Process) -> bool:
    for _ in range(12_000):
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_concurrent_clients_get_their_own_scores_from_one_server(monkeypatch):
    """Four clients score the golden captions at once, two of them in reversed order."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    meteor_server = MeteorServer()
    monkeypatch.setenv(shared_meteor.ADDRESS, meteor_server.address)
    folder = Path(meteor_server.address).parent
    assert os.stat(folder).st_mode & 0o777 == 0o700

    def score_captions(step: int) -> list[np.ndarray]:
        captions, human = zip(*golden["captions"][::step], strict=True)
        with LanguageScorer(["METEOR"]) as scorer:
            assert isinstance(shared_meteor.connect_meteor(1), shared_meteor.SharedMeteor)
            return [scorer.score(captions, human).per_caption["METEOR"][::step] for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(score_captions, [1, -1, 1, -1]):
            np.testing.assert_allclose(found, [golden["per_caption"]["METEOR"]] * 5, rtol=1e-12)
    meteor = meteor_server.find_meteor()
    assert [child.pid for child in psutil.Process(meteor_server.server.pid).children()] == [meteor.pid]
    meteor_server.server.stdin.close()
    assert has_ended(meteor)
    meteor_server.server.wait(600)
    assert not folder.exists()
    meteor_server.end()


def test_a_disconnected_or_late_client_does_not_affect_others(meteor_server):
    disconnected = shared_meteor.connect_meteor(100)
    disconnected._server.send((100, CAPTIONS, HUMAN))
    disconnected.close()
    late = shared_meteor.connect_meteor(0.001)
    many = [[texts[0]] * 200_000 for texts in (CAPTIONS, HUMAN)]
    for captions, human in (many, (CAPTIONS, HUMAN)):  # the second call fails at once, with the error of the first
        with pytest.raises(
            NotComputedError, match=r"^METEOR: no answer within 0\.001 s; the longest .* 2 words: shorten it"
        ):
            late.score(captions, human)
    late.close()
    other = shared_meteor.connect_meteor(100)
    assert isinstance(other, shared_meteor.SharedMeteor)
    assert other.score(CAPTIONS, HUMAN) == SCORES, "the timeout of one client ended the shared METEOR"
    meteor = meteor_server.find_meteor()
    meteor.kill()
    assert has_ended(meteor)
    assert other.score(CAPTIONS, HUMAN) == SCORES
    assert other._fallback is None
    other.close()


def test_clients_start_their_own_meteor_after_the_server_was_killed(meteor_server):
    client = shared_meteor.connect_meteor(100)
    meteor = meteor_server.find_meteor()
    meteor_server.server.kill()
    assert client.score(CAPTIONS, HUMAN) == SCORES
    client.close()
    new_client = shared_meteor.connect_meteor(100)
    assert isinstance(new_client, Meteor)
    new_client.close()
    assert has_ended(meteor), "METEOR still runs after the end of its server"


def test_a_server_with_another_meteor_jar_is_not_used(meteor_server, monkeypatch):
    monkeypatch.setattr(shared_meteor, "compute_sha256", lambda _: "another")
    client = shared_meteor.connect_meteor(100)
    assert isinstance(client, shared_meteor.SharedMeteor)
    assert client.score(CAPTIONS, HUMAN) == SCORES
    assert isinstance(client._fallback, Meteor)
    client.close()


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGTERM))],
)
def test_server_and_meteor_end_with_their_owner(fake_java, number):
    code = (
        "import os, signal, time; from pipeline.metrics import shared_meteor as s; server = s.start_server(os.environ);"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # background jobs of a shell ignore SIGINT
        "client = s.connect_meteor(9);"
        "print(os.environ[s.ADDRESS], server.pid, s.start_server(os.environ), flush=True);"
        "time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
    address, pid, second = owner.stdout.readline().split()
    assert second == "None", "a second server was started"
    server = psutil.Process(int(pid))
    meteor = wait_for_child(server.pid, "meteor-1.5.jar")
    owner.send_signal(number)
    owner.wait()
    owner.stdout.close()
    assert has_ended(server)
    assert has_ended(meteor)
    assert not Path(address).parent.exists()


def test_a_server_has_its_own_session_and_a_closed_meteor_has_closed_pipes():
    """Ctrl-C in a terminal interrupts the cells, which need METEOR until they end."""
    meteor_server = MeteorServer()
    try:
        assert os.getsid(meteor_server.server.pid) == meteor_server.server.pid != os.getsid(0)
    finally:
        meteor_server.end()
    meteor = Meteor(20.0)
    meteor.close()
    assert [pipe.closed for pipe in (meteor._stdin, meteor._stdout, meteor._errors)] == [True, True, True]


def test_a_process_that_ended_is_named_for_zero_captions_too():
    meteor = Meteor(20.0)
    try:
        meteor._process.kill()
        meteor._process.wait()
        with pytest.raises(NotComputedError, match=r"^METEOR: .*Java's last line"):
            meteor.score([], [])
    finally:
        meteor.close()


def test_a_folder_whose_path_is_too_long_for_a_socket_disables_only_sharing(tmp_path, monkeypatch, capfd):
    folder = tmp_path / ("x" * 110)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    environment: dict[str, str] = {}
    server = shared_meteor.start_server(environment)
    assert server is not None
    server.stdin.close()
    assert (server.wait(600), environment) == (0, {})
    server.stdout.close()
    (line,) = capfd.readouterr().err.splitlines()
    warning = "warning: each process starts its own METEOR: AF_UNIX path too long; set TMPDIR to a writable folder with"
    assert line == f"{warning} a short path"


def test_the_end_of_a_server_ends_its_meteor():
    calls = []
    server = shared_meteor._Server()
    server.close()  # no METEOR was started
    server._meteor = SimpleNamespace(close=lambda: calls.append(True))
    server.close()
    assert calls == [True]
