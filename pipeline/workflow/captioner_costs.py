"""Memory and time of a training step of a pretrained captioner on a GPU, calculated from its config."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pipeline.config.load import MethodSettings, resolve_method_settings
from pipeline.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from pipeline.config.schema import Params

FLOAT = 4  # bytes
# config keys of the text side, in order of precedence, since an encoder may have other numbers
LAYER_COUNTS = ("decoder_layers", "num_decoder_layers", "num_hidden_layers")
HEAD_COUNTS = ("decoder_attention_heads", "num_decoder_attention_heads", "num_attention_heads")
OVERHEAD = 0.6  # gigabytes that a process takes on a GPU for CUDA's context and its libraries
# methods that differentiate a human or a searched caption per image, and no samples
WITHOUT_SAMPLES = ("guidance", "mle", "rl", "rl_unidirectional", "scst_discriminator", "scst_grammar", "wtf")
# methods that differentiate sampled captions alone
SAMPLED_ALONE = ("discritune", "luo", "pg_spider", "reinforce", "rl_sampled", "sll", "sll_me", "sll_sle")


@dataclass(frozen=True)
class CaptionerSize:
    """Sizes of a captioner's text side that determine the cost of a step."""

    weights: int
    trained: int  # number of trained weights: the adapters, or all
    matmul_weights: int  # weights that each token is multiplied with
    saved_activations: int  # numbers per token that a backward pass needs, without the numbers of attention
    layers: int
    heads: int
    hidden: int
    keys: int  # numbers in the keys of one token in one layer; its values have as many
    vocabulary: int
    regions: int
    words: int

    @property
    def region_cache(self) -> int:
        """Return how many numbers the keys and values of one image's regions have; each caption has a copy of them."""
        return 2 * self.layers * self.regions * self.keys


@dataclass(frozen=True)
class StepCost:
    """Cost of one training step: gigabytes of memory by part, and seconds of computing and of reading memory."""

    gigabytes: Mapping[str, float]
    compute_seconds: float
    read_seconds: float

    @property
    def memory(self) -> float:
        """Return the memory of a step, in GB."""
        return sum(self.gigabytes.values())

    @property
    def seconds(self) -> float:
        """Return the larger of both times: a lower bound, without launches of kernels, validation and data."""
        return max(self.compute_seconds, self.read_seconds)


def read_size(model: str, max_words: int, lora: dict[str, Any] | None) -> CaptionerSize:
    """Return the sizes of the captioner `model`, from its config and its prompt.

    `lora` are the settings of the adapters; None: all weights are trained. Raises UserError where the config cannot be
    read, or lacks the numbers of regions, heads or layers.
    """
    import torch
    from torch import nn

    from pipeline.models.hub_captioner import HubDecoder, serialise_config
    from pipeline.runtime.hub_loading import load_pretrained

    hub_config = load_pretrained("AutoConfig", model)
    config = serialise_config(SimpleNamespace(config=hub_config))
    regions = _count_regions(model, hub_config, config)
    with torch.device("meta"):
        text_config = config.get("text_config") or config.get("decoder") or config
        speaker = HubDecoder(text_config["vocab_size"] - 2, config, max_words, 0.0, lora)
    speaker.requires_grad_(True)
    decoder_config = speaker.text.config.get_text_config()
    # a module and its wrapper with adapters share a weight, which counts once
    weight_by_id = {id(m.weight): m.weight for m in speaker.text.modules() if _is_matmul(m, nn.Embedding)}
    matrices = list(weight_by_id.values())
    counts = [(weight.numel(), weight.requires_grad) for weight in speaker.parameters()]
    heads = _get_first_set(decoder_config, HEAD_COUNTS)
    head_size = getattr(decoder_config, "head_dim", None) or decoder_config.hidden_size // heads
    return CaptionerSize(
        weights=sum(count for count, _ in counts),
        trained=sum(count for count, trained in counts if trained),
        matmul_weights=sum(weight.numel() for weight in matrices) + speaker.logit.weight.numel(),
        saved_activations=sum(sum(weight.shape) for weight in matrices),
        layers=_get_first_set(decoder_config, LAYER_COUNTS),
        heads=heads,
        hidden=decoder_config.hidden_size,
        keys=(getattr(decoder_config, "num_key_value_heads", None) or heads) * head_size,
        vocabulary=speaker.vocabulary + 1,
        regions=regions,
        words=max_words,
    )


