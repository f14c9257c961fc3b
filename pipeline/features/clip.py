"""CLIP's two towers through open_clip: image vectors and patches, and caption vectors in the same space."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pipeline.errors import UserError, summarise_error
from pipeline.features.extractor import GridNetwork, NetworkSettings
from pipeline.features.network_weights import HUB, check_fit, fetch_hub_file, load_local
from pipeline.runtime.hub_loading import locate_repository
from pipeline.runtime.options import check_options, explain_build_error
from pipeline.runtime.torchvision_cpu import declare_operators

OPEN_CLIP = "open_clip/"
BUILD_ERRORS = (  # open_clip's errors for unknown options, and for a text tower that it cannot fetch
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError),
    *(OSError, RuntimeError, TypeError, ValueError),
)


def fetches_text(network: str) -> bool:
    """Return whether open_clip builds the network's text tower from a config that it fetches from a hub."""
    declare_operators()
    import open_clip

    config = open_clip.get_model_config(network.removeprefix(OPEN_CLIP).partition(".")[0]) or {}
    return "hf_model_name" in config.get("text_cfg", {})


def open_tokenizer(architecture: str, context_length: int) -> Any:
    """Open the tokenizer of a network of open_clip; some networks, such as SigLIP, have it in a repository of its own.

    Raises UserError where the tokenizer needs a missing package, or is neither on this machine nor can be fetched.
    """
    declare_operators()
    import open_clip

    text_config = (open_clip.get_model_config(architecture) or {}).get("text_cfg", {})
    if (repository := text_config.get("hf_tokenizer_name")) is None:
        return open_clip.get_tokenizer(architecture, context_length=context_length)
    try:
        commit, cached = locate_repository(repository)
        options = {"revision": commit, "local_files_only": cached, "trust_remote_code": False}
        return open_clip.get_tokenizer(architecture, context_length=context_length, **options)
    except ImportError as error:
        raise UserError(
            f"the tokenizer of {architecture} needs a package ({summarise_error(error)}); install it"
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"the tokenizer of {architecture}, {repository}, cannot be read from the hub's cache or fetched "
            f"({summarise_error(error)}); run hf download {repository} on a machine with internet access, and copy "
            "the hub's cache here"
        ) from None


class ClipNetwork(GridNetwork):
    """CLIP as an `Extractor`: the vector is the image embedding, and the regions are the patch tokens.

    The embedding lies in the space shared with captions and is not normalised. Tokens come from the last block, after
    the final norm and before the projection, without the class token. A ResNet's regions are the cells of its last
    feature map. Images are resized and cropped as in open_clip; options {force_preprocess_cfg: {resize_mode: squash}}
    avoid cropping.
    """

    memory_format = torch.preserve_format

    def __init__(self, settings: NetworkSettings, device: torch.device | str = "cpu"):
        """Build a network from open_clip's names of network and weights, such as open_clip/ViT-B-32.laion2b_s34b_b79k.

        `settings.weights` is `hub`, which needs the second name, or a safetensors file. Raises UserError as TimmNetwork
        does.
        """
        declare_operators()
        import open_clip
        from open_clip.transform import PreprocessCfg, image_transform_v2

        name, weights = settings.network, settings.weights
        options = check_options("open_clip", name, settings.options)
        architecture, _, tag = name.removeprefix(OPEN_CLIP).partition(".")
        if architecture not in open_clip.list_models():
            raise UserError(
                f"features.network: open_clip has no network {architecture!r}; name one of its list_models()"
            )
        tags = open_clip.list_pretrained_tags_by_model(architecture)
        if (tag or weights == HUB) and tag not in tags:
            remedy = f"it has none: name {OPEN_CLIP}{architecture}, and give a safetensors file as features.weights"
            if tags:
                remedy = f"name them as in {OPEN_CLIP}{architecture}.{tags[0]}; it has {', '.join(tags)}"
            raise UserError(f"features.network: {architecture} has no weights {tag!r}; {remedy}")
        entry = open_clip.get_pretrained_cfg(architecture, tag) if tag else {}
        arguments = {**options, "force_image_size": settings.image_size}
        if entry.get("quick_gelu"):
            arguments.setdefault("force_quick_gelu", True)
        arguments["force_preprocess_cfg"] = {
            **entry,
            **settings.normalisation,
            **(options.get("force_preprocess_cfg") or {}),
        }
        logging.disable(logging.WARNING)  # open_clip warns of weights that are not loaded yet
        try:
            check_fit(
                lambda: open_clip.create_model(architecture, device="meta", pretrained_text=False, **arguments),
                weights,
                name,
            )
            model: Any = open_clip.create_model(architecture, pretrained_text=False, **arguments)
            image_config = model.visual.preprocess_cfg
            transform = image_transform_v2(PreprocessCfg(**image_config), is_train=False)
            transform(Image.new("RGB", (16, 8)))
        except (UserError, torch.OutOfMemoryError):
            raise
        except BUILD_ERRORS as error:
            raise explain_build_error(name, options, error) from None
        finally:
            logging.disable(logging.NOTSET)
        if weights == HUB:
            repository, _, file = entry.get("hf_hub", "").rpartition("/")
            if not repository:
                raise UserError(
                    f"features.weights: hub has no safetensors file of {name}; give a safetensors file instead"
                )
            path, source = fetch_hub_file(repository, file or "open_clip_model.safetensors", name)
            try:
                open_clip.load_checkpoint(model, str(path))
            except RuntimeError as error:  # its message lists the tensors from the second line on
                problem = RuntimeError(" ".join(str(error).split()))
                raise explain_build_error(name, options, problem) from None
        else:
            source = load_local(model, weights, name)
        preprocessing = {key: image_config[key] for key in ("size", "interpolation", "resize_mode", "mean", "std")}
        try:
            super().__init__(model, transform, settings, settings.describe(source, preprocessing), device)
        except torch.OutOfMemoryError:
            raise  # a RuntimeError that does not mean an invalid size
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"features.image_size: {name} does not take {settings.image_size} pixels ({summarise_error(error)}); "
                "choose another size"
            ) from None
        self.architecture = architecture
        self.options = {key: value for key, value in arguments.items() if key != "force_preprocess_cfg"}

    @cached_property
    def tokenizer(self) -> Any:
        """Return the tokenizer of captions, which some networks must fetch; images need no tokenizer."""
        return open_tokenizer(self.architecture, self.model.context_length)

    def _extract(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.model.forward_intermediates(
            image=pixels, image_indices=1, normalize=False, normalize_intermediates=True
        )
        return outputs["image_features"], outputs["image_intermediates"][-1]

    @torch.inference_mode()
    def encode_text(self, captions: Sequence[str]) -> Tensor:
        """Return embeddings (N, P) of N captions, not normalised; the tokenizer truncates long captions."""
        return self.model.encode_text(self.tokenizer(list(captions)).to(self.device))

    def tokenise(self, captions: Sequence[str], length: int) -> Tensor:
        """Return tokens (N, length) of N captions, also for a `length` above the model's context length."""
        return self.tokenizer(list(captions), context_length=length)
