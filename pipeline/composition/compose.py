"""Construction of a method from its agents and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from pipeline.composition.joint import Agents
from pipeline.composition.kl_penalty import add_kl_penalty
from pipeline.composition.method import Method
from pipeline.composition.objective import Objective
from pipeline.composition.relax_controls import add_relax
from pipeline.composition.retrieval_rewards import RewardModels
from pipeline.errors import UserError


def compose(
    composition: Callable[..., Method],
    agents: object,
    objective: Objective,
    arguments: Mapping[str, Any],
    rewards: RewardModels | None = None,
    gamma: float = 1.0,
) -> Method:
    """Build the method of `composition` with its own `arguments`, and guidance by `gamma`.

    `objective` may add normalised gradients, RELAX and a KL penalty.

    Raises UserError where the composition, RELAX, the KL penalty or `gamma` does not fit the agents or settings.
    """
    expected = get_type_hints(composition)["agents"]
    if not isinstance(agents, expected):
        raise UserError(
            f"{composition.__name__}: expected {expected.__name__}, found {type(agents).__name__}: "
            "choose another method, or another pretrain.listener in params.yaml"
        )
    keywords = arguments if rewards is None else {"rewards": rewards, **arguments}
    method = replace(composition(agents, objective, **keywords), normalise_gradients=objective.normalise_gradients)
    if objective.control_variate == "relax":
        if objective.advantage_scaling != "none":
            raise UserError(
                "train.objective.control_variate = relax: expected advantage_scaling none, got "
                f"{objective.advantage_scaling}; set one of the two to none"
            )
        method = add_relax(method)
    if objective.kl_weight:
        if not isinstance(agents, Agents):
            raise UserError(
                f"train.objective.kl_weight: expected captioning agents, got {type(agents).__name__}; set it to 0"
            )
        method = add_kl_penalty(method, objective)
    return replace(method, gamma=gamma)