def _count_regions(model: str, hub_config: Any, config: dict[str, Any]) -> int:
    """Return the number of regions of an image: tokens of the vision tower, or of the prompt with its image.

    The tower of a vision-encoder-decoder runs on an image without values, since some towers merge their patches.
    """
    import torch

    from pipeline.models.hub_captioner import has_prefix
    from pipeline.runtime.hub_loading import explain_load_errors, import_transformers
    from pipeline.runtime.hub_prompts import PROMPTED, PromptedProcessor

    if hub_config.model_type in PROMPTED:
        return len(PromptedProcessor(model, hub_config).tokens) - has_prefix(config)
    tower = config["encoder"] if "encoder" in config else config["vision_config"]
    side, patch = tower.get("image_size"), tower.get("patch_size")
    runs_tower = "encoder" in config
    if not isinstance(side, int) or not (runs_tower or isinstance(patch, int)):
        keys, found = ("image_size", f"{side}") if runs_tower else ("image_size and patch_size", f"{side} and {patch}")
        raise UserError(
            f"{model}: expected whole numbers {keys} in its config, to count regions, got {found}; give another "
            "captioner"
        )
    if not runs_tower:
        return (side // patch) ** 2 + 1
    with explain_load_errors(f"{model}: its vision tower takes no image of {side} pixels"), torch.device("meta"):
        network = import_transformers().AutoModel.from_config(hub_config.encoder, trust_remote_code=False).eval()
        return int(network(torch.zeros(1, tower.get("num_channels") or 3, side, side)).last_hidden_state.shape[1])


def estimate_step_cost(
    size: CaptionerSize, images: int, captions: int, kl_penalty: bool, teraflops: float, bandwidth: float
) -> StepCost:
    """Return the cost of a step on `images` images with `captions` captions in float32.

    `kl_penalty`: whether the loss has a KL penalty. `teraflops` and `bandwidth` (GB/s) are the GPU's real speeds.

    Keys and values of the regions are counted twice, for their gradient. Logits are counted twice, or four times with
    the logits of the KL penalty's reference. Each time step reads all weights of matrix products once, and the regions'
    keys and values of all captions. These reads count once for the forward pass and twice for the backward pass. The
    backward pass computes as much as the forward pass, and as much again where all weights are trained. A KL penalty
    adds one forward pass.
    """
    tokens, giga = captions * size.words, FLOAT / 1e9
    attention = 2 * size.layers * size.heads * (size.regions + size.words)
    gigabytes = {
        "weights": size.weights * giga,
        "gradients and Adam": size.trained * 3 * giga,
        "keys and values of regions": 2 * captions * size.region_cache * giga,
        "kept for the backward pass": tokens * (size.saved_activations + attention) * giga,
        "logits": tokens * size.vocabulary * (4 if kl_penalty else 2) * giga,
        "CUDA": OVERHEAD,
    }
    passes = (2 if size.trained < size.weights else 3) + kl_penalty
    per_token = 2 * size.matmul_weights + 4 * size.layers * size.regions * size.hidden
    projections = 2 * images * size.region_cache * size.hidden
    compute_seconds = passes * (tokens * per_token + projections) / (teraflops * 1e12)
    gigabytes_read = size.words * (size.matmul_weights + captions * size.region_cache) * 3 * giga
    return StepCost(gigabytes, compute_seconds, gigabytes_read / bandwidth)


def count_captions_per_image(settings: MethodSettings) -> int:
    """Estimate the number of captions per image that a step differentiates.

    A method of WITHOUT_SAMPLES has one caption, to which a KL penalty of the method `mle` adds samples. Each other
    method that is not in SAMPLED_ALONE adds one human, relaxed or searched caption to its samples. A method's own
    `samples` replace the objective's. The human caption that `cross_entropy_weight` adds is not counted.
    """
    name, objective = settings.composition.__name__, settings.objective
    samples: int = settings.arguments.get("samples", objective.samples)
    if name in WITHOUT_SAMPLES:
        return 1 + (samples if name == "mle" and objective.kl_weight else 0)
    return samples + (name not in SAMPLED_ALONE)


def describe_costs(params: Params, memory: float, teraflops: float, bandwidth: float) -> list[str]:
    """Return a heading and a line for each method that trains a captioner of the hub; [] without such a method.

    `memory` (GB) is the GPU's memory; `teraflops` and `bandwidth` are as in `estimate_step_cost`. Raises UserError
    unless all three are finite and above 0, and as `read_size` does.
    """
    for option, value in (("--gpu-memory", memory), ("--teraflops", teraflops), ("--bandwidth", bandwidth)):
        if not 0 < value < math.inf:
            raise UserError(f"{option} {value:g}: a finite number above 0 is expected")
    lines = []
    for name, block in params.methods.items():
        speaker: Any = params.pretrain[block["speaker"]]
        if not getattr(speaker, "model", None):
            continue
        lora = None if speaker.lora is None else speaker.lora.model_dump()
        size = read_size(speaker.model, params.prepare.max_words, lora)
        settings = resolve_method_settings(params, name)
        batch = settings.optimisation.batch
        captions = batch * count_captions_per_image(settings)
        cost = estimate_step_cost(size, batch, captions, bool(settings.objective.kl_weight), teraflops, bandwidth)
        fits = "fits" if cost.memory <= memory else "does not fit"
        largest = sorted(cost.gigabytes.items(), key=lambda part: -part[1])[:3]
        parts = ", ".join(f"{part} {gigabytes:.1f}" for part, gigabytes in largest)
        lines.append(
            f"{name}: {captions} captions a step; {cost.memory:.1f} GB ({parts}), which {fits} in {memory:g} GB; "
            f"at least {cost.seconds:.2f} s a step, at most {3600 / cost.seconds:,.0f} steps an hour"
        )
    if lines:
        heading = f"calculated, not measured, in float32 for {teraflops:g} TFLOP/s and {bandwidth:g} GB/s:"
        lines.insert(0, heading)
    return lines


def _get_first_set(config: Any, names: Sequence[str]) -> int:
    """Return the value of the first of `names` that `config` sets to another value than 0.

    Raises UserError if `config` sets none of them.
    """
    value = next(filter(None, (getattr(config, name, None) for name in names)), None)
    if value is None:
        raise UserError(
            f"config.json of {config.model_type}: expected one of {', '.join(names)}, found none; add one, or give "
            "another captioner"
        )
    return int(value)


def _is_matmul(module: nn.Module, embedding: type) -> bool:
    """Return whether a module multiplies its input with a matrix."""
    weight = getattr(module, "weight", None)
    return weight is not None and weight.dim() == 2 and not isinstance(module, embedding)
