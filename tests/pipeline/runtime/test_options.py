"""Names, types and numbers that are allowed in options of networks."""

import re

import pytest

from pipeline.errors import UserError
from pipeline.runtime.options import MAX_LENGTH, check_options

ALLOWED_VALUES = (
    "(allowed are null, true, false, numbers, texts of up to 100 characters, "
    "and lists of up to 100 of them, in up to 2 levels)"
)


def nest_lists(depth):
    value = 1
    for _ in range(depth):
        value = [value, value]  # the same list twice, like an alias in YAML
    return value


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("open_clip", {"embed_dim": 512, "force_quick_gelu": True, "vision_cfg": None, "force_preprocess_cfg": {}}),
        ("open_clip", {"vision_cfg": {"layers": [3, 4, 6, 3], "width": 64}, "force_preprocess_cfg": {"mean": [0.5]}}),
        ("timm", {"img_size": [32, 64], "global_pool": "avg", "num_classes": nest_lists(2)}),
        ("open_clip", {"embed_dim": [-(2**20)] * MAX_LENGTH, "vision_cfg": {"layers": 128, "width": "a" * MAX_LENGTH}}),
    ],
)
def test_allowed_options_are_returned(library, options):
    assert check_options(library, "net", options) == options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pretrained": "x.pt"}, "pretrained: 'x.pt' (allowed are embed_dim, "),
        ({"vision_cfg": {"timm_model_name": "x"}}, "(vision_cfg.timm_model_name; allowed are context_length, "),
        ({"vision_cfg": {1: 2, "z": 3}}, "(vision_cfg.1; allowed are context_length, "),
        ({"vision_cfg": 5}, "(a mapping of context_length, "),
        ({"force_preprocess_cfg": [1]}, "(a mapping of fill_color, "),
        (
            {"embed_dim": {"a": 1}},
            ALLOWED_VALUES,
        ),
        ({"embed_dim": "a" * (MAX_LENGTH + 1)}, "(allowed are null, true, false, "),
        ({"embed_dim": [1] * (MAX_LENGTH + 1)}, "(allowed are null, true, false, "),
        ({"embed_dim": nest_lists(3)}, "(allowed are null, true, false, "),
        ({"embed_dim": nest_lists(1500)}, "(allowed are null, true, false, "),
        ({"vision_cfg": {"layers": [1, 129]}}, "(layers: allowed are numbers from −128 to 128)"),
        ({"embed_dim": -(2**20) - 1}, "(embed_dim: allowed are numbers from −1,048,576 to 1,048,576)"),
        ({"embed_dim": float("nan")}, "(embed_dim: allowed are numbers from −1,048,576 to 1,048,576)"),
    ],
)
def test_other_options_are_refused(options, message):
    with pytest.raises(UserError, match="the network net does not accept " + ".*" + re.escape(message)):
        check_options("open_clip", "net", options)
