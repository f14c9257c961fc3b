"""Killed exports, and exported models that are damaged or hostile."""

import json
import os
import random
import re
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import torch
from file_damage import FileKind
from safetensors.torch import load_file, save

import saywhich
from pipeline.errors import UserError
from pipeline.runtime.checksums import ZERO_DIGEST, serialise_with_checksum
from saywhich.exporting import export_model
from saywhich.model_files import EXPORTED, locate_model
from saywhich.text_encoder import TextEncoder

WRITE_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")  # audit events
EXIT_STATUS = 9  # of a process that ends before a write
# JSON that replaces a value
HOSTILE_VALUES = {
    "null": "null", "true": "true", "a word": '"x"', "an empty word": '""', "a million letters": f'"{"x" * 10**6}"',
    "half a character": r'"\ud800"', "two lines": r'"a\nb\u001b[2J"', "0": "0", "-1": "-1", "1e9": "1000000000",
    "1e18": str(10**18), "4,000 digits": "9" * 4000, "1e999": "1e999", "1e300": "1e300", "NaN": "NaN", "[]": "[]",
    "{}": "{}", "10,000 levels": "[" * 10_000 + "]" * 10_000, "a million zeros": f"[{'0,' * 10**6}0]",
}  # fmt: skip
MEMORY, SECONDS = 2**30, 30  # limits of a load and a caption: bytes beyond those in use, and seconds


def kill_exports(model: Path, out: Path, points: Iterable[int] | None = None) -> Iterator[str]:
    """Kill exports before their n-th write, and yield the fault of each and of the export after it, or "".

    `out` holds an export of `model`; before each kill, an older export with another vocabulary takes its place.
    `points` are the numbers of the writes; None: all writes of an export.
    """
    record, older = (out / EXPORTED).read_bytes(), out.with_name("older")
    shutil.copytree(out, older)
    with open(older / "vocabulary.json", "a") as file:
        file.write("\n")
    refresh_digests(older, older / "vocabulary.json")
    for point in count() if points is None else points:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(older, out)
        if not _run_and_kill(lambda: export_model(model, out), point):
            if points is None:
                return
            continue
        try:
            locate_model(out)
            export_model(model, out)
        except (UserError, OSError) as error:
            yield f"before write {point}: {error}"
            continue
        temporary = [path.name for path in out.parent.iterdir() if path.name.startswith(".")]
        yield (
            f"before write {point}: temporary files remain: {temporary}"
            if temporary
            else ""
            if (out / EXPORTED).read_bytes() == record
            else f"before write {point}: the repeated export differs"
        )


def _run_and_kill(work: Callable[[], object], point: int) -> bool:
    """Run `work` in another process that ends before write number `point`; return whether it ended there."""
    child = os.fork()
    if child == 0:
        writes, status = count(), 1

        def end_at_point(event: str, arguments: tuple) -> None:
            is_write = event in WRITE_EVENTS or (
                event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
            )
            if is_write and next(writes) == point:
                os._exit(EXIT_STATUS)

        try:
            sys.addaudithook(end_at_point)
            work()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, EXIT_STATUS), "the export failed before it was killed"
    return status == EXIT_STATUS


def find_read_files(work: Callable[[], object], root: Path) -> list[Path]:
    """Return the files below `root` that `work` opens."""
    found: set[Path] = set()
    recording = [True]

    def record_file(event: str, arguments: tuple) -> None:
        if event == "open" and recording and isinstance(arguments[0], str | Path):
            path = Path(arguments[0]).resolve()
            if path.is_relative_to(root.resolve()) and path.is_file():
                found.add(path)

    sys.addaudithook(record_file)
    work()
    recording.clear()
    return sorted(found)


