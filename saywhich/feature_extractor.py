"""The feature extractor of a trained model: the network that made a set of features, applied to new photos.

The manifest of a features folder states how the features were made. The folder also has the fitted transforms, and the
weights of a detector that was trained here, or of an exported network. A photo therefore gets the same preprocessing
and the same features as an image of the data set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from pipeline.errors import UserError, summarise_error
from pipeline.features.clip import OPEN_CLIP, fetches_text
from pipeline.features.extract import OBJECT_DETECTOR, TRAINED_HERE, open_network
from pipeline.features.extractor import Extractor, ImageFeatures, NetworkSettings
from pipeline.features.film_extractor import COLUMNS, wrap_for_films
from pipeline.features.hub_dual_tower import save_hub_model
from pipeline.features.hub_tower import PREFIX as FROM_HUB
from pipeline.features.manifest import Manifest
from pipeline.features.network_weights import HUB, check_fit
from pipeline.features.object_detector import ObjectDetector
from pipeline.features.projection import FittedTransforms, Projection, Standardisation
from pipeline.features.texture import SIZE, TrainingTexture
from pipeline.features.word_detector import WordDetector, WordDetectorNetwork
from pipeline.runtime.checksums import serialise_with_checksum
from pipeline.runtime.files import compute_sha256, write_atomically
from pipeline.runtime.records import parse_record, read_checksummed
from pipeline.runtime.tensors import read_tensors
from saywhich.model_files import CAPTIONER

if TYPE_CHECKING:
    from PIL import Image

MANIFEST = "manifest.json"
NETWORK = "network.safetensors"  # in a folder that `FeatureExtractor.save` wrote
REMEDY = "run the features stage again, or export the model again"
FITTED = ("projection", "scale", "texture")
MAX_NUMBERS = 2**26  # limit of the numbers in the regions, and in the vector, of one photo


@dataclass(frozen=True)
class FeatureExtractor:
    """A network with its preprocessing, and the transforms fitted to its features."""

    network: Extractor
    fitted: FittedTransforms
    manifest: Mapping[str, Any]
    folder: Path
    texture: TrainingTexture | None = None  # None: none could be fitted, or an earlier version made the features

    @classmethod
    def open(
        cls, folder: Path, weights: str | None = None, device: torch.device | str = "cpu", exported: bool = False
    ) -> FeatureExtractor:
        """Open the extractor of the features in `folder`; `weights` is the weights file that params.yaml names, if any.

        With `exported` nothing is downloaded, and a network outside `folder` raises UserError. Raises UserError for a
        missing or damaged manifest, and for features that were imported or computed from facts. Raises UserError for a
        file with another digest than the manifest's. Raises UserError where the network cannot be built, is too large
        or does not fit the manifest.
        """
        path = folder / MANIFEST
        content = read_checksummed(path, REMEDY, required=not exported)
        if "network" not in content or "preprocessing" not in content:
            raise UserError(
                f"{path}: these features were imported or computed from facts, and no network here extracts them from "
                "photos; give a model with extracted features"
            )
        manifest = parse_record(content, Manifest, str(path), REMEDY)
        if exported:
            _refuse_fetching(path, manifest)
        try:
            network = _build_network(folder, manifest, weights, device)
        except UserError:
            raise
        except Exception as error:  # libraries can raise any exception for bad options in a manifest
            raise UserError(f"{path}: its network cannot be built ({summarise_error(error)}); {REMEDY}") from None
        _check_network(path, manifest, network)
        return cls(
            network, _load_transforms(folder, manifest, network), content, folder, _load_texture(folder, manifest)
        )

    @property
    def regions_size(self) -> int:
        """Return D, the size of a region's features as speakers attend to them."""
        projection = self.fitted.projection
        network_size = self.network.regions_shape[1]
        return network_size if projection is None else len(projection.components) + self.fitted.unreduced

    @property
    def mirrored(self) -> bool:
        """Return whether listeners encode an image together with its mirror image."""
        return bool(self.manifest.get("mirrored"))

    @property
    def frames(self) -> int | None:
        """Return the largest number of frames sampled from a film; None for still images."""
        return self.manifest.get("frames")

    @property
    def bytes_per_pixel(self) -> int:
        """Return the memory in bytes that `prepare` takes per pixel of an image; detectors of boxes need more."""
        return 28 if self.network.has_boxes else 4

    def prepare(self, image: Image.Image | Iterable[Image.Image]) -> Tensor:
        """Return an RGB image as the network's input (3, H, W); with `frames`, a film or an image as (F, 3, H, W)."""
        prepare: Callable[..., Tensor] = self.network.prepare
        return prepare(image)

    def is_out_of_distribution(self, prepared: Tensor) -> bool:
        """Return whether a prepared image is unlike the training images; False where their texture is unknown."""
        return self.texture is not None and self.texture.is_out_of_distribution(prepared)

    def __call__(self, prepared: Sequence[Tensor], mirrored: bool = False) -> ImageFeatures:
        """Return the features of B prepared images, or of their mirror images, in the precision of the feature store.

        Raises UserError where a feature is not finite.
        """
        features = self.network([tensor.flip(-1) for tensor in prepared] if mirrored else prepared)
        count = features.region_count.cpu()
        pooled, regions = self.fitted(_round_to_store(features.pooled), _round_to_store(features.regions), count)
        pooled, regions = _round_to_store(pooled), _round_to_store(regions)
        if not (pooled.isfinite().all() and regions.isfinite().all()):
            raise UserError(f"{self.folder / MANIFEST}: a photo's features are infinite or NaN; {REMEDY}")
        return features._replace(pooled=pooled, regions=regions, region_count=count)

    def save(self, folder: Path) -> list[Path]:
        """Write all files that `open` needs into `folder`, and return their paths.

        Raises UserError for a network without a `model`. A model of transformers is written whole, with its
        text encoder or decoder.
        """
        name, model = str(self.manifest["network"]), getattr(self.network, "model", None)
        if not isinstance(model, nn.Module):
            raise UserError(f"{name}: this network cannot be exported; train with another features.main.network")
        excluded_keys = ("crc", "shape")  # these entries describe the feature store beside the manifest
        manifest = {key: value for key, value in self.manifest.items() if key not in excluded_keys}
        if name.startswith(FROM_HUB):
            paths = save_hub_model(_locate_hub_model(self.folder, name), folder / CAPTIONER)
            manifest["weights"] = {"source": CAPTIONER, "sha256": manifest["weights"]["sha256"]}
        else:
            content = save({key: tensor.detach().cpu().contiguous() for key, tensor in model.state_dict().items()})
            write_atomically(folder / NETWORK, content)
            paths = [folder / NETWORK]
            manifest["weights"] = {
                **{k: v for k, v in manifest["weights"].items() if k == "file" and name not in TRAINED_HERE},
                "source": NETWORK,
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        for key in FITTED:
            if isinstance(manifest.get(key), dict):
                paths.append(folder / manifest[key]["file"])
                write_atomically(paths[-1], (self.folder / manifest[key]["file"]).read_bytes())
        write_atomically(folder / MANIFEST, serialise_with_checksum(manifest))
        return [*paths, folder / MANIFEST]


def _round_to_store(values: Tensor) -> Tensor:
    """Return `values` as float32, rounded to the store's float16."""
    return values.float().cpu().half().float()


def _locate_hub_model(folder: Path, network: str) -> str:
    """Return the path of the model of transformers that `save` wrote into `folder`, else the name in `network`."""
    return str(folder / CAPTIONER) if (folder / CAPTIONER).is_dir() else network.removeprefix(FROM_HUB)


def _refuse_fetching(path: Path, manifest: Manifest) -> None:
    """Raise UserError for a network with a part that would come from a hub or from another folder of this machine."""
    name = manifest.network
    needs_text_tower = name.startswith(OPEN_CLIP) and fetches_text(name)
    if name.startswith(FROM_HUB) and (path.parent / CAPTIONER).is_dir():
        return
    if needs_text_tower:
        raise UserError(
            f"{path}: expected a network that fetches nothing, found {name}, which fetches its text tower; train with "
            "another features.main.network"
        )
    if name.startswith(FROM_HUB) or (name not in TRAINED_HERE and manifest.weights.source != NETWORK):
        raise UserError(
            f"{path}: expected the weights of the network {name} in this folder, found none; export the model again"
        )


def _check_network(path: Path, manifest: Manifest, network: Extractor) -> None:
    """Raise UserError where the network's weights or shapes differ from the manifest's, or its output is too large."""
    weights = network.description.get("weights")
    if weights is not None and weights.get("sha256") != manifest.weights.sha256:
        raise UserError(
            f"{path}: the weights of {manifest.network} do not have the SHA-256 that the manifest states; {REMEDY}"
        )
    (regions, size), pooled = network.regions_shape, network.pooled_size
    if regions * size > MAX_NUMBERS or pooled > MAX_NUMBERS:
        raise UserError(
            f"{path}: its network gives {regions:,} regions of {size:,} numbers and vectors of {pooled:,}; at most "
            f"{MAX_NUMBERS:,} numbers are supported; choose another features.main.network"
        )
    if (shape := manifest.shape) is not None and (regions, pooled) != (shape.R, shape.P):
        raise UserError(
            f"{path}: its network gives {regions} regions and vectors of {pooled} numbers, and the features beside it "
            f"have {shape.R} and {shape.P}; {REMEDY}"
        )


def _build_network(folder: Path, manifest: Manifest, weights: str | None, device: torch.device | str) -> Extractor:
    preprocessing, boxes = manifest.preprocessing, manifest.boxes
    settings = NetworkSettings(
        manifest.network,
        preprocessing.side,
        options=manifest.options,
        mean=preprocessing.mean,
        std=preprocessing.std,
        grid_size=manifest.cells,
        boxes=None if boxes is None else boxes.model_dump(exclude_none=True),
        vector=manifest.vector,
        frames=manifest.frames,
        frames_per_second=manifest.rate,
    )
    if manifest.network in TRAINED_HERE:
        path = _require_digest(
            folder / (manifest.weights.file or manifest.weights.source or NETWORK), manifest.weights.sha256
        )
        return wrap_for_films(WordDetectorNetwork(_load_detector(manifest.network, path), settings, device), settings)
    if manifest.network.startswith(FROM_HUB):
        return open_network(
            replace(settings, network=f"{FROM_HUB}{_locate_hub_model(folder, manifest.network)}"), device
        )
    if manifest.weights.source == HUB:
        return open_network(settings, device)
    path = folder / (manifest.weights.source or NETWORK)
    if not path.is_file() and weights is not None:
        path = Path(weights)
    return open_network(replace(settings, weights=str(_require_digest(path, manifest.weights.sha256))), device)


def _load_detector(name: str, path: Path) -> nn.Module:
    """Load a detector trained in this project; the shapes of its weights determine its sizes."""
    _, state = read_tensors(path, REMEDY)

    def build_detector() -> nn.Module:
        if name == OBJECT_DETECTOR:
            width, scene = len(state["whole.stem.0.weight"]), len(state["whole.words.bias"])
            return ObjectDetector(len(state["objects.bias"]), scene, width)
        return WordDetector(len(state["words.bias"]), len(state["stem.0.weight"]))

    check_fit(build_detector, str(path), name)
    detector = build_detector()
    detector.load_state_dict(state)
    return detector


def _load_transforms(folder: Path, manifest: Manifest, network: Extractor) -> FittedTransforms:
    """Load the transforms fitted to the features, and check their shapes against the network's."""
    appended_columns = COLUMNS if manifest.frames else 0
    size = network.regions_shape[1] - appended_columns
    projection = scale = None
    if manifest.projection is not None:
        path = _require_digest(folder / manifest.projection.file, manifest.projection.sha256)
        mean, components = _read_shaped_tensors(path, mean=(size,), components=(manifest.project, size))
        projection = Projection(mean, components, manifest.projection.explained or 0.0)
    if manifest.scale is not None:
        path = _require_digest(folder / manifest.scale.file, manifest.scale.sha256)
        mean, deviation = _read_shaped_tensors(path, mean=(network.pooled_size,), deviation=(network.pooled_size,))
        if not (deviation > 0).all():
            raise UserError(f"{path}: a deviation is not positive; {REMEDY}")
        scale = Standardisation(mean, deviation)
    return FittedTransforms(projection, scale, appended_columns)


def _load_texture(folder: Path, manifest: Manifest) -> TrainingTexture | None:
    """Load the texture of the training images, if the manifest names one."""
    if manifest.texture is None:
        return None
    path = _require_digest(folder / manifest.texture.file, manifest.texture.sha256)
    return TrainingTexture(*_read_shaped_tensors(path, mean=(SIZE,), whitening=(SIZE, SIZE), limit=()))


def _read_shaped_tensors(path: Path, **shapes: tuple[int | None, ...]) -> list[Tensor]:
    """Read the tensors of a file as float32; a size None matches any. Raises UserError for other names or shapes."""
    _, tensors = read_tensors(path, REMEDY)
    if tensors.keys() != shapes.keys():
        raise UserError(f"{path}: expected the tensors {', '.join(shapes)}, found {', '.join(tensors)[:80]}; {REMEDY}")
    for name, expected in shapes.items():
        shape = tensors[name].shape
        if len(shape) != len(expected) or any(
            expected_size not in (None, size) for expected_size, size in zip(expected, shape, strict=True)
        ):
            raise UserError(f"{path}: {name} has the shape {tuple(shape)}, and {expected} is needed; {REMEDY}")
    return [tensors[name].float() for name in shapes]


def _require_digest(path: Path, expected: str) -> Path:
    """Return `path` if its SHA-256 is `expected`; raises UserError where the file is missing or differs."""
    if not path.is_file():
        raise UserError(f"{path}: is missing; {REMEDY}, or restore the file with which the features were made")
    if (found := compute_sha256(path)) != expected:
        raise UserError(f"{path}: the SHA-256 is {found[:16]}…, not {expected[:16]}… as written; get the file again")
    return path
