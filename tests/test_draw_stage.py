"""Requests to end the stage draw and its worker processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from toy_world import make_toy_params

from pipeline.runtime.cores import count_cores

ROOT = Path(__file__).parents[1]


def list_workers(stage: psutil.Process) -> list[psutil.Process]:
    """Return the living worker processes of the stage."""
    workers = []
    for process in stage.children():
        with suppress(psutil.Error):
            if any("spawn_main" in word for word in process.cmdline()):
                workers.append(process)
    return workers


def start_draw(folder: Path) -> subprocess.Popen[str]:
    shutil.copy(ROOT / "dvc.yaml", folder)
    params = make_toy_params()
    params["draw"]["scenes"]["images"] = 9000
    (folder / "params.yaml").write_text(json.dumps(params))
    command = [sys.executable, "-m", "stages.draw", "--dataset", "scenes", "--out", str(folder / "scenes")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SAYWHICH_TRACKING": "off"}
    out = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def wait_for(ready: Callable[[], object], process: subprocess.Popen[str]) -> None:
    while not ready():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


@pytest.mark.skipif(count_cores() < 2, reason="one core draws without workers")
@pytest.mark.parametrize(
    "images", [120, pytest.param(0, marks=pytest.mark.slow)], ids=["workers draw", "workers start"]
)
def test_a_request_to_the_process_group_is_reported_in_one_line(tmp_path, images):
    process = start_draw(tmp_path)
    stage = psutil.Process(process.pid)
    wait_for(lambda: list_workers(stage) and len(list(tmp_path.rglob("*.jpg"))) >= images, process)
    os.killpg(process.pid, signal.SIGTERM)
    printed, _ = process.communicate()  # the call returns when no process holds the pipe open
    assert process.returncode == 128 + signal.SIGTERM
    assert printed == "draw: ended by SIGTERM; run the same command to continue\n"


@pytest.mark.slow
@pytest.mark.skipif(count_cores() < 2, reason="one core draws without workers")
def test_workers_end_with_a_killed_stage(tmp_path):
    process = start_draw(tmp_path)
    stage = psutil.Process(process.pid)
    wait_for(lambda: list_workers(stage) and list(tmp_path.rglob("*.jpg")), process)
    workers = list_workers(stage)
    process.kill()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
