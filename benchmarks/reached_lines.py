"""Map from lines of the pipeline to the tests that reach them, by coverage of each test file in its own process."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import resource
import shutil
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from faults import Fault
from printing import show_progress

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "channels", "estimators", "scores", "composition", "methods", "models", "metrics", "evaluation", "analysis",
    "training", "data", "dialog", "worlds", "gradients", "report", "readers",
)  # fmt: skip
# tests at the root of tests/ that run the mathematics in this process; most others run none, or start processes without
# the fault
IN_PROCESS_TESTS = (
    "asynchronous", "dialog_stages", "dialogs", "equivalences", "guidance", "methods", "gradients", "oracle",
    "oracle_credit", "oracle_estimators", "oracle_relax", "oracle_rewarded", "plain", "reward_training",
    "rewarded_training",
)  # fmt: skip
MEMORY = 8 * 2**30  # bytes that a process with a fault may allocate
MAX_SECONDS = 600  # CPU seconds that a test file may take


def find_test_files() -> list[Path]:
    """Return the chosen test files, which run the modules of mathematics in their own process."""
    files = [path for name in IN_PROCESS_TESTS if (path := Path(f"tests/test_{name}.py")).exists()]
    files += [Path("tests/pipeline/workflow", name) for name in ("test_build.py", "test_training.py")]
    files.append(Path("tests/pipeline/runtime/test_adam.py"))
    return files + [path for folder in FOLDERS for path in sorted(Path("tests/pipeline", folder).rglob("test_*.py"))]


def fork_process(work: Callable[[], None], log: Path, seconds: float) -> int:
    """Fork a process that runs `work` and writes to `log`, for at most `seconds` of CPU time; return its id."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(99)


def run_pytest(arguments: Sequence[str], *plugins: object) -> int:
    """Run pytest in this process with fixed random examples, and return its exit status."""
    import hypothesis

    hypothesis.settings.register_profile("mutants", database=None, derandomize=True, deadline=None)
    hypothesis.settings.load_profile("mutants")
    folder = tempfile.mkdtemp()
    try:
        options = ["-q", "-p", "no:cacheprovider", "--basetemp", f"{folder}/tests"]
        return int(pytest.main([*options, *arguments], plugins=list(plugins)))
    finally:
        sys.stdout.flush()
        shutil.rmtree(folder, ignore_errors=True)


class _CoverageRecorder:
    """A pytest plugin that records the lines, the outcome and the duration of each test."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = defaultdict(float)
        self.outcomes: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test = nodeid
        self.coverage.switch_context(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Attribute the lines of a fixture that several tests share to all tests of its file."""
        shared = fixturedef.scope != "function"
        if shared:
            self.coverage.switch_context(self.test.partition("::")[0])
        try:
            return (yield)
        finally:
            if shared:
                self.coverage.switch_context(self.test)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        self.outcomes[report.nodeid].add(report.outcome)


