"""The toy data of eight images and twelve words, the shared toy repository, and the order of test files.

Test processes run one thread each, and find the programs of this Python's environment first on PATH. Other programs
print English, git reads no settings of the user, and random inputs are the same in each run.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import preloaded_python
import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings
from run_record import write_run_record
from toy_world import make_world
from whole_profiles import read_profile_text

from pipeline.channels.hard import Beam
from pipeline.channels.search import NoRepeatNgram
from pipeline.composition.joint import Agents
from pipeline.composition.retrieval_rewards import RewardModels
from pipeline.metrics.cider import CiderD, compute_document_frequencies
from pipeline.metrics.text_rewards import TextScorer
from pipeline.models.architectures import ARCHITECTURES, SIZES
from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.listener import Listener
from pipeline.models.retriever import Retriever
from pipeline.types import Batch

SLOW_DESELECTED, START, RECORD = pytest.StashKey[int](), pytest.StashKey[float](), pytest.StashKey[str]()
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WORDS, IMAGES, STEPS = 12, 8, 6  # V, images, the longest caption
SMALL = {"word_dim": 6, "hidden_dim": 8, "attention_dim": 6}  # the other sizes are 2
LONGEST_FIRST = (
    "test_workflow.py",
    "test_profiles.py",
    "test_sweep.py",
    "test_repro.py",
    "test_report_page.py",
    "test_ranks.py",
    "test_loop.py",
    "test_asynchronous.py",
    "test_guidance.py",
    "test_dialog_stages.py",
    "test_faults.py",
    "test_stopping.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Run one thread in this process and its child processes, which find this environment's programs on PATH."""
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ |= {"LC_ALL": "C.UTF-8", "GIT_CONFIG_GLOBAL": os.devnull}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes would each compile all modules
    sys.dont_write_bytecode = False
    programs = str(Path(sys.executable).parent)
    if os.environ["PATH"].split(os.pathsep)[0] != programs:
        os.environ["PATH"] = os.pathsep.join((programs, os.environ["PATH"]))
    config.stash[SLOW_DESELECTED], config.stash[START] = 0, time.monotonic()
    # the file to which `make test` writes its time if all tests pass; pytest processes that tests start have none
    config.stash[RECORD] = os.environ.pop("SAYWHICH_TESTS_RECORD", "")
    if preloaded_python.FOLDER not in os.environ:  # the test processes that this process starts share the folder
        os.environ[preloaded_python.FOLDER] = folder = tempfile.mkdtemp(prefix="python-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the longest files first, so that the test processes of `make test` end at about the same time."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the slow tests that `-m "not slow"` leaves out."""
    for item in items:
        item.config.stash[SLOW_DESELECTED] += item.get_closest_marker("slow") is not None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the count of slow tests from a test process to the process that prints the summary."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["slow deselected"] = session.config.stash[SLOW_DESELECTED]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive the count of slow tests; every test process counts the same ones."""
    node.config.stash[SLOW_DESELECTED] = getattr(node, "workeroutput", {}).get("slow deselected", 0)


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Print how many slow tests were left out; record the time of `make test`."""
    if (record := config.stash[RECORD]) and exitstatus == 0:
        passed, seconds = len(terminalreporter.stats.get("passed", ())), time.monotonic() - config.stash[START]
        write_run_record(Path(record), "make test", passed, seconds, len(config.getoption("tx", [])) or 1)
    if count := config.stash[SLOW_DESELECTED]:
        terminalreporter.write_line(f"{count} slow tests were left out: make test-all runs them")


# `make fault-injection ROWS=fuzz` tries other inputs; drawing inputs may be slow on a busy machine
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


class Toy:
    """Eight images whose captions name them, and randomly initialised agents."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.references = [
            [[1 + i, 9 + (i + k) % 4, *rng.integers(1, WORDS + 1, rng.integers(0, 3)).tolist()] for k in range(3)]
            for i in range(IMAGES)
        ]
        keys, counts = compute_document_frequencies(self.references, max_words=STEPS)
        self.cider = CiderD.build(self.references, keys, counts, IMAGES, max_words=STEPS)
        self.pooled = torch.from_numpy(rng.normal(size=(IMAGES, 5))).float()
        self.regions = torch.from_numpy(rng.normal(size=(IMAGES, 3, 7))).float()

    def batch(self, step: int = 0, caption: int = 0) -> Batch:
        captions = torch.zeros(IMAGES, STEPS, dtype=torch.int64)
        for i, references in enumerate(self.references):
            words = references[caption][:STEPS]
            captions[i, : len(words)] = torch.tensor(words)
        mask = torch.ones(IMAGES, 3, dtype=torch.bool)
        mask[0, 2] = False
        return Batch(torch.arange(IMAGES), self.pooled, self.regions, mask, captions, step=step)

    def agents(self, seed: int = 0, dropout: float = 0.0, decoder: str = "att2in") -> Agents:
        torch.manual_seed(seed if decoder == "att2in" else seed + 7)  # so that no decoder's captions are empty
        architecture = ARCHITECTURES[decoder]
        sizes = architecture.select_arguments(dict.fromkeys(SIZES, 2) | SMALL)
        speaker = architecture.load()(WORDS, 7, **sizes, dropout=dropout, max_words=STEPS)
        texts = TextScorer(lambda row: " ".join(map(str, row)), lambda image: [])
        return Agents(speaker, Listener(WORDS, 5, words=6, hidden=10), self.cider, texts)


