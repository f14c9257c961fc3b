"""A trained model as a folder that works anywhere: weights, words, eyes, a model card, and digests of all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipeline.corpora.cards import load as load_card
from pipeline.corpora.cards import names
from pipeline.data.tokens import TOKENIZER
from pipeline.errors import UserError
from pipeline.runtime.files import sha256, write_atomically
from pipeline.runtime.folders import atomic_folder
from pipeline.runtime.seal import sealed_json
from saywhich.evaluated import evaluated
from saywhich.folders import load
from saywhich.model import Model
from saywhich.model_card import card
from saywhich.places import EXPORTED, EYES, FORM, Place

CARD = "README.md"


def export(folder: Path, out: Path) -> Model:
    """Write the trained model in `folder` into the folder `out`, and load it from there.

    It is written beside `out` and takes its place when it is whole. Raises UserError where `out` holds something else,
    and for a model whose eyes are not exported.
    """
    model = load(folder)
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / EXPORTED).is_file())):
        raise UserError(f"{out}: holds something else; give another folder, or remove it")
    description = described(model.place)
    words = [name for name in ("vocabulary.json", TOKENIZER) if (model.place.words / name).is_file()]
    sources = {"weights.safetensors": model.place.weights, **{name: model.place.words / name for name in words}}
    with atomic_folder(out) as new:
        for name, source in sources.items():
            write_atomically(new / name, source.read_bytes())
        written = [*(new / name for name in sources), *model.eyes.save(new / EYES)]
        write_atomically(new / CARD, card(description))
        files = {path.relative_to(new).as_posix(): sha256(path) for path in written}
        said = {"form": FORM, "model": description, "files": files}
        write_atomically(new / EXPORTED, sealed_json(said))
    return load(out)


def described(place: Place) -> dict[str, Any]:
    """What is known of the model: its method and settings, its data and their licence, what was measured."""
    if place.root is None:
        return dict(place.description)
    prepared = json.loads((place.root / "prepared" / "manifest.json").read_text(encoding="utf-8"))
    weights = place.folder.resolve()
    cell = weights / "evaluation"
    found = evaluated(cell if cell.is_dir() else place.root / "evaluation" / weights.name)
    data = {key: prepared[key] for key in ("dataset", "images", "captions", "words") if key in prepared}
    network = json.loads((place.eyes / "manifest.json").read_text(encoding="utf-8"))["network"]
    return {
        "name": found.get("method", weights.name),
        "settings": {},
        "version": version("saywhich"),
        "network": network,
        "data": {**data, **_licence(prepared["dataset"])},
        **found,
    }


def _licence(dataset: str) -> Mapping[str, str]:
    """The licence of a corpus as its card has it, and what the weights are under."""
    if dataset == "scenes":
        return {
            "title": "drawn scenes",
            "licence": "Apache-2.0: drawn and described by this code",
            "weights": "apache-2.0",
        }
    if dataset in names():
        found = load_card(dataset)
        return {"title": found.title, "licence": found.licence, "citation": found.citation, "weights": "other"}
    return {"title": dataset, "licence": "not stated: ask whoever owns the photos and captions", "weights": "other"}