def _measure_file(path: Path, out: Path) -> None:
    import coverage

    measurement = coverage.Coverage(data_file=None, source=["pipeline"], config_file=False)
    measurement.start()
    plugin = _CoverageRecorder(measurement)
    run_pytest([str(path)], plugin)
    measurement.stop()
    data = measurement.get_data()
    passed = [test for test, outcomes in plugin.outcomes.items() if outcomes == {"passed"}]
    indices = {test: n for n, test in enumerate(passed)}
    lines = {
        Path(file).relative_to(ROOT).as_posix(): {
            line: sorted(n for test, n in indices.items() if test in tests or str(path) in tests)
            for line, tests in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    digests = {name: _compute_digest(name) for name in (str(path), *lines)}
    tests = [[test, round(plugin.seconds[test], 3)] for test in passed]
    out.write_text(json.dumps({"digests": digests, "tests": tests, "lines": lines}), encoding="utf-8")


def measure_reached_lines(folder: Path, workers: int = 1) -> ReachingTests:
    """Return the tests by line; a test file runs again if it or a module that it reaches has changed."""
    folder.mkdir(parents=True, exist_ok=True)
    outs = {path: folder / (path.with_suffix("").as_posix().replace("/", ".") + ".json") for path in find_test_files()}
    pending = [path for path, out in outs.items() if not _is_valid(out)]
    running = set[int]()
    while pending or running:
        while pending and len(running) < workers:
            path = pending.pop(0)
            show_progress(f"lines that {path} reaches")
            out = outs[path]
            out.unlink(missing_ok=True)
            log = out.with_suffix(".log")
            running.add(fork_process(lambda path=path, out=out: _measure_file(path, out), log, MAX_SECONDS))
        running.discard(os.wait()[0])
    for out in outs.values():
        if not out.exists():
            show_progress(f"the tests of {out.name} did not end; see {out.with_suffix('.log')}")
    return ReachingTests([json.loads(out.read_text(encoding="utf-8")) for out in outs.values() if out.exists()])


def _is_valid(out: Path) -> bool:
    if not out.exists():
        return False
    digests = json.loads(out.read_text(encoding="utf-8"))["digests"]
    return all(_compute_digest(name) == digest for name, digest in digests.items())


def _compute_digest(name: str) -> str:
    path = ROOT / name
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


class ReachingTests:
    """Tests by the lines that they reach."""

    def __init__(self, files: list[dict[str, Any]]) -> None:
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for file in files:
            self.seconds |= dict(file["tests"])
            names = [name for name, _ in file["tests"]]
            for module, lines in file["lines"].items():
                for line, tests in lines.items():
                    self.lines[module][int(line)] |= {names[n] for n in tests}

    def tests(self, fault: Fault, budget: float) -> list[tuple[str, float]]:
        """Return tests that reach the fault with their seconds: at most `budget` seconds in all, or one longer test.

        Tests are selected in rounds: the first parameter set of each test, then the second of each, and so on. In a
        round, the test file with the module's name comes first, then cheap tests and tests of the same folder. The
        selected tests of a file stay together.
        """
        stem, package = Path(fault.module).stem, Path(fault.module).parent.relative_to("pipeline").as_posix()

        def rank_test(test: str) -> tuple[bool, float, str]:
            file = Path(test.partition("::")[0])
            distance = 1 if file.parent.as_posix() == f"tests/pipeline/{package}" else 2
            return file.stem != f"test_{stem}", distance * (self.seconds[test] + 0.02), test

        reaching, kinds, ranked = sorted(self._find_reaching_tests(fault), key=rank_test), Counter[str](), []
        for position, test in enumerate(reaching):
            kind = test.partition("[")[0]
            ranked.append((kinds[kind], position, test))
            kinds[kind] += 1
        selected, files, spent = [], list[str](), 0.0
        for _, _, test in sorted(ranked):
            if spent + self.seconds[test] <= budget or not selected:
                selected.append(test)
                files.append(test.partition("::")[0])
                spent += self.seconds[test]
        selected.sort(key=lambda test: files.index(test.partition("::")[0]))
        return [(test, self.seconds[test]) for test in selected]

    def _find_reaching_tests(self, fault: Fault) -> set[str]:
        """Return the tests that reach the fault's statement.

        A statement that runs at import alone counts as reached by other tests. For a default, these are the tests of
        its function. For a field, they are the tests of its class's methods. For a constant, they are the module's.
        Code that numba compiles is not traced; it also counts as reached by all tests of the modules that import it.
        """
        bodies = [body for body in _list_functions(fault.module) if body[0] == fault.function]
        if any(first <= fault.lines[0] <= last for _, first, last in bodies):
            direct_tests = self._collect_tests(fault.module, [("", *fault.lines)])
            if direct_tests or not _is_compiled(fault.module):
                return direct_tests
        inner = [body for body in _list_functions(fault.module) if f"{body[0]}.".startswith(f"{fault.function}.")]
        module_tests = self._collect_tests(fault.module, inner) or self._collect_tests(
            fault.module, _list_functions(fault.module)
        )
        if module_tests and not _is_compiled(fault.module):
            return module_tests
        importer_tests = [
            self._collect_tests(module, _list_functions(module)) for module in _find_importers(fault.module)
        ]
        return module_tests.union(*importer_tests)

    def _collect_tests(self, module: str, bodies: Iterable[tuple[str, int, int]]) -> set[str]:
        lines = self.lines.get(module, {})
        return {test for _, first, last in bodies for n in range(first, last + 1) for test in lines.get(n, ())}


@cache
def _list_functions(module: str) -> list[tuple[str, int, int]]:
    """Return the functions of a module: qualified name, first and last line of the body."""
    functions = []

    def walk(node: ast.AST, names: list[str]) -> None:
        for child in ast.iter_child_nodes(node):
            is_definition = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            inner = [*names, child.name] if is_definition else names
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append((".".join(inner), child.body[0].lineno, child.end_lineno or child.lineno))
            walk(child, inner)

    walk(ast.parse((ROOT / module).read_text(encoding="utf-8")), [])
    return functions


@cache
def _is_compiled(module: str) -> bool:
    return "runtime.compiled" in (ROOT / module).read_text(encoding="utf-8")


@cache
def _find_importers(module: str) -> list[str]:
    package, _, name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".").rpartition(".")
    imports = (f"from {package}.{name} import", f"from {package} import {name}")
    return [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "pipeline").rglob("*.py"))
        if any(statement in path.read_text(encoding="utf-8") for statement in imports)
    ]
