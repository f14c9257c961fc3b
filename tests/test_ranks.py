"""Two processes with half a batch each equal one process with the whole batch: scores, gradients, checkpoints."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import make_reward_models
from every_method import METHODS
from toy_batches import ToyBatches

from pipeline.composition.joint import Objective
from pipeline.composition.method import Method
from pipeline.composition.pretraining import build_listener_matching
from pipeline.composition.relax_controls import add_relax
from pipeline.composition.retrieval_rewards import build_head_pretraining
from pipeline.runtime import ranks
from pipeline.scores.discriminability import CollapseRecovery, Hinge, InfoNCE
from pipeline.training.checkpoint import Checkpoints
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation
from pipeline.types import Batch

pytestmark = pytest.mark.slow  # processes of torchrun
TIME_METRIC = "processor_seconds"
OPTIMISATION = Optimisation(epochs=4, learning_rate=0.01, schedule="cosine", clip_norm=2.0)


def make_methods(toy) -> dict[str, Method]:
    """Build a method for each way in which captions of a batch interact: hinges, InfoNCE, baselines, controls."""

    def make_joint(name: str, lam: float, objective: Objective | None = None, **settings) -> Method:
        return METHODS[name](toy.agents(dropout=0.4), objective or Objective(), lam=lam, **settings)

    agents = toy.agents(dropout=0.4)
    agents = replace(agents, cider=replace(agents.cider, frequencies="batch"))
    listener = toy.agents().listener
    return {
        "psst": make_joint("psst_multinomial", 0.3, rho=0.5, mix="caption"),
        "gumbel, normalised": replace(make_joint("psst_gumbel", 0.3), normalise_gradients=True),
        "all negatives": make_joint("st_multinomial", 0.3, Objective(negatives="all", reduction="mean")),
        "luo, centred": make_joint("luo", 0.5, Objective(centre_advantages=True, cross_entropy_weight=0.5)),
        "reinforce": make_joint("reinforce", 0.5),
        "gumbel rao": make_joint("psst_gumbel_rao", 0.3, k=2),
        "batch std": make_joint("luo", 0.5, Objective(samples=2, baseline="leave_one_out", advantage_scaling="batch")),
        "group std": make_joint("st_reinmax", 0.3, Objective(samples=3, baseline="group", advantage_scaling="group")),
        "relax": add_relax(make_joint("luo", 0.5, Objective(samples=2))),
        "sll_me": METHODS["sll_me"](toy.agents(dropout=0.4), Objective(), weight=0.5, samples=2),
        "sll_sle": METHODS["sll_sle"](toy.agents(dropout=0.4), Objective(centre_advantages=True), alpha=0.5),
        "continuations": make_joint("pg_spider", 0.3, reward={"CIDEr": 1, "BLEU-2": 1}, rollouts=2, critic_first=2),
        "mixer": make_joint("mixer", 0.3, reward={"ROUGE-L": 1}, forced_tokens=3, decrement=1),
        "batch frequencies": METHODS["luo"](agents, Objective(), 0.2),
        "wtf_rl": METHODS["wtf_rl"](toy.agents(dropout=0.4), Objective(), make_reward_models(), clamp=2.0),
        "psst_wtf": make_joint("psst_wtf", 0.3, rewards=make_reward_models(), rho=0.5),
        "heads": build_head_pretraining(make_reward_models(), toy.agents().speaker),
        "collapse recovery": build_listener_matching(listener, CollapseRecovery(Hinge(listener), 2, 1, 2)),
        "infonce": build_listener_matching(other := toy.agents().listener, InfoNCE(other)),
    }


class RankBatches(ToyBatches):
    """The toy data's batches, or this rank's half of each batch."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for batch in super().epoch(epoch, start):
            if ranks.count_ranks() == 1:
                yield batch
                continue
            parts = {
                name: ranks.get_own_part(getattr(batch, name))
                for name in ("images", "pooled", "regions", "region_mask", "captions")
            }
            rank_size = len(batch) // ranks.count_ranks()
            yield replace(batch, **parts, first=ranks.get_rank() * rank_size, whole_size=len(batch))


