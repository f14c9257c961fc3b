"""Coverage-guided fuzzing of an importer by atheris: each input must be read, or refused with a one-line error.

    python benchmarks/fuzzed_bytes.py IMPORTER [--runs 20000]

An input that raises another exception, or takes ten seconds or two gigabytes, ends the process. With `--here` its bytes
are written to crash-…, timeout-… or oom-… in the working folder. The benchmark needs the extra `fuzz` and Linux.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

Importer = Callable[[bytes], object]
# The keys of `make_importers`, listed here because that function imports the pipeline, which atheris must instrument.
IMPORTERS = (
    *("arrays", "settings", "karpathy", "coco", "visdial", "flickr8k", "tgif"),
    *("tables", "weights", "archives", "features"),
)
LIMITS = ("-timeout=10", "-rss_limit_mb=2048", "-max_len=4096", "-seed=1", "-print_final_stats=1", "-verbosity=0")


def make_importers(folder: Path) -> dict[str, tuple[bytes, Importer]]:
    """Return, by importer, the bytes of a valid file and a function that reads such bytes and may raise UserError."""
    import numpy as np

    from pipeline.config.reading import read_mapping
    from pipeline.corpora.archives import unpack
    from pipeline.errors import UserError
    from pipeline.features.imported import import_features
    from pipeline.models.agent_files import load_agent, save_agents
    from pipeline.models.listener import Listener
    from pipeline.readers import read_corpus
    from pipeline.runtime.untrusted import read_npy
    from pipeline.slices.corpus_formats import FORMATS
    from pipeline.slices.feature_formats import FEATURE_FORMATS

    def make_file_importer(name: str, read: Callable[[Path], object]) -> Importer:
        def write_and_read(content: bytes) -> object:
            path = folder / name
            path.write_bytes(content)
            return read(path)

        return write_and_read

    def make_corpus_importer(form: str, name: str, annotations: object, **options: object) -> Importer:
        options |= {"formats": FORMATS}
        return make_file_importer(name, lambda path: read_corpus("x", form, path.parent, annotations, None, **options))  # type: ignore[arg-type]

    def read_array(content: bytes) -> object:
        try:
            return read_npy(content)
        except ValueError as error:
            raise UserError(str(error)) from None

    def unpack_archive(path: Path) -> None:
        unpack(path, "photos/*", folder / "unpacked", files=1, max_bytes=10_000, source={})

    def import_tsv(path: Path) -> None:
        import_features(["1"], folder / "out", feature_format=FEATURE_FORMATS["tsv"], regions=str(path), max_regions=3)

    npy, zipped, weights = io.BytesIO(), io.BytesIO(), folder / "weights.safetensors"
    np.save(npy, np.arange(6.0).reshape(2, 3))
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("photos/a.jpg", b"a" * 100)
    save_agents(weights, {"listener": Listener(3, 2, 2, 2)})
    splits = ("train", "val", "test")
    images = [
        {"filename": f"{n}.jpg", "imgid": n, "split": split, "sentences": [{"raw": "a ball", "sentid": n}]}
        for n, split in enumerate(splits)
    ]
    round_ = {"question": 0, "answer": 1, "answer_options": [0, 1], "gt_index": 1}
    dialogs = {"questions": ["is it red"], "answers": ["yes", "no"]}
    for n, split in enumerate(splits):  # valid files that are read together with the fuzzed one
        (folder / f"{split}.json").write_text(json.dumps(_make_coco(n)))
        (folder / f"{split}.txt").write_text(f"https://x.com/{n}.gif\n")
        (folder / f"{split}.jpg.txt").write_text(f"{n}.jpg\n")
        dialog = {"image_id": n, "caption": "a ball", "dialog": [round_]}
        (folder / f"dialogs_{split}.json").write_text(json.dumps({"data": dialogs | {"dialogs": [dialog]}}))
    tgif_lines, flickr8k_lines = (
        "".join(f"https://x.com/{n}.gif\ta ball\n" for n in range(3)),
        "".join(f"{n}.jpg#0\ta ball\n" for n in range(3)),
    )
    settings = (
        "seed: 1\nmethods:\n  psst: {from: psst, lambda: 0.1}\nsweep: {seeds: [1, 2], grid: {psst: {lambda: [1]}}}\n"
    )
    table = "file,caption,split\n" + "".join(f"{n}.jpg,a ball,{split}\n" for n, split in enumerate(2 * splits))
    row = "\t".join(["1", "10", "10", "1", base64.b64encode(bytes(16)).decode(), base64.b64encode(bytes(8)).decode()])
    return {
        "arrays": (npy.getvalue(), read_array),
        "settings": (settings.encode(), make_file_importer("params.yaml", read_mapping)),
        "karpathy": (json.dumps({"images": images}).encode(), make_corpus_importer("karpathy", "a.json", "a.json")),
        "coco": (
            json.dumps(_make_coco(0)).encode(),
            make_corpus_importer("coco", "a.json", {"train": "a.json", "val": "val.json", "test": "test.json"}),
        ),
        "visdial": (
            (folder / "dialogs_train.json").read_bytes(),
            make_corpus_importer(
                "visdial",
                "a.json",
                {"train": "a.json", "val": "dialogs_val.json", "test": "dialogs_test.json"},
                slice_settings={"dialogs": {"rounds": None, "options": None}},
            ),
        ),
        "flickr8k": (
            flickr8k_lines.encode(),
            make_corpus_importer(
                "flickr8k", "a.txt", {"captions": "a.txt"} | {split: f"{split}.jpg.txt" for split in splits}
            ),
        ),
        "tgif": (
            tgif_lines.encode(),
            make_corpus_importer("tgif", "a.txt", {"captions": "a.txt"} | {split: f"{split}.txt" for split in splits}),
        ),
        "tables": (table.encode(), make_corpus_importer("folder", "a.csv", "a.csv")),
        "weights": (
            weights.read_bytes(),
            make_file_importer("w.safetensors", lambda path: load_agent(path, "listener")),
        ),
        "archives": (zipped.getvalue(), make_file_importer("a.zip", unpack_archive)),
        "features": (row.encode(), make_file_importer("a.tsv", import_tsv)),
    }


def _make_coco(image: int) -> dict[str, object]:
    caption = {"id": image, "image_id": image, "caption": "a ball"}
    return {"images": [{"id": image, "file_name": f"{image}.jpg"}], "annotations": [caption]}


def fuzz_importer(name: str, runs: int) -> tuple[int, str]:
    """Fuzz an importer in a new process; return the number of inputs, and a text about the failure or ""."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).resolve()), name, "--runs", str(runs), "--here"]
        process = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    output = process.stdout + process.stderr
    units = re.search(r"number_of_executed_units: (\d+)", output)
    if process.returncode == 0 and units:
        return int(units[1]), ""
    error = re.search(r"Uncaught Python exception: ===\s*(.*)", output) or re.search(r"ERROR: libFuzzer: (.*)", output)
    return int(units[1]) if units else 0, f"{name}: {error[1] if error else output[-200:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("importer", choices=IMPORTERS)
    parser.add_argument("--runs", type=int, default=20_000, help="inputs to try")
    parser.add_argument(
        "--here", action="store_true", help="fuzz in this process and folder, and show the output of libFuzzer"
    )
    options = parser.parse_args()
    if not options.here:
        number, failure = fuzz_importer(options.importer, options.runs)
        print(f"{number:,} inputs: {failure or 'each was read, or refused in one line'}")
        raise SystemExit(bool(failure))
    import atheris

    with atheris.instrument_imports(include=["pipeline"]):
        from pipeline.errors import UserError

        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as seeds:
            example, read = make_importers(Path(folder))[options.importer]
            (Path(seeds) / "first").write_bytes(example)

            def try_input(content: bytes) -> None:
                try:
                    read(content)
                except UserError as error:
                    assert "\n" not in str(error), str(error)  # noqa: PT017 (no test)

            atheris.Setup([sys.argv[0], f"-runs={options.runs}", *LIMITS, seeds], try_input)
            atheris.Fuzz()


if __name__ == "__main__":
    main()
