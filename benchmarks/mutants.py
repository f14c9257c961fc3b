"""Mutation tests of the modules of mathematics: one small fault at a time, against the tests that reach it.

    python benchmarks/mutants.py [--number 480] [--seed 0] [--only PACKAGE] [--fault ID] [--survivors] [--list]

`faults.py` finds the faults, and `reached_lines.py` finds the tests that reach each line. Each fault has a process that
is forked from this one after the import of the packages in PRELOADED. The process takes the changed module from memory,
so that no file is written. The selected tests, of at most BUDGET seconds in all or one longer test, run until one
fails. `data/mutants/results.jsonl` keeps each outcome with its commit, so that an interrupted run can continue. The
outcome of a killed fault is reused while its module and its test are unchanged. A survivor's outcome is reused while no
module and no test has changed. If a fault was tried again, its first outcome counts in the column "killed at first %".
A test that was written for a survivor is no evidence about other faults. `mutants_accepted.toml` lists survivors that
stay, with reasons.

mutmut and cosmic-ray were considered. They lack faults such as a missing detach, a sum for a mean, another split,
another network or another seed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import reached_lines
from faults import PACKAGES, Fault, find_faults, find_modules, sample
from printing import show_progress
from reached_lines import ReachingTests, fork_process, run_pytest

ROOT = Path(__file__).parents[1]
OUT = ROOT / "data/mutants"  # absolute: a test may have changed the current folder when it fails
ACCEPTED = Path("benchmarks/mutants_accepted.toml")
SIGNALS = tuple(f"signal {number}" for number in range(1, 65))
BUDGET = 60.0  # seconds of tests per fault
PRELOADED = (
    "hypothesis", "numba", "numpy", "PIL.Image", "pandas", "pyarrow.parquet", "pydantic", "pytest", "safetensors.torch",
    "scipy.stats", "torch", "tqdm",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The outcome of one fault, and the test that killed it."""

    id: str
    package: str
    operator: str
    module: str
    line: int
    function: str
    before: str
    after: str
    killed: bool
    how: str  # the test that failed, or another cause of the end; empty for a survivor
    tests: int  # number of selected tests
    seconds: float
    commit: str