def train_method(
    name: str, toy, folder: Path | None = None, interrupt_at: int | None = None
) -> dict[str, torch.Tensor]:
    """Train a method; return its weights and the last value of each metric except times.

    With a checkpoint in `folder`, the method's own weights are zeros, which the checkpoint must replace.
    """
    method = make_methods(toy)[name]
    if folder is not None and Checkpoints(folder).load_latest() is not None:
        with torch.no_grad():
            for module in method.modules().values():
                for weight in module.parameters():
                    weight.zero_()
    training = Training(method, RankBatches(toy, interrupt_at), OPTIMISATION, seed=4, device=torch.device("cpu"))
    logged: dict[str, float] = {}
    training.record = lambda metrics, step: logged.update(metrics)
    training.run(None if folder is None else Checkpoints(folder), every_seconds=0.0)
    weights = {f"{m}.{n}": t for m, module in method.modules().items() for n, t in module.state_dict().items()}
    return weights | {f"logged {name}": torch.tensor(value) for name, value in logged.items() if name != TIME_METRIC}


def run_rank(folder: Path) -> None:
    """Train each method as one of two ranks, resume one process's checkpoint; write the results and a checkpoint."""
    from conftest import Toy

    ranks.join_process_group(torch.device("cpu"))
    torch.set_num_threads(1)
    toy = Toy()
    found = {name: train_method(name, toy) for name in make_methods(toy)}
    found["resumed"] = train_method("psst", toy, folder / "one")
    try:
        train_method("psst", toy, folder / "two", interrupt_at=7)
    except KeyboardInterrupt:
        torch.save(found, folder / f"{ranks.get_rank()}.pt")
    ranks.leave_process_group()


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> tuple[Path, list[dict[str, dict[str, torch.Tensor]]]]:
    """Return the folder of checkpoints, one resumed and one written by two ranks, and the results of both ranks."""
    from conftest import Toy

    folder = tmp_path_factory.mktemp("ranks")
    with pytest.raises(KeyboardInterrupt):
        train_method("psst", Toy(), folder / "one", interrupt_at=5)
    code = f"import test_ranks, pathlib; test_ranks.run_rank(pathlib.Path({str(folder)!r}))"
    (folder / "rank.py").write_text(code)
    path = os.pathsep.join(str(Path(__file__).parent / part) for part in (".", ".."))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*torchrun, str(folder / "rank.py")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, [torch.load(folder / f"{rank}.pt") for rank in range(2)]


NAMES = ["psst", "gumbel, normalised", "all negatives", "luo, centred", "reinforce", "infonce"]
NAMES += ["batch frequencies", "collapse recovery"]
NAMES += ["gumbel rao", "batch std", "group std", "relax", "sll_me", "sll_sle"]
NAMES += ["continuations", "mixer", "wtf_rl", "psst_wtf", "heads"]


def assert_close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], atol=1e-5, rtol=1e-4, msg=lambda t, n=name: f"{n}: {t}")


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_give_the_weights_and_metrics_of_one(name, two_ranks, toy):
    single = train_method(name, toy)
    for found in two_ranks[1]:
        assert_close(found[name], single)


def test_both_ranks_have_the_same_weights_to_the_bit(two_ranks):
    _, (first, second) = two_ranks
    for name in NAMES:
        for key, value in first[name].items():
            assert torch.equal(value, second[name][key]), (name, key)


def test_two_ranks_resume_one_ranks_checkpoint_and_the_reverse(two_ranks, toy):
    folder, found = two_ranks
    single = train_method("psst", toy)
    for rank in found:
        weights = {name: value for name, value in rank["resumed"].items() if not name.startswith("logged")}
        assert_close(weights, {name: value for name, value in single.items() if not name.startswith("logged")})
    assert Checkpoints(folder / "two").load_latest().step == 7
    assert_close(train_method("psst", toy, folder / "two"), single)
