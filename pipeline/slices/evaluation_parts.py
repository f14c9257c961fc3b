"""All parts of the evaluation of captions."""

from __future__ import annotations

from pipeline.evaluation.baseline_captions import BASELINES
from pipeline.evaluation.open_evaluation import EvaluationParts
from pipeline.slices.judge_kinds import JUDGES
from pipeline.worlds.fact_galleries import galleries_by_facts
from pipeline.worlds.scene_baselines import ORACLE, TEMPLATE
from pipeline.worlds.scenes.known_scenes import scene_truth

EVALUATION = EvaluationParts(
    judges=JUDGES,
    baselines=(TEMPLATE, ORACLE, *BASELINES),
    galleries={"facts": galleries_by_facts},
    truth=scene_truth,
)
