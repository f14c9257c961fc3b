"""Damage to files with unchanged modification times, and the readers of these files.

A reader must name the damaged file or its folder. For caches and dvc.lock, an unchanged result is enough.
"""

import io
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch

from pipeline.analysis.caption_files import read_captions
from pipeline.analysis.results import read_results
from pipeline.composition.reward_files import load_rewards
from pipeline.data.feature_store import FeatureStore
from pipeline.data.image_features import load_data
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.models.agent_files import load_agent
from pipeline.training.checkpoint import Checkpoints
from pipeline.workflow import stage
from stages import prepare, retriever

DAMAGE_KINDS = ("bit", "cut", "emptied", "swapped")


@dataclass(frozen=True)
class FileKind:
    """Files of a kind, other files to swap them with, and their reader; the reader's text identifies the result."""

    name: str
    files: Sequence[tuple[Path, Sequence[Path]]]
    read: Callable[[Path], str]
    folder: Path | None = None  # folder that is restored before each damage
    equal: bool = False  # whether an unchanged result is enough, without an error: a cache repairs itself


def list_stage_files(world: Path, scratch: Path) -> list[FileKind]:
    """Return files that the stages of a finished toy world read, and checkpoints and a retriever made in `scratch`."""
    data = world / "data"
    models = sorted(data.glob("models/*/weights.safetensors"))
    features = sorted(data.glob("features/*/*.h5")) + sorted(data.glob("features/*/manifest.json"))
    prepared = sorted(path for path in (data / "prepared").iterdir() if path.name != "sha256.json")
    drawn = sorted(data.glob("raw/scenes/images/*"))[:9]
    captions = sorted(data.glob("evaluation/*/captions.parquet"))
    numbers = sorted(data.glob("evaluation/*/metrics.json"))
    prepare_drawn = partial(_prepare_drawn, world, scratch / "prepared")
    checkpoints, rewards = _write_checkpoints(scratch), _make_retrievers(world, scratch)
    return [
        FileKind("checkpoints", [(checkpoints[-1], checkpoints[:-1])], _read_checkpoint),
        FileKind("weights", [(path, [other for other in models if other != path]) for path in models], _read_weights),
        FileKind(
            "features", [(path, [other for other in features if other != path]) for path in features], _read_features
        ),
        FileKind("drawn data", [(path, [other for other in drawn if other != path]) for path in drawn], prepare_drawn),
        FileKind(
            "prepared data",
            [(path, [other for other in prepared if other != path]) for path in prepared],
            _read_prepared,
        ),
        FileKind(
            "captions", [(path, [other for other in captions if other != path]) for path in captions], _read_captions
        ),
        FileKind("numbers", [(path, [other for other in numbers if other != path]) for path in numbers], _read_numbers),
        FileKind("retriever", rewards, _read_rewards),
    ]


def make_caches(scratch: Path) -> list[FileKind]:
    """Make the caches of photos' vectors and of compiled loops in `scratch`, and return their files."""
    photos, loops = scratch / "photos", scratch / "loops"
    embed, loop = partial(_embed_photos, scratch), partial(_run_loop, loops / "one")
    for model in "ab":
        _embed_photos(scratch, photos / model)
    _run_loop(loops / "one", loops)
    _run_loop(loops / "two", loops, factor=2)
    vectors = [photos / "saywhich/photos" / (32 * model) / "vectors.sqlite" for model in "ab"]
    (one,), (two,) = (list((loops / name).iterdir()) for name in ("one", "two"))
    return [
        FileKind("photos' vectors", [(vectors[0], vectors[1:])], embed, vectors[0].parent, True),
        FileKind("compiled loops", [(one, [two])], loop, one.parent, True),
    ]


def list_records(world: Path, scratch: Path) -> list[FileKind]:
    """Return files that `make verify` and the sender to MLflow check; each of their calls takes seconds."""
    notes = sorted((world / "data/checkpoints/finished").glob("*.json"))
    tracked = scratch / "tracked"
    spooled = _write_spool(tracked)
    return [
        FileKind("dvc.lock", [(world / "dvc.lock", [])], partial(_verify, world), equal=True),
        FileKind("notes of cells", [(p, [o for o in notes if o != p]) for p in notes], partial(_verify, world)),
        FileKind(
            "records for MLflow", [(spooled[0] / "records.jsonl", [spooled[1] / "records.jsonl"])], _send, tracked
        ),
    ]


