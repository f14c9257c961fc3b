"""Records of a run: written to a spool during the run, and sent to MLflow by a separate process.

`record_run` appends records to a file in `mlflow-spool/<run>/`. `python -m pipeline.tracking send` sends new lines and
removes the folder after the last line (sender.py). The first run on a machine starts this process, one for each
setting of MLflow. A process serves all runs with its setting, and ends after IDLE seconds without a run. Training
therefore neither imports mlflow nor waits for it; a finished run waits at most MAX_WAIT seconds. A killed run is
recorded as KILLED. Records that could not be sent stay in the spool until `python -m pipeline.tracking sync`.

Environment variables:

    MLFLOW_TRACKING_URI        default: `mlflow.db`, SQLite, beside the spool
    MLFLOW_EXPERIMENT_NAME     default: saywhich
    SAYWHICH_PARENT_RUN        the key of the parent run
    SAYWHICH_CELL              appended to the run's name
    SAYWHICH_PROFILE           the name of a run that becomes the parent of runs without a parent
    SAYWHICH_TRACKING=off      no record
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from pipeline.runtime.files import compute_digest, compute_sha256, write_atomically
from pipeline.tracking.spool import (
    NOT_SENT,
    SYNC,
    compute_sender_id,
    find_root,
    format_line,
    get_milliseconds,
    is_locked,
)

PARENT, PROFILE = "SAYWHICH_PARENT_RUN", "SAYWHICH_PROFILE"
MAX_WAIT = 120.0  # seconds that a finished run waits for its records to be sent
MEMORY, PROCESSOR = "process/peak_memory_megabytes", "process/processor_seconds"
MAX_OUTPUT_BYTES = 64 * 2**20  # bytes; larger outputs are recorded by their digests alone


class RunRecord:
    """Record of one run, in the `folder` of the spool; without a `folder`, nothing is recorded."""

    def __init__(self, folder: Path | None, key: str = "") -> None:
        self.key = key
        self._folder = folder
        self._tables: list[dict[str, str]] = []
        self._file: TextIO | None = None
        if folder is not None:
            folder.mkdir(parents=True)
            self._file = open(folder / "records.jsonl", "w", encoding="utf-8", buffering=1)  # noqa: SIM115
            fcntl.flock(self._file, fcntl.LOCK_EX)  # the sender counts the run as alive while this lock is held

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment for processes whose runs become children of this run."""
        if self._folder is None:
            return dict(os.environ)
        return os.environ | {PARENT: self.key}

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Record metrics of one step. MLflow allows no `@` and no brackets: `R@1 (hard)` becomes `R_at_1 hard`."""
        if self._file:
            numbers = {format_mlflow_name(name): float(value) for name, value in values.items()}
            self._record({"metrics": numbers, "step": step, "time": get_milliseconds()})

    def set_tags(self, values: Mapping[str, str]) -> None:
        """Record texts about the run, cut to 8,000 characters each."""
        self._record({"tags": {format_mlflow_name(name): str(value)[:8000] for name, value in values.items()}})

    def log_text(self, content: str, artifact: str) -> None:
        """Write a text file at the path `artifact` within the run; characters without a UTF-8 form become `?`."""
        self._attach(artifact, lambda path: write_atomically(path, content.encode(errors="replace")))

    def log_table(self, columns: Mapping[str, Sequence[Any]], artifact: str) -> None:
        """Write columns of equal length, such as sampled captions, as a `.json` file that MLflow shows as a table."""
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        self.log_text(json.dumps({"columns": list(columns), "data": rows}, ensure_ascii=False, default=str), artifact)
        if (entry := {"path": artifact, "type": "table"}) not in self._tables:
            self._tables.append(entry)
            self.set_tags({"mlflow.loggedArtifacts": json.dumps(self._tables)})

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """Copy the current content of the file `path` into the run's `folder`."""
        self._attach(str(Path(folder) / path.name), lambda copy: shutil.copyfile(path, copy))

    def log_outputs(self, paths: Iterable[Path]) -> None:
        """Record the SHA-256 of each file or folder as a tag `output.<path>`, and copy small files to `outputs/`.

        Weights (`.safetensors`) are also recorded as a model, which gets the name of the run.
        """
        for path in paths if self._file else ():
            try:
                self.set_tags({f"output.{path}": (digest := compute_digest(path))})
                if path.suffix == ".safetensors":
                    self._record({"model": {"path": str(path), "sha256": digest}})
                if path.is_file() and path.stat().st_size <= MAX_OUTPUT_BYTES:
                    self.log_artifact(path, "outputs")
            except OSError as error:
                _warn(f"not recorded as an output: {error}; correct this for the next run")

    def _attach(self, artifact: str, write: Callable[[Path], object]) -> None:
        if self._folder is None:
            return
        path = self._folder / "artifacts" / artifact
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path)
            self._record({"artifact": artifact, "sha256": compute_sha256(path)})
        except OSError as error:
            self._stop_recording(error)

    def _record(self, record: Mapping[str, Any]) -> None:
        if self._file:
            try:
                self._file.write(format_line(record, self.key))
            except OSError as error:
                self._stop_recording(error)

    def _stop_recording(self, error: OSError) -> None:
        """Warn once and record nothing more: a full disk must not end a training run."""
        _warn(f"nothing more is recorded of this run: {error}; the run continues; correct this for the next run")
        self._close()
        self._folder = None

    def _close(self) -> None:
        if self._file:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)  # also for forked workers that still have the file open
                self._file.close()
            self._file = None


