import errno
import json
import os
import signal
import subprocess

import pytest
import torch
from preloaded_python import find_program
from safetensors import safe_open

from pipeline.training.checkpoint import Checkpoints


def make_tensors(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((3, 2), value), "n": torch.tensor(7), "b": torch.tensor([1, 0], dtype=torch.uint8)}


def test_a_checkpoint_is_read_unchanged(tmp_path):
    whole = torch.arange(6.0)
    state = {"history": [0.1, 1 / 3, float("inf")], "name": "é", "none": None, "large": 2**63 + 1}
    kept = {"view": whole[2:], "same": whole, "half": torch.tensor([1.5], dtype=torch.bfloat16), **make_tensors(0.1)}
    path = Checkpoints(tmp_path / "run").save(12, kept, state)
    latest = Checkpoints(tmp_path / "run").load_latest()
    assert latest.step == 12
    assert latest.state == state
    assert latest.tensors.keys() == kept.keys()
    for name, tensor in kept.items():
        assert latest.tensors[name].dtype == tensor.dtype
        assert torch.equal(latest.tensors[name], tensor)
    with safe_open(path, "pt") as file:  # an ordinary safetensors file
        assert json.loads(file.metadata()["state"])["step"] == 12


def test_the_newest_are_kept_and_equal_states_are_equal_files(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    names = [checkpoints.save(step, make_tensors(step), {"a": 1, "b": [2]}).name for step in (9, 10, 100)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names[1:]
    assert checkpoints.load_latest().step == 100
    assert (
        Checkpoints(tmp_path / "other" / tmp_path.name).save(100, make_tensors(100), {"a": 1, "b": [2]}).name
        == names[2]
    )
    checkpoints.clear()
    assert checkpoints.load_latest() is None
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_half_written_file_of_a_killed_process_does_not_stay(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run")
    checkpoints.save(1, make_tensors(1), {})
    (tmp_path / "run" / ".step-000000002-0123456789abcdef.safetensors.01234567.part").write_bytes(b"half")
    checkpoints.clear()
    assert not (tmp_path / "run").exists()


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    assert Checkpoints(tmp_path / "none").load_latest() is None
    Checkpoints(tmp_path / "none").clear()


@pytest.mark.parametrize("offset", [0, 20, -1])
def test_a_flipped_bit_is_detected(tmp_path, capsys, offset):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, make_tensors(1), {})
    path = checkpoints.save(2, make_tensors(2), {})
    content = bytearray(path.read_bytes())
    content[offset] ^= 4
    path.write_bytes(content)
    assert checkpoints.load_latest().step == 1
    assert path.name in capsys.readouterr().err


def test_a_truncated_checkpoint_is_skipped_and_displaces_no_new_one(tmp_path, capsys):
    checkpoints = Checkpoints(tmp_path, keep=1)
    path = checkpoints.save(20, make_tensors(2), {})
    path.write_bytes(path.read_bytes()[:-5])
    assert checkpoints.load_latest() is None
    assert "step 20" in capsys.readouterr().err
    checkpoints.save(3, make_tensors(3), {})  # a new run: the truncated file of a later step must not displace this one
    assert checkpoints.load_latest().step == 3
    assert not path.exists()


def test_a_full_disk_leaves_the_older_checkpoint(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, make_tensors(1), {})

    def raise_disk_full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", raise_disk_full)
        with pytest.raises(OSError, match="No space left"):
            checkpoints.save(2, make_tensors(2), {})
    assert [path.name.split("-")[1] for path in tmp_path.iterdir()] == ["000000001"]
    assert checkpoints.load_latest().step == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_without_space_leaves_the_older_checkpoint(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, make_tensors(1), {})

    def write_to_full_device(path, content):
        with open("/dev/full", "wb") as full:
            full.write(content)

    monkeypatch.setattr("pathlib.Path.write_bytes", write_to_full_device)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(2, {"w": torch.zeros(100_000)}, {})
    assert checkpoints.load_latest().step == 1


ENDLESS = """
import os, sys, torch
from pathlib import Path
from pipeline.training.checkpoint import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]))
print(os.getpid(), flush=True)
for step in range(1, 1_000_000):
    checkpoints.save(step, {"w": torch.full((500_000,), float(step))}, {"twice": 2 * step})
    print(step, flush=True)
"""


def test_a_process_killed_while_saving_leaves_a_complete_checkpoint(tmp_path):
    for min_step in (2, 3, 5):
        folder = tmp_path / str(min_step)
        command = [find_program("python"), "-c", ENDLESS, str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        pid = int(process.stdout.readline())
        for line in process.stdout:
            if int(line) >= min_step:
                break
        # the process spends nearly all its time in save: wait for a partial file
        while process.poll() is None and not list(folder.glob(".step-*.part")):
            pass
        os.kill(pid, signal.SIGKILL)
        rest = process.communicate()[0].split()
        latest = Checkpoints(folder).load_latest()
        assert latest.step >= max([min_step, *map(int, rest)])
        assert latest.state == {"twice": 2 * latest.step}
        assert torch.equal(latest.tensors["w"], torch.full((500_000,), float(latest.step)))


def test_a_checkpoint_of_another_run_is_named_and_skipped(tmp_path, capsys):
    """Runs of two seeds have two keys: a run does not resume from a file of another key."""
    other = Checkpoints(tmp_path / "key-of-seed-2").save(9, make_tensors(2.0), {})
    checkpoints = Checkpoints(tmp_path / "key-of-seed-1")
    checkpoints.save(5, make_tensors(1.0), {})
    other.rename(checkpoints.folder / other.name)
    assert checkpoints.load_latest().step == 5
    assert "it belongs to another run, key-of-seed-2" in capsys.readouterr().err
