"""Each stage except validate depends on one digest of the code that it imports; cells depend on the same digests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pipeline.config.reading import read_mapping
from pipeline.config.views import list_deps
from pipeline.errors import UserError
from pipeline.models.architectures import ARCHITECTURES
from pipeline.workflow import dependencies
from pipeline.workflow.dependencies import (
    compute_code_digest,
    find_import_closure,
    find_stage_modules,
    write_code_digests,
)

ROOT = Path(__file__).parents[1]
WORKFLOW = read_mapping(ROOT / "dvc.yaml")
STAGES = WORKFLOW["stages"]
METHODS = {name: {"from": module} for name, module in (("mle", "likelihood"), ("st", "psst"), ("luo", "luo"))}
PARAMS = {"methods": METHODS, "sweep": {"grid": {"st": {}, "mle": [{}]}}}


@pytest.mark.parametrize("stage", sorted(STAGES.keys() - {"validate"}))  # sorted: all workers of pytest need one order
def test_a_stage_lists_its_own_digest_and_no_code(stage):
    deps = STAGES[stage].get("do", STAGES[stage])["deps"]
    own = "data/code/train/${item.from}.sha256" if stage == "train" else f"data/code/{stage}.sha256"
    assert [path for path in deps if path.startswith(("data/code", "pipeline", "stages"))] == [own]


def test_validate_depends_on_all_code():
    assert STAGES["validate"]["deps"] == ["params.yaml", "pipeline", "stages"]
    assert [list(out) for out in STAGES["validate"]["outs"]] == [["data/code"]]


def test_every_listed_digest_is_written_and_only_if_its_content_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_code_digests(PARAMS)
    listed = {path for stage in STAGES for block in METHODS.values() for path in list_deps(WORKFLOW, stage, block)}
    assert {path for path in listed if path.startswith("data/code/") and not Path(path).is_file()} == set()
    files = list(Path("data/code").rglob("*.sha256"))
    assert len({path.read_text() for path in files}) == len(files)
    for path in files:
        os.utime(path, (0, 0))
    Path("data/code/report.sha256").write_text("another\n")
    write_code_digests({**PARAMS, "methods": {name: METHODS[name] for name in ("mle", "st")}})
    remaining = set(Path("data/code").rglob("*.sha256"))
    assert set(files) - remaining == {Path("data/code/train/luo.sha256")}
    assert {path for path in remaining if path.stat().st_mtime} == {Path("data/code/report.sha256")}


def test_a_damaged_digest_is_written_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    damaged = tmp_path / "data/code/draw.sha256"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"\xff\xfe")
    write_code_digests(PARAMS)
    assert damaged.read_text() == f"{compute_code_digest('draw')}\n"


def test_a_folder_of_bytecode_beside_a_module_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "pipeline/vocabulary/__pycache__").mkdir(parents=True)
    (tmp_path / "pipeline/vocabulary.py").touch()
    monkeypatch.setattr(dependencies, "ROOT", tmp_path)
    assert dependencies._locate_source("pipeline.vocabulary") == tmp_path / "pipeline/vocabulary.py"


def test_a_method_without_a_module_is_reported_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r'methods\.x\.from = "lou" is no module of pipeline/methods; did you mean luo'):
        write_code_digests({"methods": {"x": {"from": "lou"}}})
    assert not Path("data").exists()


@pytest.mark.parametrize(
    ("edited", "stale"),
    [
        ("pipeline.random", {"pretrain", "retriever", "train", "adapt", "evaluate", "sweep", "cross"}),
        ("pipeline.runtime.ranks", {"pretrain", "retriever", "train", "adapt", "sweep"}),
        ("pipeline.estimators.relax", {"train", "sweep"}),
        ("pipeline.channels.straight_through", {"train", "sweep"}),
        ("pipeline.evaluation.multi_sample", {"evaluate", "sweep"}),
        ("pipeline.worlds.scenes.drawing.animals", {"draw", "report"}),
        ("pipeline.methods.luo", {"train luo"}),
        ("pipeline.methods.psst", {"train psst", "sweep"}),
        ("pipeline.estimators.credit", set()),
        ("pipeline.readers", {"prepare"}),
        ("pipeline.metrics.registry", {"evaluate", "sweep", "cross", "report"}),  # and train mixer, sle, spider
        ("pipeline.config.load", set()),
        ("pipeline.composition.pretraining_settings", set()),  # its classes hold parameters of stages
        ("pipeline.composition.reward_settings", set()),
        ("pipeline.evaluation.evaluation_settings", set()),
        ("pipeline.models.model_settings", set()),
    ],
)
def test_an_edit_makes_the_importing_stages_stale(edited, stale):
    assert dependencies._locate_source(edited).is_file()
    modules = ("likelihood", "psst", "luo")
    found = {stage for stage in STAGES.keys() - {"train", "sweep", "validate"} if edited in find_stage_modules(stage)}
    trainings = {f"train {module}" for module in modules if edited in find_stage_modules("train", [module])}
    found |= {"train"} if len(trainings) == len(modules) else trainings
    found |= {"sweep"} if edited in find_stage_modules("sweep", ["likelihood", "psst"]) else set()
    assert found == stale


def test_trainings_depend_only_on_modules_that_their_methods_import():
    methods = [
        module.rpartition(".")[2] for module in dependencies.build_import_graph().find_children("pipeline.methods")
    ]
    importers = {name for name in methods if "pipeline.estimators.credit" in find_stage_modules("train", [name])}
    assert importers == {"spider"}


def test_the_closure_has_the_packages_of_imported_modules():
    assert {"pipeline.readers", "pipeline.vocabulary"} <= find_import_closure(["pipeline.readers.karpathy"])


def test_the_closure_has_the_architectures_that_are_imported_by_name():
    assert {each.module for each in ARCHITECTURES.values()} <= find_import_closure(["pipeline.models.architectures"])
    assert "pipeline.models.architectures" in find_stage_modules("pretrain")


def test_a_digest_depends_on_contents_and_not_on_the_folder_of_the_code(tmp_path, monkeypatch):
    for package in ("pipeline", "stages"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    stages = ("draw", "evaluate", "report")
    digests = {stage: compute_code_digest(stage) for stage in stages}
    monkeypatch.setattr(dependencies, "ROOT", tmp_path)
    assert {stage: compute_code_digest(stage) for stage in stages} == digests
    with open(tmp_path / "pipeline/worlds/scenes/drawing/animals.py", "a") as file:
        file.write("# another line\n")
    assert {stage for stage in stages if compute_code_digest(stage) != digests[stage]} == {"draw", "report"}


@pytest.mark.parametrize(
    ("before", "after", "stale"),
    [
        ('MethodCard("Luo et al.", 3', 'MethodCard("Luo and others", 2', {"report"}),
        ("return build_tradeoff(", "return  build_tradeoff(", {"train luo", "sweep"}),
    ],
)
def test_a_card_changes_the_report_and_other_code_changes_the_trainings(tmp_path, monkeypatch, before, after, stale):
    def compute_digests():
        found = {f"train {module}": compute_code_digest("train", [module]) for module in ("luo", "psst")}
        found["sweep"] = compute_code_digest("sweep", ["luo"])
        return found | {stage: compute_code_digest(stage) for stage in ("report", "evaluate", "adapt")}

    for package in ("pipeline", "stages"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(dependencies, "ROOT", tmp_path)
    old, module = compute_digests(), tmp_path / "pipeline/methods/luo.py"
    text = module.read_text(encoding="utf-8")
    assert text.count(before) == 1
    module.write_text(text.replace(before, after), encoding="utf-8")
    new = compute_digests()
    assert {stage for stage in new if new[stage] != old[stage]} == stale


def test_a_cell_of_the_grid_depends_on_the_digest_of_its_own_method_module():
    paths = {name: set(list_deps(WORKFLOW, "train", {"from": name})) for name in ("psst", "luo")}
    assert paths["psst"] ^ paths["luo"] == {"data/code/train/psst.sha256", "data/code/train/luo.sha256"}
