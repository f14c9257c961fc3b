"""Options of networks that a parameter file or a file of weights may set.

The libraries that build networks also take paths and switches that load pickles. So only options of a network's layers,
its image preprocessing and its detections are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as shorten
from typing import Any

from pipeline.errors import UserError, summarise_error

SIZES = frozenset(
    ("context_length", "head_width", "heads", "image_size", "layers", "patch_size", "vocab_size", "width")
)
MAPPINGS = {  # options that are mappings, and their keys
    "force_preprocess_cfg": frozenset(("mean", "std", "interpolation", "resize_mode", "fill_color")),
    "text_cfg": SIZES,
    "vision_cfg": SIZES,
}
MAX_LENGTH = 100  # entries of a list, characters of a text
# the largest number for options whose names contain this part; the first part that a name contains counts
MAX_VALUES = {
    "layers": 128,
    "heads": 1024,
    "patch": 256,
    "vocab_size": 2**22,
    "size": 4096,
    "rpn_": 2**16,
    "detections": 2**16,
}
MAX_DEPTH = 2  # levels of lists in lists
MAX_OTHERS = 2**20  # the largest number for other options
ALLOWED = {
    "open_clip": frozenset(
        (*MAPPINGS, "embed_dim", "force_context_length", "force_image_size", "force_patch_dropout", "force_quick_gelu")
    ),
    "timm": frozenset(
        ("dynamic_img_pad", "dynamic_img_size", "global_pool", "img_size", "num_classes", "output_stride", "pad_type")
    ),
    "torchvision": frozenset(
        (
            *("image_mean", "image_std", "max_size", "min_size", "num_classes"),
            *("box_detections_per_img", "box_nms_thresh", "box_score_thresh"),
            *("rpn_nms_thresh", "rpn_post_nms_top_n_test", "rpn_pre_nms_top_n_test", "rpn_score_thresh"),
        )
    ),
}


def check_options(library: str, network: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check `options` for `network` of `library`, and return them as a dict.

    Raises UserError for an unknown option, a number beyond ± its limit, and a value that is no null, bool, number, text
    or list. Options of MAPPINGS are mappings to such values, or null. Texts have at most MAX_LENGTH characters, and
    lists have at most MAX_LENGTH entries and MAX_DEPTH levels.
    """
    for name, value in options.items():
        problem = f"features.options: the network {network} does not accept {name}: {shorten(value)}"
        if name not in ALLOWED[library]:
            raise UserError(f"{problem} (allowed are {', '.join(sorted(ALLOWED[library]))}); remove it")
        inner: Mapping[Any, Any] = {name: value}
        if name in MAPPINGS and value is not None:
            if not isinstance(value, Mapping):
                raise UserError(f"{problem} (a mapping of {', '.join(sorted(MAPPINGS[name]))} is allowed); change it")
            if unknown := sorted(map(str, value.keys() - MAPPINGS[name])):
                keys = ", ".join(sorted(MAPPINGS[name]))
                raise UserError(f"{problem} ({name}.{unknown[0]}; allowed are {keys}); remove this key")
            inner = value
        for key, entry in inner.items():
            if not _is_plain(entry):
                allowed = f"null, true, false, numbers, texts of up to {MAX_LENGTH} characters"
                lists = f"lists of up to {MAX_LENGTH} of them, in up to {MAX_DEPTH} levels"
                raise UserError(f"{problem} (allowed are {allowed}, and {lists}); change it")
            limit = next((limit for part, limit in MAX_VALUES.items() if part in key), MAX_OTHERS)
            if any(not abs(number) <= limit for number in _list_numbers(entry)):
                raise UserError(f"{problem} ({key}: allowed are numbers from −{limit:,} to {limit:,}); change it")
    return dict(options)


def explain_build_error(network: str, options: Mapping[str, Any], error: Exception) -> UserError:
    """Return the error for a network that cannot be built with its options."""
    summary = summarise_error(error)
    if options:
        return UserError(
            f"features.options: the network {network} does not accept {shorten(dict(options))} ({summary}); remove or "
            "change an option"
        )
    return UserError(f"features.network: {network} cannot be built ({summary}); name another network")


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether a value is null, a number, a short text, or a short list of them or of such lists."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return depth < MAX_DEPTH and len(value) <= MAX_LENGTH and all(_is_plain(item, depth + 1) for item in value)
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= MAX_LENGTH)


def _list_numbers(value: Any) -> list[float]:
    """Return the numbers in a value, which may be a list of lists."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [number for item in value for number in _list_numbers(item)]
    return [value] if isinstance(value, int | float) else []
