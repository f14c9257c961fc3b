"""Export of a trained model to a portable folder: weights, vocabulary, feature extractor, model card and digests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipeline.corpora.cards import list_card_names, load_card
from pipeline.data.tokenizer_vocabulary import TOKENIZER
from pipeline.errors import UserError
from pipeline.runtime.checksums import serialise_with_checksum
from pipeline.runtime.files import compute_sha256, write_atomically
from pipeline.runtime.folders import atomic_folder, check_replaceable
from pipeline.runtime.records import read_checksummed
from saywhich.evaluation_summary import read_evaluation
from saywhich.loading import load_model
from saywhich.model import Model
from saywhich.model_card import make_model_card
from saywhich.model_files import EXPORTED, FEATURES, FORM, REMEDY, ModelFiles

CARD = "README.md"


def export_model(folder: Path, out: Path) -> Model:
    """Write the trained model in `folder` into the folder `out`, and load it from there.

    The new folder is written beside `out` and renamed when it is complete. Raises UserError where `out` holds other
    files than an earlier export's, for a model whose feature extractor cannot be exported, and as `load_model` does.
    """
    model = load_model(folder)
    check_replaceable(out, _list_exported_files(out))
    description = describe_model(model.files)
    vocabulary_files = [name for name in ("vocabulary.json", TOKENIZER) if (model.files.vocabulary / name).is_file()]
    sources = {
        "weights.safetensors": model.files.weights,
        **{name: model.files.vocabulary / name for name in vocabulary_files},
    }
    with atomic_folder(out) as temporary:
        for name, source in sources.items():
            write_atomically(temporary / name, source.read_bytes())
        paths = [*(temporary / name for name in sources), *model.feature_extractor.save(temporary / FEATURES)]
        write_atomically(temporary / CARD, make_model_card(description))
        files = {path.relative_to(temporary).as_posix(): compute_sha256(path) for path in paths}
        manifest = {"form": FORM, "model": description, "files": files}
        write_atomically(temporary / EXPORTED, serialise_with_checksum(manifest))
    return load_model(out)


def _list_exported_files(folder: Path) -> set[str]:
    """Return the files that an earlier export wrote into `folder`, by its manifest; none where it has no manifest."""
    try:
        files = read_checksummed(folder / EXPORTED, REMEDY, required=False).get("files")
    except UserError:
        return set()
    return {EXPORTED, CARD, *(files if isinstance(files, dict) else ())}


def describe_model(files: ModelFiles) -> dict[str, Any]:
    """Return the model's name, settings, network, training data with licence, and evaluation results."""
    if files.root is None:
        return dict(files.description)
    prepared = json.loads((files.root / "prepared" / "manifest.json").read_text(encoding="utf-8"))
    folder = files.folder.resolve()
    cell = folder / "evaluation"
    evaluation = read_evaluation(cell if cell.is_dir() else files.root / "evaluation" / folder.name)
    data = {key: prepared[key] for key in ("dataset", "images", "captions", "words") if key in prepared}
    network = json.loads((files.feature_extractor / "manifest.json").read_text(encoding="utf-8"))["network"]
    return {
        "name": evaluation.get("method", folder.name),
        "settings": {},
        "version": version("saywhich"),
        "network": network,
        "data": {**data, **_describe_licence(prepared["dataset"])},
        **evaluation,
    }


def _describe_licence(dataset: str) -> Mapping[str, str]:
    """Return the title, the licence and any citation of a corpus by its card, and the licence of the weights."""
    if dataset in ("scenes", "films"):
        return {
            "title": f"drawn {dataset}",
            "licence": "Apache-2.0: drawn and described by this code",
            "weights": "apache-2.0",
        }
    if dataset in list_card_names():
        card = load_card(dataset)
        return {"title": card.title, "licence": card.licence, "citation": card.citation, "weights": "other"}
    return {"title": dataset, "licence": "not stated: ask the owner of the photos and captions", "weights": "other"}
