"""Profiles lie over each other with their comments, and params.yaml is written without losing anybody's work."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML
from whole_profiles import FOLDER, NAMES, profile, profile_text

from pipeline.config import overlays
from pipeline.config.overlays import main
from pipeline.errors import UserError

BASE = """\
# The base.
seed: 1

draw:
  scenes: {images: 5}

# how it learns
train: # jointly
  epochs: 5 # of the training images
  rate: 0.1
  # two lines that say
  # what decay is
  decay: null
  recover: {patience: 5, steps: 10}

methods:
  # the control
  mle: {from: likelihood}
  luo:
    from: luo # Luo et al.
    lambda: 0.5

sweep:
  seeds: [1]
  grid: # by method
    luo:
      - {lambda: [0.1]}
      - {lambda: [0.2], seed: [1, 2]}

report: {images: 12}
"""
LARGE = """\
# The large one,
# for a GPU.

draw: {}

note: >-
  what is new
  here
train:
  epochs: 1.5e+2 # [P] says so
  rate: 5e-4
  recover: {patience: "7 # seven"}
  clip: 0.1 # new

methods:
  luo: {from: luo} # alone
  # and its anchored form
  anchored:
    from: luo

sweep:
  grid:
    luo: {}
"""
LARGER = """\
# Larger.
extends: large
train:
    # four blanks
    decay: 0.8 # [P]
    rate: 1e-4
"""
LARGER_WHOLE = """\
# Larger.
seed: 1

draw: {}

# how it learns
train: # jointly
  epochs: 1.5e+2 # [P] says so
  rate: 1e-4
  # four blanks
  decay: 0.8 # [P]
  recover: {patience: "7 # seven"}
  clip: 0.1 # new

methods:
  luo: {from: luo} # alone
  # and its anchored form
  anchored:
    from: luo

sweep:
  seeds: [1]
  grid: # by method
    luo: {}

report: {images: 12}

note: >-
  what is new
  here
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder of profiles in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles").mkdir()
    for name, text in {"base": BASE, "large": LARGE, "larger": LARGER, "plain": "# Plain.\n"}.items():
        (tmp_path / f"profiles/{name}.yaml").write_text(text)
    return tmp_path / "profiles"


def test_a_profile_says_what_differs_and_comments_stay_with_the_values_they_are_about(folder):
    assert overlays.profile_text("larger", folder) == LARGER_WHOLE


def test_a_profile_of_a_comment_alone_is_the_base_with_that_comment(folder):
    assert overlays.profile_text("plain", folder) == BASE.replace("# The base.", "# Plain.")


def laid(below: dict, above: dict, place: str = "") -> dict:
    """The rule of profiles/README.md for plain mappings."""
    merged = dict(below)
    for key, value in above.items():
        whole = f"{place}{key}" in ("draw", "methods", "sweep.grid")
        one = not isinstance(value, dict) or not value or value.fa.flow_style() or whole
        under = below.get(key)
        merged[key] = value if one else laid(under if isinstance(under, dict) else {}, value, f"{place}{key}.")
    return merged


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_profile_says_what_its_mappings_say(name):
    def read(name: str) -> dict:
        own = YAML().load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")) or {}
        if name == "base":
            return own
        instead, below = own.pop("replace", []), read(own.pop("extends", "base"))
        return laid({key: {} if key in instead else value for key, value in below.items()}, own)

    assert profile(name) == read(name)


@pytest.mark.parametrize("name", NAMES)
def test_no_comment_of_a_profile_is_lost(name):
    own = [line.partition("#")[2] for line in (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()]
    written = profile_text(name)
    assert [comment for comment in own if comment not in written] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: lage\n", "extends: lage is no other profile; did you mean large?"),
        ("extends: new\n", "extends: new is no other profile"),
        ("extends: circle\n", "circle.yaml: extends: new is no other profile"),
        ("extends: environment\n", "extends: environment is no other profile"),
        ("train: {epochs: 3}\n", "new.yaml: train is a section: write its keys one per line"),
        ("train:\n", "new.yaml: train is a section: write its keys one per line"),
        ("train:\n  rate: 1\n  rate: 2\n", "new.yaml, line 3, column 3: the key rate is given twice"),
        ("{seed: 2}\n", "new.yaml: must be a mapping of sections, a key a line"),
        ("- seed\n", "new.yaml: must be a mapping of sections, a key a line"),
        ("train: [1\n", "new.yaml, line 2, column 1: "),
        ("replace: [trian]\n", "new.yaml: replace: trian is no section of base; did you mean train?"),
    ],
)
def test_a_mistake_in_a_profile_is_one_line(folder, text, said):
    (folder / "circle.yaml").write_text("extends: new\n")
    (folder / "environment.yaml").write_text("channels: []\n")
    (folder / "new.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        overlays.profile_text("new", folder)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_params_are_written_and_what_was_changed_by_hand_is_kept(folder, capsys):
    params = folder.parent / "params.yaml"
    assert main(["large"]) == 0
    assert params.read_text() == overlays.profile_text("large", folder)
    assert main(["large"]) == 0
    assert capsys.readouterr().out == "params.yaml is now the profile large\n"
    assert main(["plain"]) == 0
    assert params.read_text() == overlays.profile_text("plain", folder)
    assert sorted(folder.parent.iterdir()) == [params, folder]
    for kept in ("params.yaml.bak", "params.yaml.bak2", "params.yaml.bak3"):
        params.write_text(f"seed: 2 # {kept}\n")
        assert main(["plain"]) == 0
        assert (folder.parent / kept).read_text() == f"seed: 2 # {kept}\n"
        assert f"it is kept as {kept}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"), [(["lagre"], "did you mean large?"), ([], "usage"), (["a", "b"], "usage")]
)
def test_a_profile_that_there_is_not_leaves_params_as_they_are(folder, capsys, arguments, said):
    params = folder.parent / "params.yaml"
    params.write_text("seed: 2\n")
    assert main(arguments) == 2
    line = capsys.readouterr().err
    assert said in line
    assert line.count("\n") == 1
    assert params.read_text() == "seed: 2\n"