def make_reward_models(seed: int = 5) -> RewardModels:
    """Return random heads and a retriever; the neighbours of each toy image are the next two images."""
    torch.manual_seed(seed)
    vectors = torch.nn.functional.normalize(torch.randn(IMAGES, 10), dim=1)
    neighbours = (torch.arange(IMAGES).unsqueeze(1) + torch.tensor([1, 2])) % IMAGES
    torch.nn.init.normal_(
        (encoder := Listener(WORDS, 5, words=6, hidden=10)).word.weight
    )  # so that embeddings of words differ
    retriever = Retriever(encoder, vectors, 0.1, str, neighbours)
    search = NoRepeatNgram(Beam(3), 2)
    return RewardModels(
        retriever, CaptionClassifier(10, (8, 4)), CaptionClassifier(10, (8, 4), with_images=False), search, 0.02
    )


@pytest.fixture(scope="session")
def toy_repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the toy repository after its first `make repro`, and the output of that command.

    Tests copy the repository and do not change it. The first test process that needs it makes it for all processes.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, output = base / "toy repository", base / "toy repository.txt"
    with FileLock(f"{folder}.lock"):
        if not output.exists():
            shutil.rmtree(folder, ignore_errors=True)  # a failed attempt may have left it
            text = make_world(folder)
            output.write_text(text)
    return folder, output.read_text()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real data; skip tests that need it where it is absent."""
    folder = Path(os.environ.get("SAYWHICH_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "flickr8k").is_dir():
        pytest.skip(f"no real data in {folder}; set SAYWHICH_TEST_DATA to a folder with real data")
    return folder


@pytest.fixture(scope="module")
def browser():
    """Yield Chromium without a window; skip tests that need it where it or playwright is absent."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser on PATH: none of {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as driver:
        # Chromium refuses its sandbox to root, as in containers; the pages are the project's own.
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def signals():
    """Set the default handlers of SIGINT and SIGTERM, because background processes of a shell ignore SIGINT."""
    handlers = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture(params=ARCHITECTURES)
def decoder(request) -> str:
    return request.param


@pytest.fixture
def params(tmp_path: Path) -> Path:
    """Write a copy of the scenes profile, and return its path."""
    path = tmp_path / "params.yaml"
    path.write_text(read_profile_text("scenes"), encoding="utf-8")
    return path
