"""Weights of networks: from their hubs by name, checked against the hub's digest, or from a file.

Files are safetensors. Torchvision publishes pickles, from which only tensors are read (`weights_only`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.errors import UserError, summarise_error
from pipeline.runtime.files import compute_sha256
from pipeline.runtime.hub_loading import locate_repository
from pipeline.runtime.tensors import read_shapes, read_tensors

HUB = "hub"
REMEDY = "get the file again"
Shapes = Mapping[str, tuple[int, ...]]


class UnreachableWeightsError(UserError):
    """An error for weights of a hub that are not on this machine and cannot be fetched."""


def load_local(model: nn.Module, weights: str, name: str) -> dict[str, str]:
    """Load the safetensors file `weights`, of any precision, into the network `name`; return its entry in the manifest.

    Raises UserError where the file is missing or damaged, for numbers that are not finite, and for the first tensor
    that does not fit.
    """
    path = _require_file(weights, name)
    _, tensors = read_tensors(path, REMEDY)
    _load_strictly(model, tensors, path, name)
    return {"source": path.name, "sha256": compute_sha256(path)}


def check_fit(build: Callable[[], nn.Module], weights: str, name: str) -> None:
    """Compare the shapes of the network `name` with those of the file `weights`, without memory for its tensors.

    The file therefore limits the memory of a network that is built afterwards, whatever its options. Weights of a hub
    are not compared. Raises UserError for a missing or damaged file, and for the first tensor that differs.
    """
    if weights == HUB:
        return
    path = _require_file(weights, name)
    with torch.device("meta"):
        expected = _list_shapes(build().state_dict())
    _compare_shapes(expected, read_shapes(path, REMEDY), path, name)


def fetch_hub_file(repository: str, file: str, name: str) -> tuple[Path, dict[str, str]]:
    """Fetch a safetensors file from the Hugging Face hub or its cache; return its path and its entry in the manifest.

    The cache names a large file by the SHA-256 that the hub states. The cache names a small file by another
    digest, so its SHA-256 is not compared. Raises UserError where the content has another digest or the file has
    another format. Raises UnreachableWeightsError where the file is not cached and cannot be fetched.
    """
    from huggingface_hub import hf_hub_download

    file = file.replace("pytorch_model.bin", "model.safetensors")
    if not file.endswith(".safetensors"):
        raise UserError(f"features.weights: the hub has no safetensors file of {name}; give a safetensors file instead")
    try:
        commit, cached = locate_repository(repository)
        path = Path(hf_hub_download(repository, file, revision=commit, local_files_only=cached))
    except Exception as error:  # any error of the hub's client, its transport or its cache
        raise UnreachableWeightsError(
            f"features.weights: hub has no weights for {name} that can be reached ({summarise_error(error)}); fetch "
            f"{file} of {repository} on a machine with internet access, compare its SHA-256 with the SHA-256 on its "
            "page, put it on this machine and give its path as features.weights"
        ) from None
    digest, expected = compute_sha256(path), path.resolve().name
    if re.fullmatch("[0-9a-f]{64}", expected) and digest != expected:
        raise UserError(
            f"{path.resolve()}: the SHA-256 is {digest[:16]}…, not the file's name; remove the file and fetch it again"
        )
    return path, {"source": HUB, "file": f"{repository}/{file}", "sha256": digest}


def load_torchvision(model: nn.Module, weights: str, entry: Any, name: str) -> dict[str, str]:
    """Load the weights of a network of torchvision, strictly; return their entry in the manifest.

    `weights` is a safetensors file, or `hub` for `entry` (a member of one of torchvision's enumerations), fetched or
    from PyTorch's cache. The first digits of the SHA-256 are in the file's name, and are compared each time. Raises
    UnreachableWeightsError where the file cannot be fetched; a copy in PyTorch's cache avoids the fetch. Raises
    UserError for a file with another digest or other objects than tensors, and for the first tensor that does not fit.
    """
    if weights != HUB:
        return load_local(model, weights, name)
    url = entry.url
    path = Path(torch.hub.get_dir(), "checkpoints", url.rpartition("/")[2])
    match = re.search(r"-([0-9a-f]{8,})\.", path.name)
    prefix = match[1] if match else None
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(url, str(path), prefix, progress=False)
        except Exception as error:  # an error of the network or of the digest
            digest_note = f", its SHA-256 begins with {prefix}," if prefix else ""
            raise UnreachableWeightsError(
                f"features.weights: hub has no weights for {name} that can be reached ({summarise_error(error)}); "
                f"fetch {path.name}{digest_note} on a machine with internet access and put it into {path.parent}, or "
                "give the path of a safetensors file as features.weights"
            ) from None
    digest = compute_sha256(path)
    if prefix and not digest.startswith(prefix):
        raise UserError(
            f"{path}: the SHA-256 begins with {digest[:16]}, not with {prefix}; remove the file and fetch it again"
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
            raise TypeError("no mapping of names to tensors")
    except Exception as error:  # a pickle with other objects than tensors, or no pickle
        raise UserError(f"{path}: not a file of tensors only ({summarise_error(error)}); {REMEDY}") from None
    _load_strictly(model, state, path, name)
    return {"source": HUB, "file": path.name, "sha256": digest}


def _require_file(weights: str, name: str) -> Path:
    """Return the path of a file of weights; raises UserError where there is none."""
    if not (path := Path(weights)).exists():
        raise UserError(f"{path}: the weights of {name} are missing; put the safetensors file there")
    return path


def _load_strictly(model: nn.Module, tensors: dict[str, Tensor], path: Path, name: str) -> None:
    expected = model.state_dict()
    _compare_shapes(_list_shapes(expected), _list_shapes(tensors), path, name)
    model.load_state_dict({key: value.to(expected[key].dtype) for key, value in tensors.items()})


def _list_shapes(state: Mapping[str, Tensor]) -> Shapes:
    return {key: tuple(value.shape) for key, value in state.items()}


def _compare_shapes(expected: Shapes, actual: Shapes, path: Path, name: str) -> None:
    """Raise UserError for the first tensor that is missing, superfluous, or of another shape."""
    for key in (*expected, *actual):
        shape, expected_shape = actual.get(key), expected.get(key)
        if shape != expected_shape:
            problem = "is missing" if shape is None else f"has the shape {shape}"
            if expected_shape is None:
                problem += ", and the network has no such tensor"
            else:
                problem += f", the network expects {expected_shape}"
            raise UserError(f"{path}, {key}: {problem}; give weights of {name} with these options")
