"""Recording of the last run's outputs in data/ as a result file."""

from __future__ import annotations

import csv
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.report.result_file import (
    ImageResamples,
    PrintedFigure,
    PrintedTable,
    ResultFile,
    locate_result_file,
    read_result,
)
from pipeline.runtime.checksums import check_checksums
from pipeline.runtime.cores import count_cores
from pipeline.runtime.files import compute_sha256, write_atomically

COMMANDS = {  # folders in data/, and the commands whose tables they hold; the folder of a profile is data/report
    "gradients": "make gradients",
    "benchmarks": "make bench",
    "cluster": "make bench-cluster",
    "costs": "make costs",
    "judging": "make bench-judging",
    "judging_photos": "python benchmarks/judging_photos.py DATASET.json IMAGES --judge DIR",
    "reliability": "make fault-injection",
    "mutants": "make mutants",
    "tests": "make test",
    "gradients_scenes": "make gradients TRAINED=data",
    "gradients_flickr8k": "make gradients TRAINED=data",
}
START = re.compile(r"(.+)@start(\d+)")
CODE = ("pipeline", "saywhich", "stages", "benchmarks", "profiles", "dvc.yaml", "Snakefile")


def write_record(
    root: Path,
    name: str,
    figures: Sequence[str],
    profile_text: Callable[[str, Path], str],
    measure_claims: Callable[[], tuple[str, ImageResamples | None]] = lambda: ("", None),
) -> Path:
    """Write `results/<name>.json` from the tables in data/, `figures`, this machine and the commit; return its path.

    Tables are read from the Markdown files of the folder, and the PNG of each figure is copied to docs/. Call this
    function on the machine and at the commit of the run. `profile_text` returns the parameter file of a profile and
    start. `measure_claims` returns the claims about a profile's run as Markdown, and their resamples. The name
    `scenes@xeon` is the profile scenes on another machine, and `scenes@start2` is its start 2.

    Raises UserError for an unknown name, where params.yaml differs from the profile and start, and outside a git
    repository. Raises UserError also for damaged outputs, a missing table or figure, an invalid table, and two
    different tables with one title.
    """
    kind = name.partition("@")[0]
    folder = root / "data" / (kind if kind in COMMANDS else "report")
    command = COMMANDS.get(kind) or _check_profile(root, name, profile_text)
    check_checksums(folder, f"{command} writes it again")
    sources = sorted(folder.glob("*.md"))
    claims, resamples = ("", None) if kind in COMMANDS else measure_claims()
    texts = [*(path.read_text(encoding="utf-8") for path in sources), claims]
    try:
        titled_tables = [pair for text in texts for pair in iterate_tables(text)]
    except ValidationError as error:
        raise UserError(
            f"{folder}: a table is damaged ({error.errors()[0]['msg']}); {command} writes it again"
        ) from None
    tables = dict(titled_tables)
    for title, table in titled_tables:
        if table != tables[title]:
            raise UserError(
                f"{folder}: two tables have the title {title!r}; rename one, or give values of report.cider_levels "
                "that differ when rounded to three decimals, or of report.score_levels to four digits"
            )
    if not (sources and tables):
        raise UserError(f"{folder} has no tables; {command} writes them")
    if kind == "benchmarks" and len(sources) == 1:  # make bench writes a file for each benchmark
        command = f"python benchmarks/{sources[0].stem}.py"
    result = ResultFile(
        command=command,
        commit=_describe_commit(root),
        date=date.fromtimestamp(max(path.stat().st_mtime for path in sources)).isoformat(),
        machine=_describe_machine(),
        seeds=sorted({int(row["seed"]) for row in _read_curve(folder) if row["seed"]}),
        tables=tables,
        figures={figure: _describe_figure(root, name, folder / f"{figure}.png") for figure in figures},
        resamples=resamples,
    )
    # figures are copied after the check of all figures, so that a missing figure changes no file
    for figure, printed in result.figures.items():
        shutil.copyfile(folder / f"{figure}.png", root / printed.file)
    write_atomically(locate_result_file(root, name), result.text())
    return locate_result_file(root, name)


def iterate_tables(markdown: str) -> Iterator[tuple[str, PrintedTable]]:
    """Yield the tables of a Markdown text, each with the last bold line above it as its caption, "" without one.

    Raises pydantic's ValidationError for a row with more or fewer cells than columns, and for two equal columns.
    """
    caption, rows = "", list[list[str]]()
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])])
        elif rows:
            yield caption, PrintedTable(columns=rows[0], rows=rows[2:])
            rows = []
        if bold := re.fullmatch(r"\*\*(.+)\*\*", line.strip()):
            caption = bold[1]


def parse_start(name: str) -> int | None:
    """Return the number of the start in the name of a result file, 2 for scenes@start2; None without a start."""
    match = START.fullmatch(name)
    return int(match[2]) if match else None


def _check_profile(root: Path, name: str, profile_text: Callable[[str, Path], str]) -> str:
    """Return the command that runs a profile and start.

    Raises UserError for an unknown profile, where params.yaml differs from the profile and start, or where data/sweep
    is damaged.
    """
    profile, start = name.partition("@")[0], parse_start(name)
    try:
        text = profile_text(name, root / "profiles")
    except UserError as error:
        raise UserError(f"{error}; other names are {', '.join(COMMANDS)}") from None
    command = f"make repro PROFILE={profile}" + ("" if start is None else f" START={start}")
    if (root / "params.yaml").read_text(encoding="utf-8") != text:
        start_text = "" if start is None else f" with start {start}"
        raise UserError(
            f"params.yaml differs from the profile {profile}{start_text}, so data/report belongs to another run; run "
            f"{command} first"
        )
    check_checksums(root / "data" / "sweep", "delete it and run the sweep stage again")
    return command


def _describe_figure(root: Path, name: str, picture: Path) -> PrintedFigure:
    """Return a figure's path in docs/ and its digest; a figure of the existing result file keeps its path.

    Raises UserError where the figure is missing, or where the existing result file is invalid.
    """
    profile = START.sub(r"\1", name)
    file = f"docs/{profile}_{picture.stem}.png"
    if locate_result_file(root, name).is_file() and (recorded := read_result(root, name).figures.get(picture.stem)):
        file = recorded.file
    if not picture.is_file():
        raise UserError(
            f"{picture} is missing; a document shows it as {file}: run the command that writes {picture.parent} again, "
            "or remove the figure from the document"
        )
    return PrintedFigure(file=file, sha256=compute_sha256(picture))


def _read_curve(folder: Path) -> list[dict[str, str]]:
    """Return the rows of curve.csv; [] if there is no file."""
    path = folder / "curve.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.is_file() else []


def _describe_commit(root: Path) -> str:
    """Return HEAD's short hash, with `-dirty` where files of CODE differ from it or are not in it.

    Raises UserError outside a git repository, and in one without a commit.
    """
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True)
    if git.returncode:
        raise UserError(
            f"{root} is not a git repository with a commit: expected the commit of the run; commit the code"
        )
    command = ["git", "status", "--porcelain", "--untracked-files=all", "--", *CODE]
    status = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return git.stdout.strip() + ("-dirty" if status.stdout else "")


def _describe_machine() -> str:
    """Return the processor, cores, accelerator and PyTorch version."""
    import torch

    info = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*: *(.+)", info.read_text() if info.exists() else "", re.MULTILINE)
    processor = model[1] if model else platform.processor() or platform.machine()
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([processor, f"{count_cores()} cores", *gpu, f"PyTorch {torch.__version__}"])
