"""Trials of the guarantees in RELIABILITY.md: killed stages, damaged files, full disks, and more.

    python benchmarks/reliability.py [ROW ...] [--kills 200] [--damages 1000] [--cases 1700] [--writers 32]
        [--images 200] [--world FOLDER]

Each row is kept in data/reliability/ROW.json. data/reliability/reliability.md has these rows, and other rows from
results/reliability.json; `make record PROFILE=reliability` writes the latter file again. Stages that are killed,
interrupted or run on full disks are forked from this process after its imports. Random instants thus fall into their
work and not into the start of an interpreter. Snakemake, `make repro` and their jobs are not forked.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import chain, cycle, islice
from pathlib import Path

from printing import show_progress

ROOT = Path(__file__).parents[1]
OUT = Path("data/reliability")
RECORDED = ROOT / "results/reliability.json"
MAX_LENGTH = 160  # characters of the failures
GRID_INTERVAL = 50  # one in this many kills hits the grid, which takes as long as many stages
TestSelection = tuple[Sequence[str], Sequence[str]]  # files, and parts of the tests' names; () for all tests
# rows of the table that run tests of the suite
HOSTILE: Mapping[str, TestSelection] = {
    "untrusted names, paths, links and pickles": (("tests/test_untrusted_parameters.py",), ()),
    "untrusted archives": (("tests/pipeline/corpora/test_archives.py", "tests/pipeline/runtime/test_untrusted.py"), ()),
    "untrusted weights": (
        ("tests/pipeline/features/test_network_weights.py", "tests/pipeline/models/test_agent_files.py"),
        (),
    ),
    "markup and formulas in captions": (
        tuple(f"tests/pipeline/report/test_{name}.py" for name in ("report_page", "number_files", "browser")),
        ("markup", "formula", "escaped"),
    ),
}
DIVERGING: Mapping[str, TestSelection] = {
    "NaN, exploding gradients, collapse, endless captions": (
        ("tests/pipeline/training/test_loop.py", "tests/pipeline/evaluation/test_validation.py"),
        ("divergence", "nan", "infinite", "exploding", "constant"),
    ),
}
RANDOM = (  # the tests of test_fuzz.py that draw their inputs
    "test_a_random_value_is_read_or_named",
    "test_replaced_removed_or_inserted_bytes_are_read_or_named",
    "test_any_settings_are_read_or_refused_in_one_line",
    "test_any_array_is_read_or_refused_by_a_value_error",
)


@dataclass(frozen=True)
class TrialResult:
    """One line of the table: the kind of trial, the number of trials, how many held, and a note.

    The note lists the failures, or else the measured peak or the reason for skipped trials.
    """

    tried: str
    times: int
    held: int
    note: str = ""


@dataclass(frozen=True)
class TrialOptions:
    """The requested numbers of trials and images, a toy world, and the folder of a row's temporary files."""

    kills: int
    damages: int
    cases: int
    writers: int
    images: int
    world: Path
    scratch: Path


def count_outcomes(tried: str, outcomes: Iterable[str]) -> TrialResult:
    """Count `outcomes`: each is a failure, or "" where the guarantee held."""
    results = list(outcomes)
    failures = Counter(outcome for outcome in results if outcome)
    text = "; ".join(f"{number} × {outcome}" for outcome, number in failures.most_common())
    return TrialResult(tried, len(results), len(results) - failures.total(), _clip(text))


def kill_stages(trial: TrialOptions) -> Iterator[TrialResult]:
    """Kill stages by SIGKILL, and run the same command again."""
    return _interrupt(trial, trial.kills, (signal.SIGKILL,), "SIGKILL")