class _ModuleImporter(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """An importer of one module from changed source."""

    def __init__(self, module: str, source: bytes) -> None:
        super().__init__(module.removesuffix(".py").removesuffix("/__init__").replace("/", "."), str(ROOT / module))
        self.source = source

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


class _FailureRecorder:
    """A pytest plugin that records the first failed test."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.out.exists():
            self.out.write_text(report.nodeid)

    pytest_collectreport = pytest_runtest_logreport


def try_fault(fault: Fault, source: bytes, tests: list[str], seconds: float, folder: Path) -> Iterator[str | None]:
    """Yield None while the fault's process runs, then the failed test or another cause of its end; "" for a survivor.

    `seconds` is the sum of its tests' durations. Raises RuntimeError if no test ran.
    """
    folder.mkdir(parents=True, exist_ok=True)
    first_failure, log = folder / "first", folder / "log"
    for arguments in (tests, sorted({test.partition("::")[0] for test in tests})):
        first_failure.unlink(missing_ok=True)
        own_cache = str(folder / "numba") if b"numba" in source or b"@compile_loop" in source else ""
        if own_cache:  # numba keys machine code by the path and time of the source file, which no fault changes
            shutil.rmtree(own_cache, ignore_errors=True)

        def run_tests(arguments: list[str] = arguments, own_cache: str = own_cache) -> None:
            if own_cache:
                os.environ["NUMBA_CACHE_DIR"] = own_cache
                sys.modules["numba"].core.config.reload_config()
            sys.meta_path.insert(0, _ModuleImporter(fault.module, fault.apply(source)))
            os._exit(run_pytest(["-x", *arguments], _FailureRecorder(first_failure)))

        limit = 3 * seconds + (80 if own_cache else 20)
        pid, deadline = fork_process(run_tests, log, limit), time.monotonic() + 5 * limit
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
            yield None
        status = os.waitstatus_to_exitcode(ended[1])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # end the programs that its tests started
        if status != 4 or first_failure.exists():  # 4: a test of that name no longer exists
            break
    if status == 5:
        raise RuntimeError(f"{log}: no test ran")
    if status == 0:
        yield ""
    elif first_failure.exists():
        yield first_failure.read_text()
    else:
        yield f"signal {-status}" if status < 0 else "import"


def run_faults(faults: list[Fault], reaching_tests: ReachingTests, workers: int, commit: str) -> Iterator[Outcome]:
    """Yield the outcome of each fault, in the order of completion."""
    pending, running = list(reversed(faults)), dict[Fault, tuple[Any, ...]]()
    slots = [OUT / f"worker{n}" for n in range(workers)]
    while pending or running:
        while pending and slots:
            fault = pending.pop()
            tests = reaching_tests.tests(fault, BUDGET)
            source = Path(fault.module).read_bytes()
            seconds = sum(cost for _, cost in tests)
            folder = slots.pop()
            names = [name for name, _ in tests]
            states = try_fault(fault, source, names, seconds, folder) if tests else iter([""])
            running[fault] = (states, folder, len(tests), time.monotonic())
        for fault, (states, folder, number, began) in list(running.items()):
            how = next(states)
            if how is not None:
                del running[fault]
                slots.append(folder)
                values = {field.name: getattr(fault, field.name, None) for field in fields(Outcome)}
                elapsed = round(time.monotonic() - began, 1)
                values |= {"line": fault.line, "killed": bool(how), "how": how, "tests": number, "seconds": elapsed}
                yield Outcome(**values | {"commit": commit})
        time.sleep(0.02)


def read_outcomes(first: bool = False) -> dict[str, Outcome]:
    """Return each fault's latest outcome, or with `first` the earliest, before tests were written for survivors."""
    path = OUT / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {outcome.id: outcome for outcome in (Outcome(**json.loads(line)) for line in lines[:: -1 if first else 1])}


def is_valid(outcome: Outcome, commit: str) -> bool:
    """Return whether the files that decide an outcome are the same at `commit` as at its own commit.

    The module and the failed test decide a killed fault, and all modules and tests decide a survivor. Where no test
    failed, as after a signal, the module alone decides.
    """
    if not outcome.killed:
        decisive = ["pipeline", "saywhich", "stages", "tests"]
    elif outcome.how in ("import", *SIGNALS):
        decisive = [outcome.module]
    else:
        decisive = [outcome.module, outcome.how.partition("::")[0]]
    command = ["git", "diff", "--quiet", outcome.commit, commit, "--", *decisive]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def read_accepted(path: Path = ACCEPTED) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return reviewed survivors by module, function and changed text; they stay valid while other lines move."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["accepted"] if path.exists() else []
    return {(entry["module"], entry["function"], entry["after"]): entry for entry in entries}


def write_report(outcomes: Iterable[Outcome], command: str) -> None:
    """Print the shares of killed faults by package and the survivors, and write both to data/mutants/mutants.md."""
    from pipeline.report.tables import format_markdown_table

    accepted, tried_faults = (
        read_accepted(),
        sorted(outcomes, key=lambda each: (each.package, each.module, each.line, each.id)),
    )
    first = read_outcomes(first=True)
    survivors = [each for each in tried_faults if not each.killed]
    entries = {each.id: accepted.get((each.module, each.function, each.after)) for each in survivors}
    rows = []
    for package in [*PACKAGES, "all"]:
        package_outcomes = [each for each in tried_faults if package in (each.package, "all")]
        package_survivors = [each for each in package_outcomes if not each.killed]
        equivalent = sum(bool((entry := entries[each.id]) and entry["equivalent"]) for each in package_survivors)
        accepted_count = sum(bool(entries[each.id]) for each in package_survivors) - equivalent
        tried, killed = len(package_outcomes), len(package_outcomes) - len(package_survivors)
        killed_first = sum(first.get(each.id, each).killed for each in package_outcomes)
        parts = ((killed_first, tried), (killed, tried), (killed, tried - equivalent))
        shares = [f"{100 * part / whole:.1f}" if whole else "–" for part, whole in parts]
        rows.append([package, *map(str, (tried, killed, len(package_survivors), equivalent, accepted_count)), *shares])
    columns = ["package", "faults", "killed", "survived", "equivalent", "accepted"]
    columns += ["killed at first %", "killed %", "without equivalents %"]
    text = f"**Faults by package**\n\n{format_markdown_table(columns, rows, [n > 0 for n in range(len(columns))])}\n"
    cells = [
        [
            f"{each.module.removeprefix('pipeline/')}:{each.line}",
            f"`{each.before}` → `{each.after}`",
            ("equivalent: " * entry["equivalent"] + entry["reason"]) if (entry := entries[each.id]) else "not reviewed",
        ]
        for each in survivors
    ]
    if cells:
        table = format_markdown_table(["where", "fault", "reason"], cells, [False] * 3, padded=False)
        text += f"\n**Survivors**\n\n{table}\n"
    text += f"\n`{command}`\n"
    (OUT / "mutants.md").write_text(text, encoding="utf-8")
    print(text)


def try_listed_faults(path: Path) -> list[dict[str, Any]]:
    """Try the entries of a TOML list (module, before, after, tests); return each with the failed test, or "".

    Raises SystemExit unless `before` occurs once in the module.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    for entry in entries:
        source = Path(entry["module"]).read_bytes()
        start = source.find(entry["before"].encode())
        if start < 0 or source.count(entry["before"].encode()) > 1:
            found = source.count(entry["before"].encode())
            raise SystemExit(
                f"{path}: expected {entry['before']!r} once in {entry['module']}, found it {found} times; "
                "change `before`"
            )
        end = start + len(entry["before"].encode())
        fault = Fault(entry["module"], "", (0, 0), "", start, end, entry["after"], entry["before"], entry["after"])
        *_, entry["killed"] = _poll(try_fault(fault, source, entry["tests"], 20, OUT / "known"))
    return entries


def _poll(states: Iterator[str | None]) -> Iterator[str | None]:
    for state in states:
        time.sleep(0.02)
        yield state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=480, help="size of the sample over all packages and operators")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same faults")
    parser.add_argument("--only", choices=PACKAGES, help="try only the sampled faults of this package")
    parser.add_argument("--fault", metavar="ID", action="append", help="try only this fault")
    parser.add_argument("--survivors", action="store_true", help="try only the sampled faults that survived last time")
    parser.add_argument("--list", action="store_true", help="print the faults and try none")
    parser.add_argument("--known", type=Path, help="try the faults of this TOML file, and print them as JSON")
    parser.add_argument("--workers", type=int, default=1, choices=(1, 2))
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ |= {
        "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "NUMBA_CACHE_DIR": str(OUT / "numba"),
    }  # fmt: skip
    sys.path.insert(0, str(ROOT))
    if options.known:
        _preload()
        print(json.dumps(try_listed_faults(options.known)))
        return
    all_faults = [fault for module in find_modules(Path()) for fault in find_faults(module, Path(module).read_bytes())]
    sampled = (
        [f for f in all_faults if f.id in options.fault]
        if options.fault
        else sample(all_faults, options.number, options.seed)
    )
    sampled = [fault for fault in sampled if options.only in (None, fault.package)]
    outcomes_so_far = read_outcomes()
    if options.survivors:
        sampled = [fault for fault in sampled if fault.id in outcomes_so_far and not outcomes_so_far[fault.id].killed]
    if options.list:
        for fault in sampled:
            print(f"{fault.id} {fault.module}:{fault.line} [{fault.operator}] {fault.before} → {fault.after}")
        return
    commit = _describe_commit()
    _preload()
    reaching_tests = reached_lines.measure_reached_lines(OUT / "map", options.workers)
    rerun = options.survivors or options.fault or commit.endswith("-dirty")
    outcomes = {
        fault.id: outcomes_so_far[fault.id]
        for fault in sampled
        if not rerun and fault.id in outcomes_so_far and is_valid(outcomes_so_far[fault.id], commit)
    }
    with (OUT / "results.jsonl").open("a", encoding="utf-8") as file:
        for outcome in run_faults(
            [fault for fault in sampled if fault.id not in outcomes], reaching_tests, options.workers, commit
        ):
            outcomes[outcome.id] = outcome
            print(json.dumps(asdict(outcome), ensure_ascii=False), file=file, flush=True)
            result = f"killed by {outcome.how}" if outcome.killed else f"SURVIVED {outcome.tests} tests"
            description = f"{outcome.id} {outcome.module}:{outcome.line} {outcome.before} → {outcome.after}"
            show_progress(f"{len(outcomes)}/{len(sampled)} {description}: {result}, {outcome.seconds} s")
    write_report(outcomes.values(), f"make mutants NUMBER={options.number} SEED={options.seed}")


def _preload() -> None:
    for name in PRELOADED:
        importlib.import_module(name)


def _describe_commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude", "*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown-dirty"


if __name__ == "__main__":
    main()
