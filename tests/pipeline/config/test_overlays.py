"""Profiles are composed with their comments, and writing params.yaml keeps a copy of edits by hand."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from dvc.utils.serialize import modify_yaml
from whole_profiles import FOLDER, NAMES, PROFILES, read_profile_text

from pipeline.config import overlays
from pipeline.config.overlays import Composition, Profiles, main
from pipeline.errors import UserError

BASE = """\
# The base.
seed: 1

draw:
  scenes: {images: 5}

# the optimisation
train: # jointly
  epochs: 5 # of the training images
  rate: 0.1
  # two lines about
  # the decay
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

method_sets:
  both: # for any data
    methods: # in the order of the table
      mle: {from: likelihood, train: &short {epochs: 1, more: [1, {a: 2}]}}
      luo: {from: luo, train: *short}
      psst: {from: psst, train: {<<: *short, epochs: 2, seed: 3}}
    train:
      epochs: 7
  psst: {}

grids:
  both:
    sweep:
      grid:
        mle: {}
  none:
    sweep:
      grid: {}
"""
LARGE = """\
# The large one,
# for a GPU.

draw: {}

note: >-
  changes of
  this profile
train:
  epochs: 1.5e+2 # [P]
  rate: 5e-4
  recover: {patience: "7 # seven"}
  clip: 0.1 # new

methods:
  luo: {from: luo} # alone
  # and its regularised form
  regularised:
    from: luo

sweep:
  grid:
    luo: {}

variants:
  # With a shorter training.
  large_short:
    train:
      epochs: 2 # enough
  # Shorter still, from another seed.
  large_other:
    extends: large_short
    seed: 2 # another

method_sets:
  both:
    train:
      rate: 0.5 # on large data

profiles:
  # Both methods.
  #
  # A second paragraph.
  large_both: {methods: both}
  large_other: {data: large_other, grid: none}
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

# the optimisation
train: # jointly
  epochs: 1.5e+2 # [P]
  rate: 1e-4
  # four blanks
  decay: 0.8 # [P]
  recover: {patience: "7 # seven"}
  clip: 0.1 # new

methods:
  luo: {from: luo} # alone
  # and its regularised form
  regularised:
    from: luo

sweep:
  seeds: [1]
  grid: # by method
    luo: {}

report: {images: 12}

note: >-
  changes of
  this profile
