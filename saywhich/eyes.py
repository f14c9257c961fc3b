"""The eyes of a trained model: the network that made a set of features, for photos that are not among them.

A folder of features says in its manifest how they were made; what was trained or fitted here lies beside it. So the
same preprocessing and the same numbers come out for a photo as for an image of the data set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pipeline.errors import UserError
from pipeline.features.clip import OPEN_CLIP, fetches_text
from pipeline.features.extract import OBJECT_DETECTOR, OWN, open_network
from pipeline.features.extractor import Extractor, NetworkSettings, Seen
from pipeline.features.films import COLUMNS, of_films
from pipeline.features.hub import PREFIX as CAPTIONER
from pipeline.features.object_detector import ObjectDetector
from pipeline.features.projection import Fitted, Projection, Scale
from pipeline.features.weights import HUB
from pipeline.features.word_detector import WordDetector, WordDetectorNetwork
from pipeline.runtime.files import sha256, write_atomically
from pipeline.runtime.records import read_sealed
from pipeline.runtime.seal import sealed_json

if TYPE_CHECKING:
    from PIL import Image

MANIFEST = "manifest.json"
NETWORK = "network.safetensors"  # in a folder that `Eyes.save` wrote
AGAIN = "run the features stage again, or export the model again"
TRAINED = {"projection": ("mean", "components"), "scale": ("mean", "deviation")}


@dataclass(frozen=True)
class Eyes:
    """A network with its preprocessing and what was fitted to its features."""

    network: Extractor
    fitted: Fitted
    manifest: Mapping[str, Any]
    folder: Path

    @classmethod
    def open(
        cls, folder: Path, weights: str | None = None, device: torch.device | str = "cpu", exported: bool = False
    ) -> Eyes:
        """Open those that made the features in `folder`; `weights`: the file of weights that params.yaml names, if any.

        Of an exported folder nothing is fetched. Raises UserError where the manifest is missing, where the features
        were imported, and where a file is not the one whose digest the manifest has.
        """
        path = folder / MANIFEST
        manifest = read_sealed(path, AGAIN, required=not exported)
        if "network" not in manifest or "preprocessing" not in manifest:
            raise UserError(f"{path}: these features were imported, so no network here can see a photo as they do")
        tensors = {name: _checked(folder, manifest[name]) for name in TRAINED if isinstance(manifest.get(name), dict)}
        projection = scale = None
        if "projection" in tensors:
            projection = Projection(**tensors["projection"], explained=float(manifest["projection"]["explained"]))
        if "scale" in tensors:
            scale = Scale(**tensors["scale"])
        if exported:
            _refuse_fetching(path, manifest["network"], manifest["weights"])
        network = _network(folder, manifest, weights, device)
        _check_made(path, manifest, network)
        return cls(network, Fitted(projection, scale, COLUMNS if manifest.get("frames") else 0), manifest, folder)

    @property
    def mirrored(self) -> bool:
        """Whether listeners look at an image and its mirror image."""
        return bool(self.manifest.get("mirrored"))

    @property
    def frames(self) -> int | None:
        """How many frames of a film are looked at, at most; None: still images are."""
        return self.manifest.get("frames")

    @property
    def bytes_per_pixel(self) -> int:
        """The memory that `prepare` takes for each pixel of an image: detectors see it in floating point."""
        return 28 if self.network.has_boxes else 4

    def prepare(self, image: Image.Image | Iterable[Image.Image]) -> Tensor:
        """An RGB image as the network's input (3, H, W); where films are looked at, the frames of one (F, 3, H, W)."""
        prepare: Callable[..., Tensor] = self.network.prepare
        return prepare(image)

    def __call__(self, prepared: Sequence[Tensor], mirrored: bool = False) -> Seen:
        """The features of B prepared images, or of their mirror images: of the precision that a store has."""
        seen = self.network([tensor.flip(-1) for tensor in prepared] if mirrored else prepared)
        pooled, regions = self.fitted(_as_stored(seen.pooled), _as_stored(seen.regions), seen.region_count.cpu())
        count = seen.region_count.cpu()
        return seen._replace(pooled=_as_stored(pooled), regions=_as_stored(regions), region_count=count)

    def save(self, folder: Path) -> list[Path]:
        """Write all that `open` needs into `folder`; the files.

        Raises UserError for a captioner's vision tower, which transformers keeps.
        """
        from safetensors.torch import save

        name, model = str(self.manifest["network"]), getattr(self.network, "model", None)
        if name.startswith(CAPTIONER) or not isinstance(model, nn.Module):
            raise UserError(
                f"{name}: the network of a captioner of transformers is not exported; publish it from there"
            )
        content = save({key: tensor.detach().cpu().contiguous() for key, tensor in model.state_dict().items()})
        write_atomically(folder / NETWORK, content)
        dropped = ("crc", "shape")  # of the store that the manifest was written beside
        manifest = {key: value for key, value in self.manifest.items() if key not in dropped}
        manifest["weights"] = {
            **{k: v for k, v in manifest["weights"].items() if k == "file" and name not in OWN},
            "source": NETWORK,
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        written = [folder / NETWORK]
        for key in TRAINED:
            if isinstance(manifest.get(key), dict):
                written.append(folder / manifest[key]["file"])
                write_atomically(written[-1], (self.folder / manifest[key]["file"]).read_bytes())
        write_atomically(folder / MANIFEST, sealed_json(manifest))
        return [*written, folder / MANIFEST]


def _as_stored(values: Tensor) -> Tensor:
    """float32 with the precision of the store's float16."""
    return values.float().cpu().half().float()


def _refuse_fetching(path: Path, network: str, weights: Mapping[str, Any]) -> None:
    """Raise UserError for a network of which something would come from a hub, or from elsewhere on this machine."""
    fetched = network.startswith(OPEN_CLIP) and fetches_text(network)
    if network.startswith(CAPTIONER) or fetched or (network not in OWN and weights["source"] != NETWORK):
        raise UserError(
            f"{path}: the network {network} would be fetched, and an exported model brings all that it needs; "
            "export the model again"
        )


def _check_made(path: Path, manifest: Mapping[str, Any], network: Extractor) -> None:
    """Raise UserError where the features beside the manifest are of other weights, or have another shape."""
    found, wanted = network.description.get("weights"), manifest["weights"]
    if found is not None and found.get("sha256") != wanted["sha256"]:
        raise UserError(f"{path}: the weights of {manifest['network']} are not those that it names; {AGAIN}")
    regions, pooled = network.regions_shape[0], network.pooled_size
    if (shape := manifest.get("shape")) is not None and (shape["R"], shape["P"]) != (regions, pooled):
        raise UserError(
            f"{path}: its network gives {regions} regions and vectors of {pooled} numbers, and the features beside it "
            f"have {shape['R']} and {shape['P']}; {AGAIN}"
        )


def _network(folder: Path, manifest: Mapping[str, Any], weights: str | None, device: torch.device | str) -> Extractor:
    name, shown = manifest["network"], manifest["preprocessing"]
    size = shown.get("input_size") or shown.get("size") or shown["shortest"]
    settings = NetworkSettings(
        name,
        size[-1] if isinstance(size, list) else size,
        options=manifest.get("options") or {},
        mean=shown.get("mean"),
        std=shown.get("std"),
        cells=manifest.get("cells"),
        boxes=manifest.get("boxes"),
        vector=manifest.get("vector"),
        frames=manifest.get("frames"),
        rate=manifest.get("rate"),
    )
    source = manifest["weights"]
    if name in OWN:
        file = source.get("file") or source["source"]
        state = _checked(folder, {"file": file, "sha256": source["sha256"]})
        return of_films(WordDetectorNetwork(_detector(name, state), settings, device), settings)
    if source.get("source") == HUB or name.startswith(CAPTIONER):
        return open_network(settings, device)
    path = folder / source["source"]
    if not path.is_file():
        path = Path(weights or source["source"])
    if not path.is_file():
        raise UserError(
            f"{path}: the weights of {name} are missing; put the file there that the features were made with"
        )
    _check_digest(path, source["sha256"])
    return open_network(replace(settings, weights=str(path)), device)


def _detector(name: str, state: Mapping[str, Tensor]) -> nn.Module:
    """A detector that was trained here, of the sizes that its weights have."""
    detector: nn.Module
    if name == OBJECT_DETECTOR:
        width, scene = len(state["whole.stem.0.weight"]), len(state["whole.words.bias"])
        detector = ObjectDetector(len(state["objects.bias"]), scene, width)
    else:
        detector = WordDetector(len(state["words.bias"]), len(state["stem.0.weight"]))
    detector.load_state_dict(state)
    return detector


def _checked(folder: Path, entry: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file that a manifest names with its digest."""
    from safetensors.torch import load_file

    path = folder / entry["file"]
    if not path.is_file():
        raise UserError(f"{path}: missing; run the features stage again, or export the model again")
    _check_digest(path, entry["sha256"])
    return load_file(path)


def _check_digest(path: Path, wanted: str) -> None:
    found = sha256(path)
    if found != wanted:
        raise UserError(f"{path}: the SHA-256 is {found[:16]}…, not {wanted[:16]}… as written; get the file again")
