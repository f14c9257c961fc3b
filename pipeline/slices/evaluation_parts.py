"""All parts of the evaluation of captions."""

from __future__ import annotations

from pipeline.evaluation.baseline_captions import BASELINES
from pipeline.evaluation.open_evaluation import EvaluationParts
from pipeline.slices.judge_kinds import JUDGES
from pipeline.worlds.fact_galleries import build_galleries_by_facts
from pipeline.worlds.scene_baselines import ORACLE, TEMPLATE
from pipeline.worlds.scenes.known_scenes import build_scene_truth

EVALUATION = EvaluationParts(
    judges=JUDGES,
    baselines=(TEMPLATE, ORACLE, *BASELINES),
    galleries={"facts": build_galleries_by_facts},
    truth=build_scene_truth,
)