"""
BOTH = """\
methods: # in the order of the table
  mle: {from: likelihood, train: {epochs: 1, more: [1, {a: 2}]}}
  luo: {from: luo, train: {epochs: 1, more: [1, {a: 2}]}}
  psst: {from: psst, train: {epochs: 2, more: [1, {a: 2}], seed: 3}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Write the folder `profiles` into the working folder, and return the path of `profiles`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles").mkdir()
    for name, text in {"base": BASE, "large": LARGE, "larger": LARGER, "plain": "# Plain.\n"}.items():
        (tmp_path / f"profiles/{name}.yaml").write_text(text)
    return tmp_path / "profiles"


def compose_parameters(*names: str) -> dict:
    """Return the parameters that are composed of data, methods and grid."""
    return yaml.safe_load(Profiles().compose(Composition(*names)))


def test_a_profile_holds_differences_and_comments_stay_with_their_values(folder):
    assert overlays.compose_profile_text("larger", folder) == LARGER_WHOLE


def test_a_profile_of_a_comment_alone_is_the_base_with_that_comment(folder):
    sections = BASE.partition("\nmethod_sets:")[0]
    assert overlays.compose_profile_text("plain", folder) == sections.replace("# The base.", "# Plain.")


def test_files_variants_and_named_compositions_are_profiles(folder):
    assert overlays.Profiles(folder).list_names() == [
        "large",
        "large_both",
        "large_other",
        "large_short",
        "larger",
        "plain",
    ]


def test_the_method_set_of_a_data_file_overrides_the_method_set_of_all_data(folder):
    text = overlays.compose_profile_text("large_both", folder)
    assert text.startswith("# Both methods.\n#\n# A second paragraph.\nseed: 1\n")
    assert BOTH in text, "repeated values are written out"
    assert yaml.safe_load(text)["train"]["epochs"] == 7
    assert "  rate: 0.5 # on large data\n" in text
    assert yaml.safe_load(text)["sweep"]["grid"] == {"mle": {}}, "the grid has the name of the method set"
    assert compose_parameters("larger", "both")["train"]["rate"] == 0.5, (
        "a file that extends large has the method set of large"
    )
    assert compose_parameters("plain", "both")["train"]["rate"] == 0.1


def test_data_methods_and_grid_are_selected_separately(folder):
    large = compose_parameters("large")
    assert compose_parameters("large", "psst") == large
    assert compose_parameters("large", "psst", "none") == large | {"sweep": {"seeds": [1], "grid": {}}}
    assert compose_parameters("plain", "both", "none")["sweep"]["grid"] == {}


def test_a_variant_overrides_its_file_and_may_extend_another(folder):
    large = yaml.safe_load(overlays.compose_profile_text("large", folder))
    assert compose_parameters("large_short") == large | {"train": large["train"] | {"epochs": 2}}
    assert compose_parameters("large_other") == compose_parameters("large_short") | {"seed": 2}
    assert overlays.compose_profile_text("large_short", folder).startswith("# With a shorter training.\nseed: 1\n")
    text = overlays.compose_profile_text("large_other", folder)
    assert text.startswith("# Shorter still, from another seed.\nseed: 2 # another\n")
    assert yaml.safe_load(text)["sweep"]["grid"] == {}


def test_there_are_at_most_twelve_profile_files_and_none_repeats_a_train_block():
    files = sorted(FOLDER.glob("*.yaml"))
    assert len(files) <= 12
    found = set()
    for path in files:
        blocks = re.findall(r"train: (?:&\w+ )?(\{optimisation: \{[^}]*,[^}]*,[^}]*\}\})", path.read_text("utf-8"))
        assert len(blocks) == len(set(blocks)), path
        found.update(blocks)
    assert found, "some profiles have such blocks"


@pytest.mark.parametrize("path", [file.path for file in PROFILES.files.values()], ids=lambda path: path.stem)
def test_no_comment_of_a_file_is_lost(path):
    sets = sorted(PROFILES.files[path.stem].groups["method_sets"]) if path.stem in PROFILES.data else []
    with_methods = [PROFILES.compose(Composition(path.stem, methods)) for methods in sets]  # each with its own grid
    written = "\n".join([*map(read_profile_text, NAMES), *with_methods])
    sections, *layers = re.split(r"^(?:variants|method_sets|grids|profiles):.*\n", path.read_text("utf-8"), flags=re.M)
    lines = re.sub(r"^(  \w+:).*#.*$", r"\1", "\n".join(layers), flags=re.M).splitlines()  # a layer's own comment
    _, _, rest = sections.partition("\nseed:")
    lines += (rest if path.stem == overlays.BASE else sections).splitlines()
    assert [line for line in lines if (comment := line.partition("#")[2]) and comment not in written] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: lage\n", "extends: lage is no other file; did you mean large?"),
        ("extends: new\n", "extends: new is no other file"),
        ("extends: circle\n", "circle.yaml: extends: new is no other file"),
        ("extends: environment\n", "extends: environment is no other file"),
        ("train: {epochs: 3}\n", "new.yaml: train is a section: write its keys one per line"),
        ("train:\n", "new.yaml: train is a section: write its keys one per line"),
        ("train:\n  rate: 1\n  rate: 2\n", "new.yaml, line 3, column 3: the key rate is given twice"),
        ("{seed: 2}\n", 'new.yaml: expected a mapping of sections, got {"seed": 2}; write one key per line'),
        ("- seed\n", 'new.yaml: expected a mapping of sections, got ["seed"]; write one key per line'),
        ("null\n", "new.yaml: expected a mapping of sections, got null; write one key per line"),
        ("train: [1\n", "new.yaml, line 2, column 1: cannot be read as YAML ("),
        (
            "replace: [trian]\n",
            "new.yaml: replace: trian must be a section of this layer and of an earlier one; did you mean train?",
        ),
        ("over: large\n", "new.yaml: over: this key is now extends; rename it"),
        ("draw: *far\n", "new.yaml: *far: no &far above; allowed: none"),
        ("draw: {<<: *far}\n", "new.yaml: *far: no &far above; allowed: none"),
        ("draw: &far [1]\n", "new.yaml: &far: expected a mapping in braces on one line"),
        ("profiles:\n  new_one: {method: both}\n", "new.yaml: profiles: new_one: expected {data: …, methods: …"),
        ("profiles:\n  new_one: {data: large}\n", "new_one: data: large is neither new nor a variant in this file"),
        ("variants:\n  large_short: {}\n", "variants: large_short is in large.yaml, too; rename it"),
        ("profiles:\n  large_both: {methods: both}\n", "profiles: large_both is in another file, too; rename it"),
        ("profiles:\n  large: {methods: both}\n", "new.yaml: profiles: large is in another file, too; rename it"),
        ("profiles:\n  1: {methods: [both]}\n", "profiles: 1: expected {data: …, methods: …"),
        (
            "profiles: {new: {methods: both}}\n",
            "new.yaml: profiles: expected one key per line below it, got another value",
        ),
        ("variants:\n  new_one: {seed: 2}\n", "new.yaml: variants: new_one: expected one key per line below it, got"),
        ("extends: [large, larger]\n", "new.yaml: extends: expected one name, got large, larger; keep one"),
        (
            "extends:\n  large\n",
            "new.yaml: extends: expected a name, or names in brackets, on the line of the key, got lines below it",
        ),
        ("replace:\n- train\ntrain:\n  rate: 1\n", "new.yaml: replace: expected a name, or names in brackets"),
        (
            "variants:\n  new_one:\n    extends: large_short\nprofiles:\n  new: {data: new_one}\n",
            "new.yaml: new_one: extends: large_short is no other variant of this file; allowed: nothing",
        ),
    ],
)
def test_a_mistake_in_a_profile_is_reported_in_one_line(folder, text, message):
    (folder / "circle.yaml").write_text("extends: new\n")
    (folder / "environment.yaml").write_text("channels: []\n")
    (folder / "new.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        overlays.compose_profile_text("new", folder)
    assert message in str(caught.value)
    assert "\n" not in caught.value.args[0]


def test_a_named_composition_may_take_two_lines_and_be_a_number(folder):
    (folder / "new.yaml").write_text("profiles:\n  1: {methods: both,\n      grid: none}\n")
    assert yaml.safe_load(overlays.compose_profile_text("1", folder)) == compose_parameters("plain", "both", "none")


def test_a_comment_that_is_indented_less_than_its_value_stays_a_comment(folder):
    (folder / "new.yaml").write_text("train:\n  more:\n# of: both\n    - 1\n    # and\n    - 2\n")
    assert "\n  more:\n  # of: both\n    - 1\n    # and\n    - 2\n" in overlays.compose_profile_text("new", folder)


def test_params_are_written_and_edits_by_hand_are_kept(folder, capsys):
    params = folder.parent / "params.yaml"
    assert main(["large"]) == 0
    assert params.read_text() == overlays.compose_profile_text("large", folder)
    assert main(["large"]) == 0
    assert capsys.readouterr().out == "params.yaml is now the profile large\n"
    assert main(["plain"]) == 0
    assert params.read_text() == overlays.compose_profile_text("plain", folder)
    assert main(["--data", "large", "--methods", "both", "--grid", "none"]) == 0
    assert yaml.safe_load(params.read_text()) == compose_parameters("large", "both", "none")
    assert capsys.readouterr().out.endswith("params.yaml is now composed of large, both, none\n")
    assert main(["plain"]) == 0
    assert not list(folder.parent.glob("params.yaml.*"))
    for copy in ("params.yaml.bak", "params.yaml.bak2", "params.yaml.bak3"):
        params.write_text(f"seed: 2 # {copy}\n")
        assert main(["plain"]) == 0
        assert (folder.parent / copy).read_text() == f"seed: 2 # {copy}\n"
        assert f"it is kept as {copy}" in capsys.readouterr().out
    params.write_text("seed: 2 # params.yaml.bak2\n")
    assert main(["plain"]) == 0
    assert "it is kept as params.yaml.bak2\n" in capsys.readouterr().out
    assert not (folder.parent / "params.yaml.bak4").exists()


def test_params_changed_by_hand_exist_until_the_new_file_is_complete(folder, monkeypatch):
    # a full disk while the profile is written leaves the changed params.yaml and its copy
    params = folder.parent / "params.yaml"
    assert main(["plain"]) == 0
    params.write_text("seed: 2 # by hand\n")
    write = overlays.write_atomically

    def fill_disk(path, content):
        if path == Path("params.yaml"):
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(overlays, "write_atomically", fill_disk)
    assert main(["large"]) != 0
    assert params.read_text() == "seed: 2 # by hand\n"
    assert (folder.parent / "params.yaml.bak").read_text() == "seed: 2 # by hand\n"


def test_params_of_a_profile_that_was_edited_later_are_no_change_by_hand(folder, capsys):
    params, copies = folder.parent / "params.yaml", lambda: list(folder.parent.glob("params.yaml.*"))
    assert main(["large"]) == 0
    base = folder / "base.yaml"
    base.write_text(base.read_text().replace("epochs: 5", "epochs: 6"))
    for start in (2, 3):
        assert main(["large", "--start", str(start)]) == 0
    assert not copies()
    params.write_text("seed: 5\n")
    for command in (["init", "-q"], ["add", "params.yaml"], ["commit", "-qm", "mine"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *command], check=True)
    assert main(["plain"]) == 0
    assert not copies()
    params.write_text("seed: 6\n")
    assert main(["plain"]) == 0
    assert [path.read_text() for path in copies()] == ["seed: 6\n"]


@pytest.mark.parametrize("name", ["scenes", "visdial"])
def test_a_file_rewritten_by_dvc_is_recognised_as_its_profile(tmp_path, name):
    path, profiles = tmp_path / "params.yaml", overlays.Profiles()
    text = profiles.compose_named(name)
    path.write_text(text)
    with modify_yaml(path) as values:
        values["seed"] = 7
    rewritten = path.read_text()
    assert rewritten.count("null") < text.count("null")
    assert len(rewritten.splitlines()) > len(text.splitlines())
    assert yaml.safe_load(rewritten) == yaml.safe_load(text) | {"seed": 7}
    nearest, lines = overlays.find_nearest_profile(rewritten, [name], profiles)
    assert nearest == name
    assert [line.partition(":")[0] for line in lines] == ["detector"] * (2 if name == "scenes" else 0)
    with modify_yaml(path) as values:  # START=7 sets the detectors' seeds
        for section in values["features"].values():
            if section.get("detector"):
                section["detector"]["seed"] += 6
    rewritten = path.read_text()
    assert yaml.safe_load(rewritten) == yaml.safe_load(overlays.set_start(text, 7))
    assert overlays.find_nearest_profile(rewritten, [name], profiles) == (name, [])
    with modify_yaml(path) as values:
        values["train"]["optimisation"]["epochs"] = 12345
    nearest, lines = overlays.find_nearest_profile(path.read_text(), [name], profiles)
    assert (nearest, lines) == (name, ["epochs: 12345"])


def test_a_changed_comment_is_a_change_by_hand(folder):
    text = overlays.compose_profile_text("large", folder)
    assert overlays.identify_profile(text, folder) == "large"
    assert overlays.identify_profile(text + "# mine\n", folder) is None


def test_a_start_is_the_seed_of_a_profile_and_no_change_by_hand(folder, capsys):
    params = folder.parent / "params.yaml"
    assert main(["large", "--start", "7"]) == 0
    assert params.read_text() == overlays.compose_profile_text("large", folder).replace("seed: 1\n", "seed: 7\n", 1)
    assert overlays.identify_profile(params.read_text(), folder) == "large"
    assert main(["large"]) == 0
    assert (
        capsys.readouterr().out
        == "params.yaml is now the profile large, start 7\nparams.yaml is now the profile large\n"
    )
    assert not list(folder.parent.glob("params.yaml.*"))


def test_the_nearest_profile_is_named_with_the_lines_that_differ(folder):
    profiles = overlays.Profiles(folder)
    text = profiles.compose_named("large").replace("seed: 1\n", "seed: 7\n", 1)
    assert overlays.find_nearest_profile(text, ["plain", "large"], profiles) == ("large", [])
    changed = "# mine\n" + text.replace("seeds: [1]", "seeds: [1, 2, 3] # mine")
    assert overlays.find_nearest_profile(changed, ["plain", "large"], profiles) == ("large", ["seeds: [1, 2, 3]"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lagre"], "PROFILE=lagre: no such profile; did you mean large?"),
        (["--data", "lagre"], "DATA=lagre: no such data; did you mean large?"),
        (
            ["--data", "large", "--methods", "bath"],
            "METHODS=bath: DATA=large has none of that name; did you mean both?",
        ),
        (["--data", "large", "--grid", "nine"], "GRID=nine: DATA=large has none of that name; did you mean none?"),
        (["large", "--start", "-1"], "START=-1: expected a seed of 0 or more; give another number"),
        (["large", "--grid", "none"], "PROFILE: names data, methods and grid itself"),
    ],
)
def test_a_wrong_argument_leaves_params_unchanged(folder, capsys, arguments, message):
    params = folder.parent / "params.yaml"
    params.write_text("seed: 2\n")
    assert main(arguments) == 2
    line = capsys.readouterr().err
    assert message in line
    assert line.count("\n") == 1
    assert params.read_text() == "seed: 2\n"
