"""Checkpoints, from which a training run resumes as if uninterrupted; incomplete files are not used."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from pipeline.runtime.files import clear_parts, write_atomically


@dataclass(frozen=True)
class Checkpoint:
    """Tensors and JSON-serialisable `state` of a run after `step` steps."""

    step: int
    tensors: dict[str, Tensor]  # on the CPU
    state: dict[str, Any]


class Checkpoints:
    """The newest `keep` checkpoints of one run, in a separate folder.

    A file's name is `step-<number>-<first 16 digits of the SHA-256 of its bytes>.safetensors`. Its metadata hold the
    state and the folder's name, which is a key of the run's dependencies and seed.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = Path(folder)
        self.keep = keep

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> Path:
        """Write a checkpoint and return its path. Remove surplus older files, and other files of this step or later.

        Raises OSError, such as for a full disk, with older checkpoints unchanged. Raises TypeError for a `state` that
        JSON cannot hold.
        """
        # one entry, since safetensors does not keep the order of entries
        metadata = {"state": json.dumps({"step": step, "of": self.folder.name, "state": state})}
        # copies: safetensors refuses tensors that share memory
        content = safetensors.torch.save(
            {name: tensor.to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}, metadata
        )
        path = self.folder / f"step-{step:09d}-{_compute_prefix(content)}.safetensors"
        write_atomically(path, content)
        # other checkpoints of this step or later were damaged, since the run resumed from an earlier one
        older = [file for saved_step, file in self._list_files() if saved_step < step]
        for _, file in self._list_files():
            if file != path and file not in older[: self.keep - 1]:
                file.unlink(missing_ok=True)
        clear_parts(self.folder)
        return path

    def load_latest(self) -> Checkpoint | None:
        """Return this run's newest undamaged checkpoint; skip each damaged or foreign one with a warning on stderr."""
        for step, path in self._list_files():
            try:
                return self._read(path)
            except FileNotFoundError:
                continue
            except (ValueError, OSError) as error:
                problem = f"checkpoint {path} of step {step} is not used: {error}"
                print(f"warning: {problem}; training continues from an older one, or starts again", file=sys.stderr)
        return None

    def _read(self, path: Path) -> Checkpoint:
        content = path.read_bytes()
        if _compute_prefix(content) != path.stem.rpartition("-")[2]:
            raise ValueError("its bytes have changed")
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        entry = json.loads(header["__metadata__"]["state"])
        if entry["of"] != self.folder.name:
            raise ValueError(f"it belongs to another run, {entry['of']}")
        return Checkpoint(entry["step"], safetensors.torch.load(content), entry["state"])

    def clear(self) -> None:
        """Remove all checkpoints and half-written files, once the run's outputs are written.

        No other process may save a checkpoint at the same time.
        """
        for path in [*(path for _, path in self._list_files()), *self.folder.glob(".step-*.part")]:
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def _list_files(self) -> Iterator[tuple[int, Path]]:
        """Yield steps and files, newest step first."""
        matches = [
            (re.fullmatch(r"step-(\d+)-[0-9a-f]{16}", path.stem), path)
            for path in self.folder.glob("step-*.safetensors")
        ]
        yield from sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def _compute_prefix(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
