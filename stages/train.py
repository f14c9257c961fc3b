"""Joint training of speaker and listener by one method.

python -m stages.train --method psst_multinomial → data/models/psst_multinomial: weights, history and metrics.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config.load import MethodSettings, resolve_method_settings
from pipeline.runtime.checksums import compute_data_digests
from pipeline.runtime.command import end_process
from pipeline.tracking import recorder
from pipeline.workflow.reuse import TRAINING_OUTPUTS, reuse_finished
from pipeline.workflow.stage import Stage, main

if TYPE_CHECKING:
    import torch

    from pipeline.composition.method import Method
    from pipeline.data.prepared import PreparedData
    from pipeline.metrics.cider import CiderD


def list_inputs(stage: Stage) -> list[Path]:
    """Return the inputs: the data, the pretrained agents, and the files of reward models, if the method uses any."""
    from pipeline.composition.reward_files import list_reward_files

    settings = resolve_method_settings(stage.settings, stage.instance or "")
    names = (f"pretrained/{settings.speaker}/weights.safetensors", "pretrained/listener/weights.safetensors")
    inputs = [stage.root / name for name in ("prepared", "features/main", *names)]
    return inputs + (list_reward_files(stage.root) if settings.takes_rewards else [])


def run(stage: Stage) -> None:
    """Train and write the agents of one method."""
    import torch

    from pipeline.training.fit import run_training
    from pipeline.workflow.training import build_training, load_training_data

    assert stage.instance is not None
    settings = resolve_method_settings(stage.settings, stage.instance)
    prepared, store = load_training_data(stage.root)
    torch.manual_seed(stage.seed)  # a critic's weights are drawn at random
    method, cider = build_method(settings, stage.root, prepared, stage.device)
    training = build_training(method, cider, settings.optimisation, prepared, store, stage.seed, stage.device)
    checkpoints = stage.root / "checkpoints" / stage.compute_key(list_inputs(stage))
    params = {"method": stage.instance, **settings.named_arguments, **stage.params.as_dict()}
    with recorder.record_run(stage.title, params, inputs=stage.compute_digests(list_inputs(stage))) as record:
        run_training(
            training, stage.out, checkpoints, record, stage.checkpoint_seconds, data=compute_data_digests(stage.root)
        )


def build_method(
    settings: MethodSettings, root: Path, prepared: PreparedData, device: torch.device
) -> tuple[Method, CiderD | None]:
    """Build a method from the pretrained agents below `root`.

    Also return the CIDEr-D of captions; None for a slice's agents. Raises UserError as `load_rewards` and `compose` do.
    """
    from pipeline.composition.compose import compose
    from pipeline.composition.joint import Agents, pair_agents
    from pipeline.composition.reward_files import load_rewards
    from pipeline.slices.slice_agents import find_owner, load_any_agent
    from pipeline.slices.slice_training import TRAINING

    speaker = load_any_agent(root / "pretrained" / settings.speaker / "weights.safetensors", "speaker")
    listener = load_any_agent(root / "pretrained" / "listener" / "weights.safetensors", "listener")
    objective, owner = settings.objective, find_owner(TRAINING, (speaker, listener))
    agents = (
        owner.pair_agents(speaker, listener) if owner else pair_agents(speaker, listener, prepared, objective, device)
    )
    rewards = load_rewards(root, prepared, device) if settings.takes_rewards else None
    method = compose(settings.composition, agents, objective, settings.arguments, rewards, settings.gamma)
    return method, agents.cider if isinstance(agents, Agents) else None


if __name__ == "__main__":
    end_process(main("train", reuse_finished(run, list_inputs, TRAINING_OUTPUTS)))
