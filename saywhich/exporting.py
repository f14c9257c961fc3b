"""Export of a trained model to a portable folder: weights, vocabulary, feature extractor, model card and digests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipeline.corpora.cards import card_names, load_card
from pipeline.data.tokenizer_vocabulary import TOKENIZER
from pipeline.errors import UserError
from pipeline.runtime.checksums import checksummed_json
from pipeline.runtime.files import sha256, write_atomically
from pipeline.runtime.folders import atomic_folder, check_replaceable
from pipeline.runtime.records import read_checksummed
from saywhich.evaluation_summary import read_evaluation
from saywhich.loading import load_model
from saywhich.model import Model
from saywhich.model_card import model_card
from saywhich.model_files import AGAIN, EXPORTED, FEATURES, FORM, ModelFiles

CARD = "README.md"


def export_model(folder: Path, out: Path) -> Model:
    """Write the trained model in `folder` into the folder `out`, and load it from there.

    The new folder is written beside `out` and renamed when it is complete. Raises UserError where `out` holds anything
    but an earlier export, and for a model whose feature extractor cannot be exported.
    """
    model = load_model(folder)
    check_replaceable(out, _exported_names(out))
    description = describe_model(model.place)
    words = [name for name in ("vocabulary.json", TOKENIZER) if (model.place.words / name).is_file()]
    sources = {"weights.safetensors": model.place.weights, **{name: model.place.words / name for name in words}}
    with atomic_folder(out) as new:
        for name, source in sources.items():
            write_atomically(new / name, source.read_bytes())
        written = [*(new / name for name in sources), *model.feature_extractor.save(new / FEATURES)]
        write_atomically(new / CARD, model_card(description))
        files = {path.relative_to(new).as_posix(): sha256(path) for path in written}
        manifest = {"form": FORM, "model": description, "files": files}
        write_atomically(new / EXPORTED, checksummed_json(manifest))
    return load_model(out)


def _exported_names(folder: Path) -> set[str]:
    """Return the files that an earlier export wrote into `folder`, by its manifest; none where it has no manifest."""
    try:
        files = read_checksummed(folder / EXPORTED, AGAIN, required=False).get("files")
    except UserError:
        return set()
    return {EXPORTED, CARD, *(files if isinstance(files, dict) else ())}


def describe_model(place: ModelFiles) -> dict[str, Any]:
    """Return the model's name, settings, network, training data with licence, and evaluation results."""
    if place.root is None:
        return dict(place.description)
    prepared = json.loads((place.root / "prepared" / "manifest.json").read_text(encoding="utf-8"))
    weights = place.folder.resolve()
    cell = weights / "evaluation"
    found = read_evaluation(cell if cell.is_dir() else place.root / "evaluation" / weights.name)
    data = {key: prepared[key] for key in ("dataset", "images", "captions", "words") if key in prepared}
    network = json.loads((place.feature_extractor / "manifest.json").read_text(encoding="utf-8"))["network"]
    return {
        "name": found.get("method", weights.name),
        "settings": {},
        "version": version("saywhich"),
        "network": network,
        "data": {**data, **_licence(prepared["dataset"])},
        **found,
    }


def _licence(dataset: str) -> Mapping[str, str]:
    """Return the title, the licence and any citation of a corpus by its card, and the licence of the weights."""
    if dataset in ("scenes", "films"):
        return {
            "title": f"drawn {dataset}",
            "licence": "Apache-2.0: drawn and described by this code",
            "weights": "apache-2.0",
        }
    if dataset in card_names():
        found = load_card(dataset)
        return {"title": found.title, "licence": found.licence, "citation": found.citation, "weights": "other"}
    return {"title": dataset, "licence": "not stated: ask whoever owns the photos and captions", "weights": "other"}