def make_model_kind(name: str, model: Path, root: Path, photo: Path) -> FileKind:
    """Return the files that `saywhich` reads of a model below `root`.

    The digest covers the model's weights, and its features and captions of a photo.
    """
    files = find_read_files(lambda: saywhich.load(model), root)
    files += [model / "weights.safetensors"] if model / "weights.safetensors" not in files else []

    def describe(_: Path) -> str:
        loaded = saywhich.load(model)
        features = loaded.extract_features([photo])
        tensors = [
            *loaded.speaker.state_dict().values(),
            *loaded.listener.state_dict().values(),
            features.pooled,
            features.regions,
        ]
        words = "".join(str(caption) for caption in loaded.caption([photo]))
        return sha256(words.encode() + b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()

    return FileKind(name, [(path, [other for other in files if other != path]) for path in files], describe)


def try_hostile_values(folder: Path, photo: Path, times: int | None = None, seed: int = 0) -> Iterator[str]:
    """Replace each JSON value and each tensor of an exported folder by a hostile one, and yield its fault or "".

    All digests match the new bytes. `times` is the number of replacements drawn; None: all.
    """
    trials = [*_make_value_trials(folder), *_make_tensor_trials(folder)]
    for change, path, content in trials if times is None else random.Random(seed).sample(trials, times):
        contents = {file: file.read_bytes() for file in (path, folder / EXPORTED)}
        path.write_bytes(content())
        if path.name != EXPORTED:
            refresh_digests(folder, path)
        try:
            fault = _try_in_process(folder, photo)
            yield fault and f"{change}: {fault}"
        finally:
            for file, content_before in contents.items():
                file.write_bytes(content_before)


def refresh_digests(folder: Path, path: Path) -> None:
    """Update the digest of a file in the record of the export."""
    record = json.loads((folder / EXPORTED).read_text())
    record["files"][path.relative_to(folder).as_posix()] = sha256(path.read_bytes()).hexdigest()
    (folder / EXPORTED).write_text(serialise_with_checksum(record))


@contextmanager
def change_agents(folder: Path) -> Iterator[Any]:
    """Yield the arguments of the agents in a folder's weights; write the changed arguments with new digests."""
    path = folder / "weights.safetensors"
    agents = _read_agents(path)
    yield agents
    path.write_bytes(_make_weights(load_file(path), json.dumps(agents)))
    refresh_digests(folder, path)


Trial = tuple[str, Path, Callable[[], bytes]]  # the change, the file, its new content


def _make_value_trials(folder: Path) -> Iterator[Trial]:
    """Yield trials that replace each value of the JSON files and of the weights' header by each hostile value."""
    for path in sorted(folder.rglob("*.json")):
        whole = json.loads(path.read_text())
        for key_path in _find_key_paths(whole):
            if key_path != ("sha256",):
                for name, text in HOSTILE_VALUES.items():
                    yield (
                        f"{path.name} {'.'.join(map(str, key_path))}: {name}",
                        path,
                        lambda w=whole, p=key_path, t=text: _replace_with_digest(w, p, t),
                    )
    path = folder / "weights.safetensors"
    agents, tensors = _read_agents(path), load_file(path)
    for key_path in _find_key_paths(agents):
        if key_path != ("sha256",):
            for name, text in HOSTILE_VALUES.items():
                yield (
                    f"{path.name} {'.'.join(map(str, key_path))}: {name}",
                    path,
                    lambda b=agents, p=key_path, t=text, own=tensors: _make_weights(own, _replace_value(b, p, t)),
                )


def _make_tensor_trials(folder: Path) -> Iterator[Trial]:
    """Yield trials that replace each floating-point tensor by extreme numbers, another shape or type, or omit it."""
    changes: dict[str, Callable[[torch.Tensor], torch.Tensor | None]] = {
        "missing": lambda x: None,
        "NaN": lambda x: torch.full_like(x, torch.nan),
        "infinite": lambda x: torch.full_like(x, torch.inf),
        "1e38": lambda x: torch.full_like(x, 1e38),
        "-1e38": lambda x: torch.full_like(x, -1e38),
        "0": lambda x: torch.zeros_like(x),
        "double, 1e300": lambda x: torch.full_like(x, 1e300, dtype=torch.float64),
        "whole numbers": lambda x: x.long(),
        "half": lambda x: x.half(),
        "no numbers": lambda x: x.new_zeros(2**40, 0),
        "flat": lambda x: x.flatten(),
        "twice": lambda x: torch.cat([x, x]),
    }
    for path in sorted(folder.rglob("*.safetensors")):
        whole = load_file(path)
        for key in [name for name, tensor in whole.items() if tensor.is_floating_point() and tensor.dim()]:
            for name, change in changes.items():

                def make_content(whole=whole, key=key, change=change, path=path) -> bytes:
                    tensors = {**whole, key: change(whole[key])}
                    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
                    return (
                        _make_weights(kept, json.dumps(_read_agents(path)))
                        if path.name == "weights.safetensors"
                        else save(kept)
                    )

                yield f"{path.name} {key}: {name}", path, make_content


def _find_key_paths(value: Any, prefix: tuple = ()) -> Iterator[tuple]:
    """Yield the paths of keys to the values in a JSON value; lists are cut to the first two and the last value."""
    yield prefix
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _find_key_paths(inner, (*prefix, key))
    elif isinstance(value, list):
        for index in sorted({0, 1, len(value) - 1} & set(range(len(value)))):
            yield from _find_key_paths(value[index], (*prefix, index))


def _replace_value(whole: Any, key_path: tuple, text: str) -> str:
    """Return JSON with `text` in place of one value."""
    if not key_path:
        return text
    copy = json.loads(json.dumps(whole))
    inner = copy
    for key in key_path[:-1]:
        inner = inner[key]
    inner[key_path[-1]] = "@@"
    return json.dumps(copy).replace('"@@"', text)


def _replace_with_digest(whole: Any, key_path: tuple, text: str) -> bytes:
    """Return JSON with `text` in place of one value, and with the new digest of a file that has one."""
    if not isinstance(whole, dict) or "sha256" not in whole:
        return _replace_value(whole, key_path, text).encode()
    content = _replace_value(whole | {"sha256": ZERO_DIGEST}, key_path, text)
    return content.replace(ZERO_DIGEST, sha256(content.encode()).hexdigest()).encode()


def _read_agents(path: Path) -> Any:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["agents"])