@contextmanager
def record_run(
    name: str,
    params: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Iterator[RunRecord]:
    """Record the block as an MLflow run.

    The status is KILLED after KeyboardInterrupt, FAILED after any other exception, and FINISHED otherwise. An exit with
    status 0 also counts as FINISHED. `params` may be nested; their names are joined by dots. `inputs` are digests by
    path. Ranks other than 0 record nothing. A failure of the tracker never ends the block, and is reported in one line
    on stderr.
    """
    from pipeline.runtime import ranks  # imports torch, which the sender does not need

    if os.environ.get("SAYWHICH_TRACKING") == "off" or ranks.get_rank():
        yield RunRecord(None)
        return
    record = _start_record(name, params or {}, tags or {}, inputs or {})
    folder = record._folder
    sender = Sender(folder) if folder else None
    status = "FAILED"
    try:
        yield record
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    except SystemExit as ended:
        status = "FAILED" if ended.code else "FINISHED"
        raise
    finally:
        record.log_metrics(_measure_resources(), step=0)
        record._record({"status": status, "time": get_milliseconds()})
        record._close()
        if sender and status != "KILLED":  # a killed run does not wait; the sender finishes alone
            sender.wait()


def _start_record(
    name: str, params: Mapping[str, Any], tags: Mapping[str, str], inputs: Mapping[str, str]
) -> RunRecord:
    key = uuid.uuid4().hex
    name = f"{name} {os.environ.get('SAYWHICH_CELL', '')}".strip()
    folder_name = re.sub(r"[^\w@=,.-]", "_", f"{time.strftime('%Y%m%dT%H%M%S')}-{name}")[:150]
    try:
        record = RunRecord(find_root() / "mlflow-spool" / f"{folder_name}-{key[:8]}", key)
    except OSError as error:
        _warn(f"nothing is recorded of this run: {error}; the run continues; correct this for the next run")
        return RunRecord(None)
    profile = os.environ.get(PROFILE)
    head = {
        "name": name,
        "key": key,
        "parent": os.environ.get(PARENT),
        "sender": compute_sender_id(),
        "time": get_milliseconds(),
    }
    record._record(head | ({"profile": profile} if profile else {}))
    record._record({"params": {format_mlflow_name(option): value for option, value in _flatten(params)}})
    record._record({"datasets": {str(path): digest for path, digest in inputs.items()}})
    source = {"mlflow.source.name": " ".join(sys.argv), "mlflow.source.type": "LOCAL"} | _read_git()
    if "DVC_EXP_NAME" in os.environ:
        source["dvc.experiment"] = os.environ["DVC_EXP_NAME"]
    record.set_tags(source | {f"input.{path}": digest for path, digest in inputs.items()} | dict(tags))
    return record


class Sender:
    """Process that sends the records of all runs with one setting of MLflow, started if no such process is alive."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._remaining_tries = 3
        self._ensure_sender()

    def wait(self) -> None:
        """Wait until the whole run is sent, at most MAX_WAIT seconds. Report unsent records in one line on stderr."""
        deadline = time.monotonic() + MAX_WAIT
        reason = ""
        while not reason and (self._folder / "records.jsonl").exists():
            with suppress(FileNotFoundError):
                reason = (self._folder / NOT_SENT).read_text(encoding="utf-8")
            if time.monotonic() > deadline:
                reason = f"not done after {MAX_WAIT:.0f} s"
            elif not self._ensure_sender():
                reason = "no sender stays alive"
            time.sleep(0.1)
        if reason:
            _warn(f"MLflow: {reason[:150]}; the records wait in {self._folder}, send them with: {SYNC}")

    def _ensure_sender(self) -> bool:
        """Start a sender unless one is alive; return False if the last of three senders has ended."""
        base = self._folder.with_name(f"sender-{compute_sender_id()}")
        with suppress(OSError):
            if (self._process and self._process.poll() is None) or is_locked(base.with_suffix(".lock")):
                return True
        if not self._remaining_tries:
            return False
        self._remaining_tries -= 1
        with suppress(OSError), open(base.with_suffix(".log"), "w", encoding="utf-8") as log:
            # its own session keeps the sender, which must report a killed run, alive after Ctrl-C and a closed terminal
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.tracking", "send"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return True


def _measure_resources() -> dict[str, float]:
    """Return the peak memory of this process or any awaited child, in MB, and their processor time, in seconds."""
    own, children = (resource.getrusage(process) for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    seconds = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return {MEMORY: max(own.ru_maxrss, children.ru_maxrss) * unit / 1e6, PROCESSOR: seconds}


def _read_git() -> dict[str, str]:
    """Return the commit, and whether tracked files differ from it; {} without git or a repository.

    dvc.lock is not compared, since DVC rewrites it in every run.
    """
    outputs = []
    for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "-uno", "--", ":/", ":(exclude,top)dvc.lock"]):
        try:
            process = subprocess.run(["git", *command], capture_output=True, text=True, check=True, timeout=30)
        except (OSError, subprocess.SubprocessError):
            return {}
        outputs.append(process.stdout.strip())
    return {"mlflow.source.git.commit": outputs[0], "git.dirty": str(bool(outputs[1])).lower()}


def _flatten(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in params.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + str(name), (value if isinstance(value, str) else json.dumps(value, default=str))[:6000]


def format_mlflow_name(name: str) -> str:
    """Return a name of a metric, parameter or tag in the form that MLflow allows, of at most 250 characters.

    MLflow refuses names that a file system would resolve to other names: empty parts, and parts of dots alone, become
    `_`.
    """
    allowed_name = re.sub(r"[^\w\-. :/]", "_", re.sub(r"[()]", "", name.replace("@", "_at_")))
    resolved_name = "/".join(part if part.strip(".") else "_" for part in allowed_name.split("/"))
    return resolved_name if len(resolved_name) <= 250 else resolved_name[:250].rstrip("/.")


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)