def interrupt_stages(trial: TrialOptions) -> Iterator[TrialResult]:
    """Interrupt stages by SIGTERM and SIGINT in turn, a quarter as often as `kill_stages` does."""
    return _interrupt(trial, trial.kills // 4, (signal.SIGTERM, signal.SIGINT), "SIGTERM or SIGINT")


def _interrupt(
    trial: TrialOptions, number: int, signals: tuple[signal.Signals, ...], label: str
) -> Iterator[TrialResult]:
    from stage_interruption import (
        STAGES,
        ForkedStage,
        import_everything,
        interrupt,
        make_grid_work,
        make_work,
        start_stage,
    )

    import_everything()
    grid_signals = number // GRID_INTERVAL
    share, remainder = divmod(number - grid_signals, len(STAGES))
    for n, name in enumerate(STAGES):
        times = share + (n < remainder)
        show_progress(f"{times} times {label}, {name}")
        work = make_work(trial.world, trial.scratch, name)
        yield count_outcomes(f"{label}: {name}", interrupt(work, list(islice(cycle(signals), times)), ForkedStage))
    if grid_signals:
        show_progress(f"{grid_signals} times {label}, the grid")
        work = make_grid_work(trial.world)
        yield count_outcomes(
            f"{label}: the grid", interrupt(work, list(islice(cycle(signals), grid_signals)), start_stage)
        )


def signal_make(trial: TrialOptions) -> Iterator[TrialResult]:
    """Send a signal to the process group of `make repro` or to one of its processes, a tenth as often as SIGKILL."""
    from process_stopping import stop_repeatedly

    times = trial.kills // 10
    show_progress(f"{times} times SIGTERM, SIGINT or SIGHUP, make repro")
    yield count_outcomes("SIGTERM, SIGINT, SIGHUP: the tree of make repro", stop_repeatedly(trial.world, times))


def damage_files(trial: TrialOptions) -> Iterator[TrialResult]:
    """Damage files of every kind that stages read, caches, and files that `make verify` and the MLflow sender check."""
    from file_damage import list_records, list_stage_files, make_caches, try_damages

    scratch = trial.scratch / "damage"
    kinds = [*list_stage_files(trial.world, scratch), *make_caches(scratch), *list_records(trial.world, scratch)]
    for kind in kinds:
        show_progress(f"damaged {kind.name}")
        outcomes = (outcome for _, outcome in try_damages(kind, trial.damages // len(kinds)))
        yield count_outcomes(f"flipped bit, truncated, emptied or swapped: {kind.name}", outcomes)


def fill_disks(trial: TrialOptions) -> Iterator[TrialResult]:
    """Run stages on full and on read-only disks."""
    from full_disk import mount_small_disk, try_full_disk
    from stage_interruption import STAGES, ForkedStage, import_everything

    import_everything()
    folder = trial.scratch / "disk"
    try:
        with mount_small_disk(folder):
            outcomes = chain.from_iterable(
                try_full_disk(trial.world, folder, name, (0.0, 0.3, 0.6, 0.9), ForkedStage) for name in STAGES
            )
            yield count_outcomes("a full or read-only disk: every stage", outcomes)
    except PermissionError as error:
        yield TrialResult("a full or read-only disk: every stage", 0, 0, str(error))


def fuzz_inputs(trial: TrialOptions) -> Iterator[TrialResult]:
    """Try inputs that Hypothesis generates, inputs made by hand, and coverage-guided bytes."""
    names = " or ".join(RANDOM)
    output = _run_pytest(["tests/test_fuzz.py", "-s", "-k", names], SAYWHICH_FUZZ_CASES=str(trial.cases))
    cases = sum(map(int, re.findall(r"(\d+) cases were tried", output)))
    failed = len(re.findall(r"^FAILED ", output, re.MULTILINE))
    yield TrialResult("annotations, settings, arrays at random", cases, cases - failed, _list_failures(output))
    output = _run_pytest(["tests/test_fuzz.py", "-k", f"not ({names})"])
    yield _count_tests(output, "decompression bombs, named pipes, deep nesting and other inputs made by hand")
    yield _fuzz_importers(trial)


def _fuzz_importers(trial: TrialOptions) -> TrialResult:
    """Fuzz each importer by atheris, with 3 × `trial.cases` inputs each."""
    from fuzzed_bytes import fuzz_importer, make_importers

    if find_spec("atheris") is None:
        return TrialResult("coverage-guided bytes", 0, 0, "atheris is not installed: install the extra fuzz")
    names, times, failures = list(make_importers(trial.scratch)), 0, list[str]()
    for name in names:
        show_progress(f"{3 * trial.cases} inputs of {name}")
        number, failure = fuzz_importer(name, 3 * trial.cases)
        times += number
        if failure:
            failures.append(failure)
    tried = f"coverage-guided bytes, of {len(names)} importers"
    return TrialResult(tried, times, times - len(failures), _clip("; ".join(failures)))


def run_writers(trial: TrialOptions) -> Iterator[TrialResult]:
    """Try many concurrent MLflow writers, and MLflow killed, locked, removed or absent."""
    output = _run_pytest(["tests/pipeline/tracking/test_recorder.py"], SAYWHICH_WRITERS=str(trial.writers))
    lost = re.search(r"^FAILED .*first_writers", output, re.MULTILINE) is not None
    yield TrialResult(
        f"{trial.writers} MLflow writers at once: no metric lost", trial.writers, 0 if lost else trial.writers
    )
    yield _count_tests(output, "MLflow killed, locked, removed or absent")


def try_hostile_inputs(trial: TrialOptions) -> Iterator[TrialResult]:
    """Try hostile names, paths, links, archives, pickles and markup."""
    return _run_tests(HOSTILE)


def try_diverging_runs(trial: TrialOptions) -> Iterator[TrialResult]:
    """Try diverging training runs."""
    return _run_tests(DIVERGING)


def measure_memory(trial: TrialOptions) -> Iterator[TrialResult]:
    """Measure the stages' peak memory on ten times the images; it must grow by less than a quarter."""
    from stage_memory import measure_peaks

    for name, small, large in measure_peaks(trial.scratch / "memory", trial.images, 10):
        peaks = f"{small:.0f} MB with {trial.images:,} images, {large:.0f} MB with {10 * trial.images:,}"
        yield TrialResult(f"memory at 10 × the data: {name}", 1, int(large < 1.25 * small), peaks)


def try_hostile_requests(trial: TrialOptions) -> Iterator[TrialResult]:
    """Try hostile requests to `saywhich serve`, very large photos, damaged study answers, and unwritable outputs."""
    from hostile_requests import (
        caption_large_photos,
        check_hostile_answer,
        make_hostile_bodies,
        run_server,
        send_large_requests,
    )
    from saywhich_world import make_repository

    data = make_repository(trial.scratch, pca_dim=5, vector="mean_and_max", horizontal_flip=True)
    with run_server(data / "models/psst_multinomial") as server:
        show_progress("requests that take memory")
        outcomes = [outcome for _, outcome in send_large_requests(server)]
        peak = f"at most {server.memory('VmHWM'):.0f} MB above the model"
        line = count_outcomes("decompression bombs, held uploads and long lists to saywhich serve", outcomes)
        yield line if line.note else TrialResult(line.tried, line.times, line.held, peak)
        show_progress("hostile JSON")
        answers = ((address, body, *server.post(address, body)) for address, body in make_hostile_bodies())
        yield count_outcomes("hostile JSON to saywhich serve", (check_hostile_answer(*answer) for answer in answers))
    show_progress("photos of 176 megapixels")
    outcomes = [
        outcome for _, outcome in caption_large_photos(data / "models/psst_multinomial", trial.scratch / "photos")
    ]
    yield count_outcomes("two PNGs of 176 megapixels at once to saywhich caption", outcomes)
    output = _run_pytest(
        ["tests/pipeline/study/test_damaged_answers.py", "-s"], SAYWHICH_DAMAGES=str(trial.damages // 5)
    )
    for times, faults in re.findall(r"(\d+) damages were tried, (\d+) fell short", output):
        yield TrialResult(
            "damaged answers and keys of studies", int(times), int(times) - int(faults), _list_failures(output)
        )
    outputs = ["tests/saywhich/test_outputs.py", "tests/saywhich/test_serve.py"]
    yield _count_tests(_run_pytest(outputs), "impossible outputs, hosts and ports, and untrusted names")


def try_exported_models(trial: TrialOptions) -> Iterator[TrialResult]:
    """Try damaged files of trained models, killed exports, and hostile exported models."""
    from file_damage import try_damages
    from hostile_exports import kill_exports, make_model_kind, try_hostile_values
    from saywhich_world import make_repository, paint

    import saywhich
    from saywhich.exporting import export_model

    data = make_repository(trial.scratch, pca_dim=5, vector="mean_and_max", horizontal_flip=True)
    model, out, photo = data / "models/psst_multinomial", trial.scratch / "out/model", paint(trial.scratch / "a.png", 5)
    export_model(model, out)
    for name, folder, root in (("in its repository", model, data), ("exported", out, out)):
        show_progress(f"damaged files of a model {name}")
        kind = make_model_kind(name, folder, root, photo)
        outcomes = (outcome for _, outcome in try_damages(kind, trial.damages // 2))
        yield count_outcomes(f"flipped bit, truncated, emptied or swapped: a model {name}", outcomes)
    show_progress("killed exports")
    yield count_outcomes("SIGKILL before each write of an export", kill_exports(model, out))
    show_progress("hostile values")
    saywhich.load(out).caption([photo])  # modules imported at first use are then in all forks
    yield count_outcomes(
        "hostile values and tensors in an exported model", try_hostile_values(out, photo, trial.damages)
    )
    captioners = ["tests/test_foreign_captioners.py", "tests/saywhich/test_hostile.py"]
    yield _count_tests(_run_pytest(captioners), "code, repositories, ranges and shapes of untrusted models")


ROWS: dict[str, Callable[[TrialOptions], Iterator[TrialResult]]] = {
    "kills": kill_stages, "interrupts": interrupt_stages, "signals": signal_make, "damage": damage_files,
    "disk": fill_disks, "fuzz": fuzz_inputs, "writers": run_writers, "hostile": try_hostile_inputs,
    "diverging": try_diverging_runs, "memory": measure_memory,
    "server": try_hostile_requests, "exports": try_exported_models,
}  # fmt: skip
ON_A_WORLD = ("kills", "interrupts", "signals", "damage", "disk")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"a row of the table: {', '.join(ROWS)}; default: all")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--cases", type=int, default=1700, help="number of inputs of each of the six random kinds")
    parser.add_argument("--writers", type=int, default=32)
    parser.add_argument(
        "--images",
        type=int,
        default=200,
        help="images of the smaller data set of the row memory; the larger one has ten times as many",
    )
    parser.add_argument("--world", type=Path, help="an existing toy world; default: a new one")
    options = parser.parse_args()
    sys.path += [str(ROOT), str(ROOT / "tests")]  # this order matters, because tests/ also has a folder pipeline
    from toy_world import make_world

    rows = options.rows or list(ROWS)
    if unknown := set(rows) - set(ROWS):
        parser.error(f"unknown row {', '.join(unknown)}: choose from {', '.join(ROWS)}")
    with tempfile.TemporaryDirectory() as scratch:
        world = options.world or Path(scratch) / "world"
        if set(rows) & set(ON_A_WORLD) and not (world / "data/report/report.html").exists():
            show_progress("a toy world")
            world.mkdir(parents=True, exist_ok=True)
            make_world(world)
        numbers = {key: value for key, value in vars(options).items() if key not in ("rows", "world")}
        for row in rows:
            trial, began = TrialOptions(**numbers, world=world.resolve(), scratch=Path(scratch) / row), time.monotonic()
            trial.scratch.mkdir()
            lines = []
            for line in ROWS[row](trial):  # each line is kept at once, so that it stays if a later one fails
                lines.append(line)
                write_row(row, trial, lines, time.monotonic() - began)
        show()


def write_row(row: str, trial: TrialOptions, lines: list[TrialResult], seconds: float) -> None:
    """Write the row with its command and the commit of the code."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    command = f"make fault-injection ROWS={row}"
    command += f" KILLS={trial.kills}" if row in ("kills", "interrupts", "signals") else ""
    command += f" DAMAGES={trial.damages}" if row in ("damage", "server", "exports") else ""
    record = {"command": command, "commit": commit.stdout.strip(), "seconds": round(seconds)}
    record["lines"] = [asdict(line) for line in lines]
    OUT.mkdir(parents=True, exist_ok=True)
    # the path of the temporary folder differs between machines
    content = json.dumps(record, indent=1).replace(str(trial.world), "WORLD")
    (OUT / f"{row}.json").write_text(content + "\n", encoding="utf-8")


def show() -> None:
    """Print all rows, each with its commit, and write them to data/reliability/reliability.md."""
    from pipeline.report.tables import format_markdown_table

    columns = ["what was tried", "times", "held", "failures, and what was skipped", "command", "commit"]
    cells = [line for row in ROWS for line in _read_row(row)]
    text = f"**Trials**\n\n{format_markdown_table(columns, cells, [n in (1, 2) for n in range(len(columns))])}\n"
    (OUT / "reliability.md").write_text(text, encoding="utf-8")
    print(text)


def _read_row(row: str) -> list[list[str]]:
    """Return the cells of a row's lines, from this machine's file or else from results/reliability.json."""
    if not (path := OUT / f"{row}.json").exists():
        recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["tables"]["Trials"]["rows"]
        return [cells for cells in recorded if re.search(rf"ROWS={row}\b", cells[4])]
    record = json.loads(path.read_text(encoding="utf-8"))
    return [
        [
            line["tried"],
            f"{line['times']:,}",
            f"{line['held']:,}",
            line["note"] or "–",
            f"`{record['command']}`",
            record["commit"],
        ]
        for line in record["lines"]
    ]


def _run_tests(lines: Mapping[str, TestSelection]) -> Iterator[TrialResult]:
    for tried, (files, names) in lines.items():
        yield _count_tests(_run_pytest([*files, *(["-k", " or ".join(names)] if names else [])]), tried)


def _run_pytest(arguments: list[str], **environment: str) -> str:
    """Run pytest with these arguments and return its output. Raises RuntimeError where no test ran."""
    command = [sys.executable, "-m", "pytest", "-rfEs", "-p", "no:cacheprovider", *arguments]
    show_progress(" ".join(arguments))
    process = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if process.returncode not in (0, 1):  # pytest's status is 4 for a missing file, 5 where no name matches
        raise RuntimeError(f"{' '.join(command)}: {(process.stdout + process.stderr)[-1000:]}")
    return process.stdout + process.stderr


def _count_tests(output: str, tried: str) -> TrialResult:
    counts = {outcome: int(number) for number, outcome in re.findall(r"(\d+) (passed|failed|error|skipped)", output)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    return TrialResult(tried, counts.get("passed", 0) + failed, counts.get("passed", 0), _list_failures(output))


def _list_failures(output: str) -> str:
    return _clip("; ".join(re.findall(r"^(?:FAILED|ERROR|SKIPPED) (.+)", output, re.MULTILINE)))


def _clip(text: str) -> str:
    line = " ".join(text.replace("|", "/").split())
    return line if len(line) <= MAX_LENGTH else f"{line[:MAX_LENGTH]} …"


if __name__ == "__main__":
    main()
