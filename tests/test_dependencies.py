"""What dvc.yaml says a stage depends on is what its code imports, both ways; cells of the grid depend on the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config.reading import read_mapping
from pipeline.config.views import listed_deps
from pipeline.workflow import dependencies

ROOT = Path(__file__).parents[1]
WORKFLOW = read_mapping(ROOT / "dvc.yaml")
STAGES = WORKFLOW["stages"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_the_code_that_it_imports_and_on_no_other(stage):
    listed, needed = dependencies.listed(stage, STAGES[stage]), dependencies.needed(stage)
    assert listed == needed, f"missing: {sorted(needed - listed)}; not needed: {sorted(listed - needed)}; run make fmt"


def test_the_command_writes_what_stands_there():
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    assert dependencies.rewritten(text) == text
    more = text.replace("        - pipeline/models\n", "        - pipeline/worlds/scenes\n")
    assert dependencies.rewritten(more) == text


@pytest.mark.parametrize(
    ("edited", "stale"),
    [
        ("pipeline/random.py", {"pretrain", "retriever", "train", "adapt", "evaluate", "sweep", "cross"}),
        ("pipeline/runtime/ranks.py", {"pretrain", "retriever", "train", "adapt", "sweep"}),
        ("pipeline/estimators/credit.py", {"train", "sweep"}),
        ("pipeline/estimators/relax.py", {"train", "sweep"}),
        ("pipeline/channels/straight_through.py", {"train", "sweep"}),
        ("pipeline/evaluation/multi_sample.py", {"evaluate", "sweep"}),
        ("pipeline/worlds/scenes/drawing/pets.py", {"draw", "report"}),
        ("pipeline/methods/luo.py", {"train luo", "sweep"}),
    ],
)
def test_an_edit_makes_stale_what_its_importers_decide(edited, stale):
    found = set()
    for name, block in STAGES.items():
        for dep in block.get("do", block)["deps"]:
            if dep == "pipeline/methods/${item.from}.py" and edited == "pipeline/methods/luo.py":
                found.add(f"{name} luo")
            elif edited == dep or edited.startswith(f"{dep}/"):
                found.add(name)
    assert found == stale


def test_a_cell_of_the_grid_depends_on_its_own_paper_and_on_no_other():
    paths = {name: listed_deps(WORKFLOW, "train", {"from": name}) for name in ("psst", "luo")}
    assert "pipeline/methods/psst.py" in paths["psst"]
    assert set(paths["psst"]) ^ set(paths["luo"]) == {"pipeline/methods/psst.py", "pipeline/methods/luo.py"}
    assert "pipeline/estimators" in paths["luo"]
