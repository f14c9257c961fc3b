"""saywhich serve: a page for photos of one's own, and an HTTP API, on this machine alone unless told otherwise."""

from __future__ import annotations

import random
from argparse import ArgumentParser, Namespace
from pathlib import Path

from pipeline.errors import UserError

MODELS = Path("data/models")
SAMPLES = 60  # photos to try the page with


def add(parser: ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "--model", action="append", metavar="DIR", help=f"a model; as often as need be; default: all in {MODELS}"
    )
    parser.add_argument("--photos", metavar="FOLDER", help=f"{SAMPLES} of these photos are there to try the page with")
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s, which only this machine reaches")
    parser.add_argument("--port", type=int, default=8000, help="default: %(default)s")


def run(options: Namespace) -> int:
    """Serve until it is interrupted."""
    import uvicorn
    from PIL import Image

    import saywhich
    from saywhich.page import app_of
    from saywhich.photos import files

    folders = [Path(model) for model in options.model or []]
    folders = folders or sorted(path for path in MODELS.glob("*") if path.is_dir())
    if not folders:
        raise UserError(f"{MODELS}: no trained model; train one (make repro), or name one with --model")
    models = {folder.resolve().name: saywhich.load(folder) for folder in folders}
    for model in models.values():  # numba compiles at first use: not in the first request
        model.caption([Image.new("RGB", (64, 64))], samples=2)
        model.caption([Image.new("RGB", (64, 64))])
    photos = files([options.photos]) if options.photos else []
    photos = random.Random(0).sample(photos, min(SAMPLES, len(photos)))
    print(f"http://{options.host}:{options.port}: {', '.join(models)}", flush=True)
    hosts = [] if options.host in ("127.0.0.1", "localhost", "::1") else ["*"]
    uvicorn.run(app_of(models, photos, hosts=hosts), host=options.host, port=options.port, log_level="warning")
    return 0
