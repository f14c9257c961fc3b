"""saywhich serve: a page for the user's photos, and an HTTP API, by default for this machine only."""

from __future__ import annotations

import random
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

import saywhich
from pipeline.errors import UserError, escape_line, summarise_error
from saywhich.default_model import MODELS, rank_models
from saywhich.model_files import OtherDataError
from saywhich.pretrained.pretrained_options import add_pretrained, open_pretrained, refuse_pretrained

if TYPE_CHECKING:
    from saywhich.model import Model
    from saywhich.page_captions import ServedModel

SAMPLES, GROUP = 60, 10  # sample photos of the page, in groups of photos that are neighbours by name


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--model",
        action="append",
        metavar="DIR",
        help=f"a model; may be given several times; default, without --speaker and --preset: all in {MODELS}, the best "
        "first",
    )
    add_pretrained(parser)
    parser.add_argument("--photos", metavar="FOLDER", help=f"the page offers {SAMPLES} of these photos as samples")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; default: %(default)s, which only this machine reaches",
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="port to listen on; default: %(default)s; 0: any free port"
    )


def run(options: Namespace) -> int:
    """Serve until interrupted.

    Raises UserError where no model is given or found, and for a model, a photo folder, a host or a port that cannot be
    used.
    """
    import uvicorn

    from saywhich.connections import LimitedConnection
    from saywhich.photos import list_photo_files
    from saywhich.server import make_app

    pretrained = options.speaker is not None or options.preset is not None
    if not pretrained:
        refuse_pretrained(options, "temperature", "listener")  # requests set a trained model's temperature
    folders = [Path(model) for model in options.model or []]
    folders = folders or ([] if pretrained else rank_models())
    if not folders and not pretrained:
        raise UserError(
            f"{MODELS}: no trained model; train one (make repro), name one with --model, or a pretrained one with "
            "--speaker or --preset"
        )
    photos = sample_groups(list_photo_files([options.photos]) if options.photos else [])
    server_socket = bind(options.host, options.port)
    models: dict[str, ServedModel] = {}
    if folders:
        models.update(load_models(folders, strict=bool(options.model)))
    if pretrained:
        pretrained_model = open_pretrained(options)
        models[name_pretrained_speaker(pretrained_model.speaker.source, models)] = pretrained_model
    for model in models.values():  # numba compiles at first use: the compilation must not delay the first request
        model.caption([Image.new("RGB", (64, 64))], samples=2)
        model.caption([Image.new("RGB", (64, 64))])
    hosts = [] if options.host in ("127.0.0.1", "localhost", "::1") else ["*"]
    app = make_app(models, photos, hosts=hosts)
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(escape_line(f"http://{host}:{server_socket.getsockname()[1]}: {', '.join(models)}"), flush=True)
    # h11 limits the size of a request's headers; httptools does not. backlog: connections accepted in one go
    config = uvicorn.Config(
        app, http=LimitedConnection, ws="none", log_level="warning", timeout_graceful_shutdown=5, backlog=64
    )
    uvicorn.Server(config).run(sockets=[server_socket])
    return 0


def sample_groups(photos: Sequence[Path]) -> list[Path]:
    """Return up to SAMPLES photos, in groups of GROUP that are neighbours by name and often look alike."""
    starts = range(0, len(photos) - GROUP + 1, GROUP)
    sampled_starts = sorted(random.Random(0).sample(starts, min(SAMPLES // GROUP, len(starts)))) if starts else [0]
    return [photo for start in sampled_starts for photo in photos[start : start + GROUP]]


def load_models(folders: Sequence[Path], strict: bool) -> dict[str, Model]:
    """Load models by name; unless `strict`, report models of another profile on stderr and leave them out.

    Raises UserError where no model is left, and for any other model that cannot be loaded.
    """
    models = {}
    for name, folder in make_distinct_names(folders).items():
        try:
            models[name] = saywhich.load(folder)
        except OtherDataError as error:
            if strict:
                raise
            print(escape_line(f"left out: {error}"), file=sys.stderr)
    if not models:
        raise UserError(f"{MODELS}: no model of the present data; train one (make repro), or name one with --model")
    return models


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket without listening; raises UserError where the system refuses the host or the port."""
    if not 0 <= port <= 65_535:
        raise UserError(f"--port {port}: give a number from 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server_socket = socket.socket(family, kind, protocol)
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server_socket.bind(address)
    except (OSError, OverflowError, UnicodeError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or summarise_error(error)
        raise UserError(
            f"--host {host} --port {port}: the system refuses to listen ({reason}); give another host or port"
        ) from None
    return server_socket


def name_pretrained_speaker(source: str, used_names: Container[str]) -> str:
    """Name a pretrained speaker by the last part of its source, or by the whole source where that name is taken.

    Where both names are taken, `(pretrained)` follows the name.
    """
    whole_source = source.rstrip("/")
    last_part = whole_source.rpartition("/")[2]
    return next(name for name in (last_part, whole_source, f"{whole_source} (pretrained)") if name not in used_names)


def make_distinct_names(folders: Sequence[Path]) -> dict[str, Path]:
    """Name each model by its folder, and add parent folders where two models would have the same name."""
    folder_of_path = {folder.resolve(): folder for folder in folders}

    def join_last_parts(path: Path, length: int) -> str:
        return "/".join(path.parts[-length:])

    names = {}
    for path, folder in folder_of_path.items():
        length = 1
        while (
            length < len(path.parts)
            and sum(join_last_parts(path, length) == join_last_parts(other, length) for other in folder_of_path) > 1
        ):
            length += 1
        names[join_last_parts(path, length)] = folder
    return names
