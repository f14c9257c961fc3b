"""Recording of a result file from the outputs of the last run in data/."""

from __future__ import annotations

import csv
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.report.result_file import PrintedFigure, PrintedTable, ResultFile, path_of, read_result
from pipeline.runtime.checksums import check_checksums
from pipeline.runtime.files import sha256, write_atomically

OTHERS = {  # folders in data/ and the commands that write them; profiles use data/report
    "gradients": "make gradients",
    "benchmarks": "make bench",
    "cluster": "python benchmarks/cluster.py",
    "costs": "make costs",
    "judging": "make bench-judging",
    "judging_photos": "python benchmarks/judging_photos.py",
    "reliability": "make fault-injection",
    "mutants": "make mutants",
    "tests": "make test",
    "gradients_scenes": "make gradients TRAINED=data",
    "gradients_flickr8k": "make gradients TRAINED=data",
}
START = re.compile(r"(.+)@start(\d+)")
CODE = ("pipeline", "stages", "benchmarks", "profiles", "dvc.yaml", "Snakefile")


def write_record(
    root: Path,
    name: str,
    figures: Sequence[str],
    profile_text: Callable[[str, Path], str],
    more: Callable[[], str] = str,
) -> Path:
    """Write `results/<name>.json` from the tables in data/, `figures`, this machine and the commit; return its path.

    Tables are those of the folder's Markdown; the PNG of a figure is copied to docs/. The call belongs on the machine
    and at the commit of the run. `profile_text` returns the parameter file of a profile, with the start that its name
    has; `more` returns further tables of a profile's run. `scenes@xeon` is the profile scenes, recorded beside its
    results on other machines, and `scenes@start2` its start 2.

    Raises UserError if the last run was not of this name.
    """
    kind = name.partition("@")[0]
    folder = root / "data" / (kind if kind in OTHERS else "report")
    command = OTHERS.get(kind) or _of_profile(root, name, profile_text)
    check_checksums(folder, f"{command} writes it again")
    sources = sorted(folder.glob("*.md"))
    texts = [path.read_text(encoding="utf-8") for path in sources] + ([] if kind in OTHERS else [more()])
    tables = {caption: table for text in texts for caption, table in tables_in(text)}
    if not (sources and tables):
        raise UserError(f"{folder} has no tables; {command} makes them")
    try:
        result = ResultFile(
            command=command,
            commit=_commit(root),
            date=date.fromtimestamp(max(path.stat().st_mtime for path in sources)).isoformat(),
            machine=_machine(),
            seeds=sorted({int(row["seed"]) for row in _curve(folder) if row["seed"]}),
            tables=tables,
            figures={figure: _drawn(root, name, folder / f"{figure}.png") for figure in figures},
        )
    except ValidationError as error:
        raise UserError(f"{folder}: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}") from None
    write_atomically(path_of(root, name), result.text())
    return path_of(root, name)


def tables_in(markdown: str) -> Iterator[tuple[str, PrintedTable]]:
    """Yield the tables of a Markdown text, each with the line **caption** above it."""
    caption, rows = "", list[list[str]]()
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])])
        elif rows:
            yield caption, PrintedTable(columns=rows[0], rows=rows[2:])
            rows = []
        if given := re.fullmatch(r"\*\*(.+)\*\*", line.strip()):
            caption = given[1]


def start_of(name: str) -> int | None:
    """Return the start that the name of a result file names, as scenes@start2 does; None where it names none."""
    match = START.fullmatch(name)
    return int(match[2]) if match else None


def _of_profile(root: Path, name: str, profile_text: Callable[[str, Path], str]) -> str:
    """Return the command that wrote data/report; raises UserError if that was a run of another profile or start."""
    profile, start = name.partition("@")[0], start_of(name)
    try:
        text = profile_text(name, root / "profiles")
    except UserError as error:
        raise UserError(f"{error}; nor is it one of {', '.join(OTHERS)}") from None
    if (root / "params.yaml").read_text(encoding="utf-8") != text:
        of_start = "" if start is None else f" with start {start}"
        raise UserError(f"params.yaml is not the profile {profile}{of_start}, so data/report is of another run")
    check_checksums(root / "data" / "sweep", "delete it and run the sweep stage again")
    return f"make repro PROFILE={profile}" + ("" if start is None else f" START={start}")


def _drawn(root: Path, name: str, picture: Path) -> PrintedFigure:
    """Copy a figure to docs/, to its path in the existing result file if it has one.

    Raises UserError where the figure is missing.
    """
    shown = START.sub(r"\1", name)
    file = f"docs/{shown}_{picture.stem}.png"
    if path_of(root, name).is_file() and (before := read_result(root, name).figures.get(picture.stem)):
        file = before.file
    if not picture.is_file():
        raise UserError(f"{picture} is missing, which a document shows as {file}")
    shutil.copyfile(picture, root / file)
    return PrintedFigure(file=file, sha256=sha256(root / file))


def _curve(folder: Path) -> list[dict[str, str]]:
    """Return the rows of curve.csv; [] if there is no file."""
    path = folder / "curve.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.is_file() else []


def _commit(root: Path) -> str:
    """Return HEAD's short hash, with `-dirty` where code differs from it; raises UserError outside a repository."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True)
    if git.returncode:
        raise UserError(f"{root} is no git repository, so there is no commit to record")
    there = [name for name in CODE if (root / name).exists()]
    same = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *there], cwd=root).returncode == 0
    return git.stdout.strip() + ("" if same else "-dirty")


def _machine() -> str:
    """Return the processor, cores, accelerator and PyTorch version."""
    import torch

    info = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*: *(.+)", info.read_text() if info.exists() else "", re.MULTILINE)
    processor = named[1] if named else platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([processor, f"{cores} cores", *gpu, f"PyTorch {torch.__version__}"])
