"""Times of `saywhich judge`, `compare` and `bags` on real photos, with an exported model's listener as judge.

    python benchmarks/judging_photos.py DATASET.json IMAGES --judge DIR

DATASET.json has Karpathy's form. The benchmark takes the first --photos photos of its test split. `judge` scores the
first human caption of each, `compare` compares it with the second, and the other captions are the references. Each
command runs in a process of its own; the first begins with an empty cache. The commands' own output is
printed on stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from printing import begin_table, show_progress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--judge", type=Path, required=True, help="a folder that saywhich export wrote")
    parser.add_argument("--photos", type=int, default=1000)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        photos = _write_inputs(folder, options.dataset, options.images, options.photos)
        arguments = ["--images", "photos", "--references", "references.json", "--judge", str(options.judge.resolve())]
        print_row = begin_table(
            f"Commands on {photos:,} photos of {options.dataset.stem}", "command", "s", "processor, s", first=32
        )
        for label, command in (
            ("judge, with an empty cache", ["judge", "first.json", *arguments]),
            ("judge again", ["judge", "first.json", *arguments]),
            ("judge, with a page", ["judge", "first.json", *arguments, "--html", "judged.html"]),
            ("compare", ["compare", "first.json", "second.json", *arguments]),
            ("bags", ["bags", "photos", "--json", "bags.json"]),
        ):
            show_progress(f"saywhich {command[0]}")
            print_row(label, *(f"{seconds:.0f}" for seconds in _measure(folder, command)))


def _write_inputs(folder: Path, dataset: Path, images: Path, limit: int) -> int:
    """Link the photos into `folder`, write the caption files, and return the number of photos."""
    (folder / "photos").mkdir()
    captions_by_file: dict[str, dict[str, list[str]]] = {"first": {}, "second": {}, "references": {}}
    test_images = [each for each in json.loads(dataset.read_text("utf-8"))["images"] if each["split"] == "test"][:limit]
    for image in test_images:
        name = image["filename"]
        (folder / "photos" / name).symlink_to((images / name).resolve())
        first, second, *references = (sentence["raw"] for sentence in image["sentences"])
        for key, texts in (("first", [first]), ("second", [second]), ("references", references)):
            captions_by_file[key][name] = texts
    for key, captions in captions_by_file.items():
        (folder / f"{key}.json").write_text(json.dumps(captions), "utf-8")
    return len(test_images)


def _measure(folder: Path, command: list[str]) -> tuple[float, float]:
    """Run a command of saywhich in `folder`; return its wall-clock and processor seconds."""

    def read_processor_seconds() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    began, processor_before = time.monotonic(), read_processor_seconds()
    subprocess.run(
        [sys.executable, "-m", "saywhich", *command],
        cwd=folder,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
        stdout=sys.stderr,
        check=True,
    )
    return time.monotonic() - began, read_processor_seconds() - processor_before


if __name__ == "__main__":
    main()