def _make_weights(tensors: dict[str, torch.Tensor], agents: str) -> bytes:
    """Return a file of weights with the text `agents` in its header, and with its digest."""
    header = {"agents": re.sub('"sha256": "[0-9a-f]{64}"', f'"sha256": "{ZERO_DIGEST}"', agents, count=1)}
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, header)
    return content.replace(ZERO_DIGEST.encode(), sha256(content).hexdigest().encode(), 1)


def _try_in_process(folder: Path, photo: Path) -> str:
    """Use the folder in another process with limited memory and time; return the fault, or ""."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        report = "ended"
        try:
            os.close(reader)
            signal.alarm(SECONDS)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            report = _use_model(folder, photo)
        except BaseException as error:
            report = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        finally:
            os.write(writer, report.encode(errors="replace")[:4000])
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        fault = file.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return fault if status == 0 else f"ended with {status}"


def _use_model(folder: Path, photo: Path) -> str:
    try:
        model = saywhich.load(folder)
        model.caption([photo])
        model.caption([photo], samples=2)
        model.find("a dog", [photo])
    except UserError as error:
        if len(str(error).splitlines()) != 1 or not str(error).isprintable():
            return f"not one line: {str(error)[:100]!r}"
    try:
        TextEncoder.from_files(locate_model(folder))("a dog on the beach")
    except UserError as error:
        return "" if len(str(error).splitlines()) == 1 and str(error).isprintable() else f"not one line: {error!r:.100}"
    return ""