def try_damages(kind: FileKind, times: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Damage a random file of `kind` and restore it, `times` times; yield each kind of damage and the reader's fault.

    The fault is "" where the reader names the file or its folder, or, with `equal`, returns an unchanged result.
    """
    rng = random.Random(f"{kind.name} {seed}")
    backup = Path(f"{kind.folder}.whole")
    if kind.folder and kind.folder.exists():
        shutil.copytree(kind.folder, backup)
    digests = {path: kind.read(path) for path, _ in kind.files}
    for number in range(times):
        if backup.exists() and kind.folder:
            shutil.rmtree(kind.folder)
            shutil.copytree(backup, kind.folder)
        path, other_files = rng.choice(kind.files)
        content_before, status = path.read_bytes(), path.stat()
        replacements = [content for other in other_files if (content := other.read_bytes()) != content_before]
        damage = DAMAGE_KINDS[number % (len(DAMAGE_KINDS) if replacements else len(DAMAGE_KINDS) - 1)]
        path.write_bytes(damage_content(damage, content_before, replacements, rng))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        try:
            yield damage, _check_reader(kind, path, digests[path])
        finally:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content_before)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def damage_content(damage: str, original: bytes, replacements: Sequence[bytes], rng: random.Random) -> bytes:
    """Return `original` with a flipped bit, cut or emptied, or one of `replacements`, by the kind `damage`."""
    if damage == "bit":
        content, position = bytearray(original), rng.randrange(len(original))
        content[position] ^= 1 << rng.randrange(8)
        return bytes(content)
    if damage == "swapped":
        return rng.choice(replacements)
    return original[: rng.randrange(1, len(original))] if damage == "cut" else b""


def _check_reader(kind: FileKind, path: Path, digest_before: str) -> str:
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            digest = kind.read(path)
    except UserError as error:
        message = str(error)
        return "" if path.name in message or path.parent.name in message else f"{path.name}: not named: {message}"
    except Exception as error:  # a user would get a traceback
        return f"{path.name}: {type(error).__name__}: {error}"
    if path.name in errors.getvalue() or (kind.equal and digest == digest_before):
        return ""
    return f"{path.name}: used silently, {'the same' if digest == digest_before else 'another'} result"


def _write_checkpoints(folder: Path) -> list[Path]:
    """Write three checkpoints of another run, then two of one run, the newest last."""
    written = []
    for run, steps in (("other", (7, 9, 11)), ("run", (8, 10))):
        checkpoints = Checkpoints(folder / run, keep=len(steps))
        for step in steps:
            tensors = {"w": torch.randn(40, 7, generator=torch.Generator().manual_seed(step))}
            written.append(checkpoints.save(step, tensors, {"history": [step]}))
    return written


def _read_checkpoint(path: Path) -> str:
    checkpoint = Checkpoints(path.parent).load_latest()
    return "nothing" if checkpoint is None else f"{checkpoint.step} {_compute_digest(checkpoint.tensors['w'].numpy())}"


def _read_weights(path: Path) -> str:
    agents = [load_agent(path, name) for name in ("speaker", "listener")]
    return _compute_digest(*(value.numpy() for agent in agents for value in agent.state_dict().values()))


def _read_features(path: Path) -> str:
    store = FeatureStore(path.parent)
    rows = np.arange(len(store) * (1 + store.mirrored))
    return _compute_digest(*store.read(rows), store.pooled(rows))


def _prepare_drawn(world: Path, out: Path, path: Path) -> str:
    with chdir(world), patch_environment(SAYWHICH_TRACKING="off"):
        prepare.run(stage.open_stage("prepare", ["--out", str(out)]))
    return sha256((out / "sha256.json").read_bytes()).hexdigest()


def _read_prepared(path: Path) -> str:
    prepared = PreparedData.load(path.parent)
    texts = repr([prepared.texts(image) for image in range(len(prepared))]).encode()
    return _compute_digest(prepared.tokens, prepared.splits, np.frombuffer(texts, np.uint8))


def _read_captions(path: Path) -> str:
    root = path.parents[2]
    results = read_results(root / "sweep", [path.parent])
    runs = [run for run in results.runs if run.captions == path]
    return sha256(repr(read_captions(runs, None, ["caption", "rank_own"])).encode()).hexdigest()


def _read_numbers(path: Path) -> str:
    results = read_results(path.parents[2] / "sweep", [path.parent])
    return sha256(repr([run.numbers for run in results.runs]).encode()).hexdigest()


def _make_retrievers(world: Path, scratch: Path) -> list[tuple[Path, Sequence[Path]]]:
    """Return the files of a retriever made from `world`, each with the same file of another retriever."""
    for number, name in enumerate(("retriever", "other")):
        folder = scratch / name
        (folder / "data").mkdir(parents=True)
        for part in ("prepared", "features", "pretrained"):
            (folder / "data" / part).symlink_to(world.absolute() / "data" / part)
        (folder / "dvc.yaml").symlink_to(world.absolute() / "dvc.yaml")
        section = {
            "model": "listener",
            "speaker": "speaker",
            "judge": "judge",
            "hard_negative_ranks": [1 + number],
            "hidden_dims": [4, 3],
        }
        section |= {"temperature": 0.1 + number, "optimisation": {"epochs": 1, "batch": 9}}
        params = json.loads((world / "params.yaml").read_text()) | {"retriever": section, "seed": number}
        (folder / "params.yaml").write_text(json.dumps(params))
        with chdir(folder), patch_environment(SAYWHICH_TRACKING="off"):
            if status := stage.main("retriever", retriever.run, []):
                raise RuntimeError(f"the retriever stage ended with {status}")
    files = ("images.safetensors", "settings.json", "weights.safetensors", "sha256.json")
    return [(scratch / "retriever/data/retriever" / name, [scratch / "other/data/retriever" / name]) for name in files]


def _read_rewards(path: Path) -> str:
    root = path.parents[1]
    models = load_rewards(root, load_data(root)[0], torch.device("cpu"))
    heads = [value for head in (models.discriminator, models.grammar) for value in head.state_dict().values()]
    images = [models.retriever.vectors, models.retriever.neighbours, models.judge.vectors]
    return f"{models.retriever.temperature} {_compute_digest(*(tensor.numpy() for tensor in (*heads, *images)))}"


def _embed_photos(scratch: Path, path: Path) -> str:
    """Embed 40 files with the cache in `scratch`, and return a digest of the vectors.

    A vector depends on the file's name and on the model: b where `path` has the name b, else a.
    """
    from saywhich.vector_cache import embed_with_cache

    model = 64 * ("b" if path.name == "b" else "a")
    files = [scratch / "files" / f"{number}.jpg" for number in range(40)]
    files[0].parent.mkdir(exist_ok=True)
    for file in files:
        if not file.exists():
            file.write_text(file.stem)

    def encode_photos(paths: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str], np.ndarray]]:
        names = [Path(each).stem for each in paths]
        yield paths, names, np.array([[int(name), len(name), ord(model[0])] for name in names], np.float32)

    with patch_environment(XDG_CACHE_HOME=str(scratch / "photos")):
        return _compute_digest(embed_with_cache(files, model, 3, encode_photos).vectors)


def _run_loop(folder: Path, path: Path, factor: int = 1) -> str:
    """Run a compiled loop in a child of this process, because wrong machine code may end the process."""
    from pipeline.runtime.compiled import compile_loop_in

    folder.mkdir(parents=True, exist_ok=True)
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            values = np.linspace(0, 1, 50, dtype=np.float32)
            compile_loop_in(folder, _double if factor == 2 else _halve)(values)
            os.write(write, _compute_digest(values).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:
        content = answer.read().decode()
    if (status := os.waitpid(child, 0)[1]) or not content:
        raise RuntimeError(f"the process ended with {status}")
    return content


def _halve(values: np.ndarray) -> None:
    for i in range(len(values)):
        values[i] = values[i] / 2


def _double(values: np.ndarray) -> None:
    for i in range(len(values)):
        values[i] = values[i] * 2


def _verify(world: Path, path: Path) -> str:
    from pipeline.workflow import verify

    output = io.StringIO()
    with chdir(world), redirect_stdout(output), redirect_stderr(output):
        status = verify.main()
    if status:
        raise UserError(output.getvalue() if path.suffix == ".json" else f"{path.name}: {output.getvalue()}")
    return output.getvalue()


def _write_spool(folder: Path) -> list[Path]:
    """Write two waiting runs to the spool of `folder`, and an MLflow database."""
    from pipeline.tracking import recorder
    from pipeline.tracking.tracker import connect

    folder.mkdir(parents=True)
    with chdir(folder), patch_environment(SAYWHICH_TRACKING="on", MLFLOW_TRACKING_URI=""):
        connect()
        for name in ("one", "two"):
            run = recorder._start_record(name, {"a": name}, {}, {})
            for step in range(9):
                run.log_metrics({"loss": step / 7}, step)
            run._record({"status": "FINISHED", "time": 0})
            run._close()
        return sorted(path.parent.absolute() for path in Path("mlflow-spool").glob("*/records.jsonl"))


def _send(path: Path) -> str:
    """Send all waiting records, and return MLflow's runs as text.

    Raises UserError with all printed lines where a record was not delivered or a run has no end.
    """
    from pipeline.tracking import sender
    from pipeline.tracking.tracker import connect

    out, err = io.StringIO(), io.StringIO()
    folder = path.parents[2]
    with chdir(folder), patch_environment(MLFLOW_TRACKING_URI=""), redirect_stdout(out), redirect_stderr(err):
        status = sender.sync(folder / "mlflow-spool")
        tracker = connect()
        runs = tracker.client.search_runs([tracker.experiment])
        summaries = sorted(
            (run.info.run_name, run.info.status, str(run.data.metrics), str(run.data.params)) for run in runs
        )
    if status or "no end" in out.getvalue():
        raise UserError(err.getvalue() + out.getvalue())
    return repr(summaries)


@contextmanager
def patch_environment(**settings: str) -> Iterator[None]:
    """Set environment variables in the block, and restore them after it."""
    values_before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in values_before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _compute_digest(*arrays: np.ndarray) -> str:
    digest = sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
