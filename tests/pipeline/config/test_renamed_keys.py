"""A former key of params.yaml or of a profile is reported in one line with its present name."""

import json
import re
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.config.load import load
from pipeline.config.overlays import compose_profile_text
from pipeline.config.renamed_keys import RENAMED
from pipeline.errors import UserError

ROOT = Path(__file__).parents[3]
PROFILE_KEYS = ("over", "instead")
# Blocks by pattern, with the former names of their options. Other options are those of a block `listener`.
BLOCKS = {
    "pretrain.*": {
        "speaker": ("attention", "scheduled_sampling.by", "scheduled_sampling.most"),
        "d_np": ("places", "order", "hears_end", "options", "others", "norms"),
    },
    "methods.*": {"mixer": ("by", "forced"), "pg_spider": ("continuations",), "g_dis": ("norms",)},
    "sweep.grid.*": {"mixer": ("by", "forced"), "pg_spider": ("continuations",)},
}
DIALOG = {"places", "order", "hears_end", "options", "others", "norms"}


def expand_pattern(former: str) -> str:
    """Return a path of params.yaml that the pattern `former` matches."""
    for pattern, blocks in BLOCKS.items():
        rest = former.removeprefix(f"{pattern}.")
        if rest != former:
            name = next((name for name, keys in blocks.items() if rest in keys), "listener")
            return f"{pattern.replace('*', name)}.{rest}"
    return former.replace("features.*", "features.main").replace("*", "train")


@cache
def load_profile_values(profile: str) -> dict[str, Any]:
    return YAML(typ="safe").load(compose_profile_text(profile, ROOT / "profiles"))


def write_params(former: str, folder: Path) -> Path:
    path = expand_pattern(former)
    tree = deepcopy(load_profile_values("dialog" if path.rpartition(".")[2] in DIALOG else "scenes"))
    tree["methods"]["mixer"] = {"from": "mixer", "speaker": "speaker"}
    tree["methods"]["pg_spider"] = {"from": "spider", "speaker": "speaker"}
    section = tree
    *sections, key = path.split(".")
    for part in sections:
        section[part] = section.get(part) or {}
        section = section[part]
    section[key] = 3
    if "imported" in sections:
        tree["features"]["main"] = {"network": "imported", "imported": section}
    (folder / "params.yaml").write_text(json.dumps(tree))  # JSON is YAML, and faster to write
    return folder / "params.yaml"


@pytest.mark.parametrize("former", [key for key in RENAMED if key not in PROFILE_KEYS])
def test_a_former_key_is_reported_in_one_line_with_the_present_one(former, tmp_path):
    params, path = write_params(former, tmp_path), expand_pattern(former)
    with pytest.raises(UserError) as error:
        load(params)
    assert str(error.value) == f"{params}: {path} = 3: this key is now {RENAMED[former]}; rename it"


@pytest.mark.parametrize("former", PROFILE_KEYS)
def test_a_former_key_of_a_profile_is_reported_in_one_line_with_the_present_one(former, tmp_path):
    (tmp_path / "base.yaml").write_text("seed: 1\n")
    (tmp_path / "new.yaml").write_text(f"{former}: base\nseed: 2\n")
    with pytest.raises(UserError, match=f"new.yaml: {former}: this key is now {RENAMED[former]}; rename it$"):
        compose_profile_text("new", tmp_path)


def test_no_present_key_is_a_former_key():
    present = {former: f"{former.rpartition('.')[0]}.{new}" for former, new in RENAMED.items()}
    assert not set(present.values()) & set(RENAMED)
    assert all(re.fullmatch("[a-z_]+", new) for new in RENAMED.values())


def test_a_former_key_of_another_method_is_reported_with_the_allowed_keys(tmp_path):
    tree = YAML(typ="safe").load(compose_profile_text("scenes", ROOT / "profiles"))
    tree["methods"]["mle"]["by"] = 3  # a former key of another method
    with (tmp_path / "params.yaml").open("w") as file:
        YAML().dump(tree, file)
    with pytest.raises(UserError, match=r"unknown key methods.mle.by = 3; allowed: "):
        load(tmp_path / "params.yaml")
