"""CLIP's two towers through open_clip: images to vectors and patches, captions to vectors beside those of images."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.errors import UserError
from pipeline.features.networks import Seen
from pipeline.features.torchvision_cpu import declare_operators
from pipeline.features.weights import HUB, hugging_face_file, load_local, short

if TYPE_CHECKING:
    from PIL import Image

OPEN_CLIP = "open_clip/"


class ClipNetwork:
    """CLIP (Extractor): the vector is the image's embedding, the regions are the patches' tokens.

    The embedding is the one that captions' are compared with, not normalised. Tokens are those of the last block after
    the final norm and before the projection, without the class token; of a tower that is a ResNet, the cells of its
    last map. Images are resized and cropped as open_clip has it; options {force_preprocess_cfg: {resize_mode: squash}}
    crop nothing.
    """

    has_boxes = False

    def __init__(
        self,
        name: str,
        weights: str,
        options: Mapping[str, Any],
        image_size: int,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        cells: int | None = None,
        device: torch.device | str = "cpu",
    ):
        """`name` is such as open_clip/ViT-B-32.laion2b_s34b_b79k: network and weights by open_clip's names.

        `weights` is `hub`, which needs the second name, or a safetensors file; `options` go to open_clip. Raises
        UserError as TimmNetwork does.
        """
        declare_operators()
        import open_clip
        from open_clip.transform import PreprocessCfg, image_transform_v2

        architecture, _, tag = name.removeprefix(OPEN_CLIP).partition(".")
        if architecture not in open_clip.list_models():
            raise UserError(f"features.network: open_clip has no network {architecture!r}; see its list_models()")
        tags = open_clip.list_pretrained_tags_by_model(architecture)
        if (tag or weights == HUB) and tag not in tags:
            raise UserError(
                f"features.network: {architecture} has no weights {tag!r}; name one as in {OPEN_CLIP}{architecture}."
                f"{tags[0] if tags else 'TAG'}, of {', '.join(tags) or 'none'}"
            )
        entry = open_clip.get_pretrained_cfg(architecture, tag) if tag else {}
        given = {**options, "force_image_size": image_size}
        if entry.get("quick_gelu"):
            given.setdefault("force_quick_gelu", True)
        shown = {**entry, **{key: tuple(value) for key, value in (("mean", mean), ("std", std)) if value is not None}}
        given["force_preprocess_cfg"] = {**shown, **(options.get("force_preprocess_cfg") or {})}
        logging.disable(logging.WARNING)  # it warns of weights that are not loaded yet
        try:
            self.model: Any = open_clip.create_model(architecture, pretrained_text=False, **given)
        except (TypeError, RuntimeError) as error:
            raise UserError(f"features.options: the network {name} does not take them ({short(error)})") from None
        finally:
            logging.disable(logging.NOTSET)
        if weights == HUB:
            repository, _, file = entry.get("hf_hub", "").rpartition("/")
            if not repository:
                raise UserError(f"features.weights: hub has no safetensors file of {name}; give a file of your own")
            path, source = hugging_face_file(repository, file or "open_clip_model.safetensors", name)
            open_clip.load_checkpoint(self.model, str(path))
        else:
            source = load_local(self.model, weights, name)
        self.model.eval().to(device)
        self.cells, self.device = cells, torch.device(device)
        preprocessing = self.model.visual.preprocess_cfg
        self._transform = image_transform_v2(PreprocessCfg(**preprocessing), is_train=False)
        self._tokens = open_clip.get_tokenizer(architecture, context_length=self.model.context_length)
        seen = self([torch.zeros(3, image_size, image_size)])
        self.pooled_size, self.regions_shape = seen.pooled.shape[1], (seen.regions.shape[1], seen.regions.shape[2])
        self.description: dict[str, Any] = {
            "network": name,
            "options": dict(options),
            "weights": source,
            "preprocessing": {
                key: preprocessing[key] for key in ("size", "interpolation", "resize_mode", "mean", "std")
            },
        }

    def prepare(self, image: Image.Image) -> Tensor:
        return self._transform(image)

    @torch.inference_mode()
    def __call__(self, images: Sequence[Tensor]) -> Seen:
        pixels = torch.stack(list(images)).to(self.device)
        seen = self.model.forward_intermediates(
            image=pixels, image_indices=1, normalize=False, normalize_intermediates=True
        )
        regions = seen["image_intermediates"][-1]
        if self.cells is not None:
            regions = F.adaptive_avg_pool2d(regions, self.cells)
        regions = regions.flatten(2).transpose(1, 2)
        return Seen(seen["image_features"], regions, torch.full((len(pixels),), regions.shape[1]))

    @torch.inference_mode()
    def text(self, captions: Sequence[str]) -> Tensor:
        """Embeddings (N, P) of N captions, not normalised, by open_clip's tokeniser; what is too long is cut off."""
        return self.model.encode_text(self._tokens(list(captions)).to(self.device))
