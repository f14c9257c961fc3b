"""Slurm, an MLflow server and an S3 store on this machine's loopback: no root, no systemd, no container.

`python tests/cluster/loopback.py COMMAND …` runs a command (or a shell) with all services, which its environment names.
"""

import getpass
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue")
MODULES = ("moto", "boto3", "dvc_s3", "snakemake_executor_plugin_slurm")
BUCKET = "saywhich"
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def find_missing() -> list[str]:
    """Return the programs and packages that are not installed."""
    programs = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return programs + [name for name in MODULES if importlib.util.find_spec(name) is None]


def find_free_ports(n: int) -> list[int]:
    """Return `n` free ports of the loopback."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def wait_until(condition: Callable[[], object], description: str, seconds: float = 300.0) -> None:
    """Wait until `condition` returns a true value; raise TimeoutError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {description} within {seconds:.0f} s; see the logs of the services")
        time.sleep(0.1)


@dataclass
class Service:
    """A process in the background, whose output goes to `log`."""

    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PATH": PATH} | self.environment,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End the process and its descendants."""
        if self.process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=10)
        self.process = None


class Slurm:
    """Slurm with `nodes` nodes of `cpus` processors each, all on this machine; jobs run as this user."""

    def __init__(self, folder: Path, nodes: int = 2, cpus: int = 2) -> None:
        self.folder, self.nodes = folder, [f"n{k + 1}" for k in range(nodes)]
        path = f"{folder / 'bin'}{os.pathsep}{PATH}"
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}
        (folder / "bin").mkdir(parents=True)
        # Snakemake's jobs call srun without Slurm's variables; on a cluster, srun reads slurm.conf from /etc
        srun = shutil.which("srun", path=PATH)
        (folder / "bin/srun").write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {srun} "$@"\n')
        (folder / "bin/srun").chmod(0o755)
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        host, user, ports = socket.gethostname().split(".")[0], getpass.getuser(), find_free_ports(nodes + 1)
        lines = [
            "ClusterName=loopback",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            f"AuthInfo=socket={folder}/munge.socket",
            f"SlurmctldPort={ports[0]}",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool/%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/%n.pid",
            "ProctrackType=proctrack/pgid",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU_Memory",
            "SlurmdParameters=config_overrides",
            "MpiDefault=none",
            "ReturnToService=2",
            "KillWait=10",  # seconds between SIGTERM and SIGKILL at the time limit
            "OverTimeLimit=0",
            "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        ]
        for name, port in zip(self.nodes, ports[1:], strict=True):
            node = f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
            lines.append(f"{node} CPUs={cpus} RealMemory=16000 State=UNKNOWN")
        (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        munge = ["--foreground", "--force", f"--key-file={folder}/key", f"--socket={folder}/munge.socket"]
        munge += [f"--{name}-file={folder}/munge.{name}" for name in ("log", "pid", "seed")]
        daemons = {"munged": munge, "slurmctld": ["-D"]} | {f"slurmd {name}": ["-D", "-N", name] for name in self.nodes}
        self.services = {
            name: Service([name.split()[0], *options], folder / f"{name.replace(' ', '-')}.out", self.environment)
            for name, options in daemons.items()
        }

    def run(self, *command: str, check: bool = True) -> str:
        """Run a Slurm command and return its output; raise RuntimeError if it fails, unless `check` is False."""
        done = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def start(self) -> None:
        self.services["munged"].start()
        wait_until((self.folder / "munge.socket").exists, "munged")
        for name, service in self.services.items():
            if name != "munged":
                service.start()
        wait_until(
            lambda: self.run("sinfo", "-h", "-o", "%T %D", check=False) == f"idle {len(self.nodes)}", "Slurm's nodes"
        )

    def stop(self) -> None:
        self.run("scancel", "--user", getpass.getuser(), check=False)
        with suppress(TimeoutError):
            wait_until(lambda: not self.run("squeue", "-h", check=False), "the end of all jobs", 60.0)
        for service in reversed(self.services.values()):
            service.stop()
        for process in psutil.process_iter():  # processes that outlive their jobs: Slurm's own, and senders of records
            with suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == self.environment["SLURM_CONF"]:
                    process.kill()


def make_store(folder: Path, port: int) -> Service:
    """Return an S3 server that keeps everything in memory."""
    return Service([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], folder / "s3.log")


def make_tracker(folder: Path, port: int, environment: Mapping[str, str]) -> Service:
    """Return an MLflow server on SQLite, which sends artifacts to the store."""
    options = [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        f"s3://{BUCKET}/mlflow",
    ]
    options += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    return Service([sys.executable, "-m", "mlflow", "server", *options], folder / "mlflow.log", environment)


def is_available(url: str) -> bool:
    """Return whether a server at `url` accepts requests."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@dataclass
class Loopback:
    """Slurm, the tracker and the store, and the environment that names them."""

    slurm: Slurm
    tracker: Service
    store: Service
    environment: dict[str, str]
    s3: str  # the address of the store

    def start_tracker(self) -> None:
        self.tracker.start()
        wait_until(
            lambda: is_available(f"{self.environment['MLFLOW_TRACKING_URI']}/health"), "the MLflow server", 600.0
        )


@contextmanager
def run_services(folder: Path) -> Iterator[Loopback]:
    """Run Slurm, tracker and store within the block, with their files in `folder`."""
    store_port, tracker_port = find_free_ports(2)
    s3 = f"http://127.0.0.1:{store_port}"
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    keys |= {"MLFLOW_S3_ENDPOINT_URL": s3, "MLFLOW_DISABLE_TELEMETRY": "true"}
    slurm = Slurm(folder / "slurm")
    settings = keys | slurm.environment | {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{tracker_port}"}
    services = Loopback(slurm, make_tracker(folder, tracker_port, keys), make_store(folder, store_port), settings, s3)
    try:
        services.store.start()
        slurm.start()
        wait_until(lambda: is_available(f"{s3}/moto-api/data.json"), "the S3 server")
        request = urllib.request.Request(f"{s3}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()
        services.start_tracker()
        yield services
    finally:
        slurm.stop()
        services.tracker.stop()
        services.store.stop()


def main(command: Sequence[str]) -> int:
    """Run the command with all services, and return its exit status."""
    if missing := find_missing():
        print(f"not installed: {', '.join(missing)}; see profiles/slurm/README.md", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM must stop the services, too
    with tempfile.TemporaryDirectory() as folder, run_services(Path(folder)) as services:
        shell = [os.environ.get("SHELL", "/bin/sh")]
        return subprocess.run([*command] or shell, env=os.environ | services.environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
