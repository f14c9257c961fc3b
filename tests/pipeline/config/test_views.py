"""A stage reads the parameters that dvc.yaml lists for it, and no others."""

from copy import copy
from pathlib import Path

import pytest
import yaml
from every_method import METHODS

from pipeline.config.load import load, resolve_method_settings
from pipeline.config.schema import EvaluateSection
from pipeline.errors import UserError

DVC = """
stages:
  one:
    cmd: echo
    params: [seed, train.objective.margin, features.main.options, evaluate]
  each:
    foreach: ${methods}
    do:
      cmd: echo
      params: [train, "methods.${key}"]
  role:
    foreach: [listener, speaker]
    do:
      cmd: echo
      params: ["pretrain.${item}"]
  stale:
    cmd: echo
    params: [train.gone]
  nowhere:
    foreach: ${metods}
    do:
      cmd: echo
  number:
    foreach: ${train.objective.margin}
    do:
      cmd: echo
  foreign:
    cmd: echo
    params: [{other.yaml: [x]}]
"""


@pytest.fixture
def make_view(params, tmp_path):
    path = tmp_path / "dvc.yaml"
    path.write_text(DVC)
    network = ["features.main.network=resnet18", "features.main.weights=hub"]  # a network that takes options
    overrides = ["features.main.options={pad_type: same}", "methods.luo.train={objective: {margin: 0.7}}"]
    loaded = load(params, [*network, *overrides])
    return lambda stage, instance=None: loaded.select_for_stage(stage, instance, dvc_yaml=path)


def test_a_stage_reads_listed_parameters_and_reads_are_recorded(make_view):
    view = make_view("one")
    settings = view.settings
    assert settings.seed == 1
    assert settings.train.objective.margin == 0.2
    assert view.read == {"seed", "train.objective.margin"}
    assert settings.evaluate.metrics == ("BLEU", "METEOR", "ROUGE-L", "CIDEr")
    assert isinstance(settings.evaluate, EvaluateSection)
    assert settings.features["main"].options == {"pad_type": "same"}
    assert view.read == {"seed", "train.objective.margin", "evaluate", "features.main.options"}


def test_a_stage_cannot_read_unlisted_parameters(make_view):
    view = make_view("one")
    settings = view.settings
    for read, key in [
        (lambda: settings.report, "report"),
        (lambda: settings.train.optimisation, "train.optimisation"),
        (lambda: settings.train.objective.cross_entropy_weight, "train.objective.cross_entropy_weight"),
        (lambda: settings.features["main"].network, "features.main.network"),
        (lambda: settings.features["judge"], "features.judge"),
        (lambda: make_view("each", "luo").settings.methods["mle"], "methods.mle"),
        (lambda: make_view("role", "speaker").settings.pretrain["listener"], "pretrain.listener"),
    ]:
        with pytest.raises(UserError, match=rf"may not read {key}: list it under params of \w+ in dvc.yaml"):
            read()
    assert view.read == set()


def test_partly_listed_settings_have_no_private_names_and_can_be_copied(make_view):
    train = make_view("one").settings.train
    assert not hasattr(train, "_private")
    assert copy(train).objective.margin == 0.2


def test_records_and_digests_hold_all_listed_parameters_without_counting_as_reads(make_view):
    view = make_view("one")
    flat = view.flatten()
    assert set(flat) == {
        "seed",
        "train.objective.margin",
        "features.main.options.pad_type",
        "evaluate.beam",
        "evaluate.baselines.mle",
        *(f"evaluate.judges.{name}" for name in ("own", "adapted", "pretrained", "judge", "symbolic")),
        "evaluate.metrics",
        "evaluate.hard_gallery.similarity",
        "evaluate.hard_gallery.images",
        "evaluate.no_repeat_ngram_size",
        "evaluate.multi_sample",
        "evaluate.splits",
    }
    assert list(view.as_dict()) == ["seed", "features", "train", "evaluate"]
    assert view.as_dict()["train"] == {"objective": {"margin": 0.2}}
    assert view.read == set()


def test_a_misspelt_parameter_is_reported_with_the_nearest_name(make_view):
    with pytest.raises(UserError, match=r"one: no parameter train.objective.margn; did you mean margin\?"):
        _ = make_view("one").settings.train.objective.margn


@pytest.mark.parametrize(
    ("stage", "instance", "message"),
    [
        ("tow", None, "no stage tow"),
        ("each", "psst", "unknown instance psst; allowed: mle, psst_multinomial"),
        ("each", None, "it takes one of mle, psst_multinomial"),
        ("one", "mle", "it takes none"),
        ("role", "judge", "unknown instance judge; allowed: listener, speaker"),
        ("stale", None, "no parameter train.gone"),
        ("foreign", None, "remove those of other files"),
        ("nowhere", "luo", r"nowhere: expected foreach to name a mapping or list of params.yaml, got \$\{metods\};"),
        ("number", "luo", r"number: expected foreach to name a mapping or list of params.yaml, got \$\{train"),
    ],
)
def test_mistakes_in_stages_and_instances_are_reported(make_view, stage, instance, message):
    with pytest.raises(UserError, match=message):
        make_view(stage, instance)


def test_a_methods_own_train_values_override_the_train_section(make_view, params):
    luo_settings = resolve_method_settings(make_view("each", "luo").settings, "luo")
    assert luo_settings.composition is METHODS["luo"]
    own = yaml.safe_load(Path(params).read_text(encoding="utf-8"))["methods"]["luo"]["lambda"]
    assert luo_settings.arguments == {"lam": own}
    assert luo_settings.named_arguments == {"lambda": own}
    assert (luo_settings.objective.margin, luo_settings.objective.negatives) == (0.7, "hardest")
    assert resolve_method_settings(make_view("each", "mle").settings, "mle").objective.margin == 0.2


def test_the_settings_of_a_method_read_every_listed_parameter(make_view):
    view = make_view("each", "luo")
    resolve_method_settings(view.settings, "luo")
    assert view.read == set(view.listed)
