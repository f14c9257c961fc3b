"""Two processes with half a batch each equal one process with the whole batch: scores, gradients, checkpoints."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import reward_models
from every_method import METHODS
from toy_batches import ToyBatches

from pipeline.composition.joint import Objective
from pipeline.composition.method import Method
from pipeline.composition.pretraining import listener_matching
from pipeline.composition.relax_controls import with_relax
from pipeline.composition.retrieval_rewards import pretrain_heads
from pipeline.runtime import ranks
from pipeline.scores.discriminability import CollapseRecovery, Hinge, InfoNCE
from pipeline.training.checkpoint import Checkpoints
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation
from pipeline.types import Batch

pytestmark = pytest.mark.slow  # processes of torchrun
SECONDS = "processor_seconds"
FOUR = Optimisation(epochs=4, learning_rate=0.01, schedule="cosine", clip_norm=2.0)


def methods(toy) -> dict[str, Method]:
    """Return a method for each way in which captions of a batch interact: hinges, InfoNCE, baselines, controls."""

    def joint(name: str, lam: float, objective: Objective | None = None, **settings) -> Method:
        return METHODS[name](toy.agents(dropout=0.4), objective or Objective(), lam=lam, **settings)

    documents = toy.agents(dropout=0.4)
    documents = replace(documents, cider=replace(documents.cider, frequencies="batch"))
    alone = toy.agents().listener
    return {
        "psst": joint("psst_multinomial", 0.3, rho=0.5),
        "gumbel words": replace(joint("psst_gumbel", 0.3, mix="token"), normalise_gradients=True),
        "all negatives": joint("st_multinomial", 0.3, Objective(negatives="all", reduction="mean")),
        "luo, centred": joint("luo", 0.5, Objective(centre_advantages=True, cross_entropy_weight=0.5)),
        "reinforce": joint("reinforce", 0.5),
        "gumbel rao": joint("psst_gumbel_rao", 0.3, k=2),
        "by batch": joint("luo", 0.5, Objective(samples=2, baseline="leave_one_out", advantage_scaling="batch")),
        "by group": joint("st_reinmax", 0.3, Objective(samples=3, baseline="group", advantage_scaling="group")),
        "relax": with_relax(joint("luo", 0.5, Objective(samples=2))),
        "sll_me": METHODS["sll_me"](toy.agents(dropout=0.4), Objective(), weight=0.5, samples=2),
        "sll_sle": METHODS["sll_sle"](toy.agents(dropout=0.4), Objective(centre_advantages=True), alpha=0.5),
        "continuations": joint("pg_spider", 0.3, reward={"CIDEr": 1, "BLEU-2": 1}, rollouts=2, critic_first=2),
        "mixer": joint("mixer", 0.3, reward={"ROUGE-L": 1}, forced_tokens=3, decrement=1),
        "documents": METHODS["luo"](documents, Objective(), 0.2),
        "wtf_rl": METHODS["wtf_rl"](toy.agents(dropout=0.4), Objective(), reward_models(), clamp=2.0),
        "psst_wtf": joint("psst_wtf", 0.3, rewards=reward_models(), rho=0.5),
        "heads": pretrain_heads(reward_models(), toy.agents().speaker),
        "recovering": listener_matching(alone, CollapseRecovery(Hinge(alone), 2, 1, 2)),
        "infonce": listener_matching(other := toy.agents().listener, InfoNCE(other)),
    }


class Halves(ToyBatches):
    """The toy world's batches, or this rank's half of them."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for batch in super().epoch(epoch, start):
            if ranks.size() == 1:
                yield batch
                continue
            parts = {
                name: ranks.own_part(getattr(batch, name))
                for name in ("images", "pooled", "regions", "region_mask", "captions")
            }
            each = len(batch) // ranks.size()
            yield replace(batch, **parts, first=ranks.rank() * each, of=len(batch))


def weights_after(name: str, toy, folder: Path | None = None, die_at: int | None = None) -> dict[str, torch.Tensor]:
    """Return the weights after training, and the last value of each metric, but for times."""
    method = methods(toy)[name]
    training = Training(method, Halves(toy, die_at), FOUR, seed=4, device=torch.device("cpu"))
    logged: dict[str, float] = {}
    training.record = lambda metrics, step: logged.update(metrics)
    training.run(None if folder is None else Checkpoints(folder), every_seconds=0.0)
    weights = {f"{m}.{n}": t for m, module in method.modules().items() for n, t in module.state_dict().items()}
    return weights | {f"logged {name}": torch.tensor(value) for name, value in logged.items() if name != SECONDS}


def one_rank(folder: Path) -> None:
    """Train each method in one of two processes, and continue from the checkpoint of one process."""
    from conftest import Toy

    ranks.join(torch.device("cpu"))
    torch.set_num_threads(1)
    toy = Toy()
    found = {name: weights_after(name, toy) for name in methods(toy)}
    found["resumed"] = weights_after("psst", toy, folder / "one")
    try:
        weights_after("psst", toy, folder / "two", die_at=7)
    except KeyboardInterrupt:
        torch.save(found, folder / f"{ranks.rank()}.pt")
    ranks.leave()


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[Path, list[dict[str, dict[str, torch.Tensor]]]]:
    """Return the results of two ranks, and the folder of the checkpoints that they wrote and continued from."""
    from conftest import Toy

    folder = tmp_path_factory.mktemp("ranks")
    with pytest.raises(KeyboardInterrupt):
        weights_after("psst", Toy(), folder / "one", die_at=5)
    code = f"import test_ranks, pathlib; test_ranks.one_rank(pathlib.Path({str(folder)!r}))"
    (folder / "rank.py").write_text(code)
    path = os.pathsep.join(str(Path(__file__).parent / part) for part in (".", ".."))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*torchrun, str(folder / "rank.py")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, [torch.load(folder / f"{rank}.pt") for rank in range(2)]


NAMES = ["psst", "gumbel words", "all negatives", "luo, centred", "reinforce", "documents", "recovering", "infonce"]
NAMES += ["gumbel rao", "by batch", "by group", "relax", "sll_me", "sll_sle"]
NAMES += ["continuations", "mixer", "wtf_rl", "psst_wtf", "heads"]


def close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], atol=1e-5, rtol=1e-4, msg=lambda t, n=name: f"{n}: {t}")


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_are_one(name, two, toy):
    alone = weights_after(name, toy)
    for found in two[1]:
        close(found[name], alone)


def test_both_ranks_have_the_same_weights_to_the_bit(two):
    _, (first, second) = two
    for name in NAMES:
        for key, value in first[name].items():
            assert torch.equal(value, second[name][key]), (name, key)


def test_two_ranks_resume_one_ranks_checkpoint_and_the_reverse(two, toy):
    folder, found = two
    alone = weights_after("psst", toy)
    for rank in found:
        weights = {name: value for name, value in rank["resumed"].items() if not name.startswith("logged")}
        close(weights, {name: value for name, value in alone.items() if not name.startswith("logged")})
    assert Checkpoints(folder / "two").latest().step == 7
    close(weights_after("psst", toy, folder / "two"), alone)
