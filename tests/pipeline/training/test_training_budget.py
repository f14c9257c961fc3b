"""Captions drawn in training, counted by hand, and processor seconds over several processes."""

import time
from itertools import cycle, islice

import pytest
import torch
from conftest import IMAGES, STEPS, make_reward_models
from toy_batches import ToyBatches

from pipeline.channels.hard import Multinomial
from pipeline.channels.scheduled_sampling import ScheduledSampling
from pipeline.composition.caption_pretraining import build_adaptation_to_speaker
from pipeline.composition.joint import Objective
from pipeline.composition.method import Method
from pipeline.composition.pretraining import build_teacher_forcing
from pipeline.composition.pretraining_settings import MatchingSettings
from pipeline.estimators.rollouts import StepRollouts
from pipeline.methods.likelihood import mle
from pipeline.methods.luo import luo
from pipeline.methods.mixer import mixer
from pipeline.methods.psst import psst_multinomial, reinforce, st_multinomial
from pipeline.methods.spider import pg_spider
from pipeline.methods.wtf_rl import scst_discriminator, wtf, wtf_rl
from pipeline.runtime import ranks
from pipeline.training.checkpoint import Checkpoints
from pipeline.training.loop import Training
from pipeline.training.optimisation import Optimisation
from pipeline.training.training_budget import TrainingBudget

CPU = torch.device("cpu")
RLOO = Objective(samples=5, baseline="leave_one_out")
SHARED = Objective(cider_sample="shared")


def train(method: Method, toy, epochs: int = 1, **batch_options: int) -> Training:
    training = Training(method, ToyBatches(toy, **batch_options), Optimisation(epochs=epochs), seed=4, device=CPU)
    training.run()
    return training


@pytest.mark.parametrize(
    ("make", "captions_per_step"),
    [
        (lambda agents: mle(agents, Objective()), (0,)),
        (lambda agents: luo(agents, Objective(), 0.7), (2,)),  # a sample and the greedy caption
        (lambda agents: reinforce(agents, Objective(), 0.7), (2, 1)),  # the listener's step has no baseline
        (lambda agents: luo(agents, RLOO, 0.7), (5,)),  # samples alone
        (lambda agents: psst_multinomial(agents, Objective(), 0.3), (3,)),  # two samples and CIDEr's baseline
        (lambda agents: st_multinomial(agents, SHARED, 0.3), (2,)),  # CIDEr scores the listener's samples
        (lambda agents: wtf(agents, Objective(), make_reward_models()), (4,)),  # three beams and greedy, as negatives
        (lambda agents: wtf_rl(agents, Objective(), make_reward_models()), (4,)),  # the same captions are trajectories
        (lambda agents: scst_discriminator(agents, Objective(), make_reward_models()), (4,)),  # greedy as the baseline
    ],
    ids=["mle", "luo", "reinforce", "rloo", "psst", "st, shared", "wtf", "wtf_rl", "scst"],
)
def test_captions_drawn_by_each_method_equal_counts_by_hand(toy, make, captions_per_step):
    """`captions_per_step` has the captions per image of the first steps; later steps repeat these numbers."""
    training = train(make(toy.agents()), toy, epochs=2)
    expected = [IMAGES * sum(islice(cycle(captions_per_step), steps)) for steps in (3, 6)]
    assert [entry["captions_drawn"] for entry in training.history] == expected


def test_continuations_of_pg_spider_are_captions_from_each_word_but_the_last(toy):
    method = pg_spider(toy.agents(), Objective(), reward="cider", rollouts=3, critic_first=0)
    rollouts = StepRollouts(method.speaker, toy.batch(), seed=4)
    for _ in method.rounds(rollouts, step=0):
        pass
    words = rollouts.get_message(Multinomial()).mask.sum(1)  # with EOS
    assert len(set(words.tolist())) > 1
    assert int(rollouts.captions_drawn) == IMAGES + 3 * int((words - 1).sum())


def test_captions_that_are_human_to_their_end_are_not_drawn(toy):
    def count_drawn(forced_tokens: int) -> float:
        method = mixer(toy.agents(), Objective(), reward="cider", forced_tokens=forced_tokens, critic_hidden=4)
        return train(method, toy, steps=1).history[-1]["captions_drawn"]

    longer = sum(len(references[0]) > 2 for references in toy.references)  # no EOS within three tokens
    assert 0 < longer < IMAGES
    assert [count_drawn(0), count_drawn(3), count_drawn(STEPS)] == [IMAGES, longer, 0]
    always = ScheduledSampling(start=-1, every=1, increment=1.0, max_share=1.0)
    assert (
        train(build_teacher_forcing({"speaker": toy.agents().speaker}, always), toy, 3).history[-1]["captions_drawn"]
        == 0
    )


def test_a_listener_adapts_to_captions_that_the_frozen_speaker_draws(toy):
    agents, settings = (
        toy.agents(),
        MatchingSettings(objective="hinge", margin=0.2, temperature=0.1, negatives="hardest"),
    )
    training = train(build_adaptation_to_speaker(settings, agents.speaker, agents.listener), toy)
    assert training.history[-1]["captions_drawn"] == 3 * IMAGES


def test_processor_seconds_exclude_validations_and_include_earlier_processes(monkeypatch):
    clock = iter([100.0, 103.0, 104.0, 110.0, 111.0, 111.0, 50.0])
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    first = TrainingBudget(CPU)  # at 100
    first.start()  # at 103
    first.add(torch.tensor(7))
    with first.pause():  # from 104 to 110
        pass
    assert first.processor_seconds == 2.0  # at 111
    state = first.state()
    again = TrainingBudget(CPU)  # another process, at 50
    monkeypatch.setattr(time, "process_time", lambda: 60.0)
    again.restore(state)
    again.start()
    again.add(torch.tensor(5))
    monkeypatch.setattr(time, "process_time", lambda: 64.0)
    assert (again.captions_drawn, again.processor_seconds) == (12, 6.0)
    monkeypatch.setattr(ranks, "count_ranks", lambda: 2)
    assert again.processor_seconds == 10.0


def test_a_resumed_training_keeps_the_seconds_of_its_entries_and_adds_later_ones(toy, tmp_path):
    def run(interrupt_at: int | None = None) -> Training:
        method = luo(toy.agents(), Objective(), 0.7)
        training = Training(method, ToyBatches(toy, interrupt_at), Optimisation(epochs=5), seed=4, device=CPU)
        training.run(Checkpoints(tmp_path), every_seconds=0.0)
        return training

    with pytest.raises(KeyboardInterrupt):
        run(interrupt_at=7)  # in the third epoch
    state = Checkpoints(tmp_path).load_latest().state
    assert state["budget"]["captions_drawn"] == 7 * 2 * IMAGES
    resumed = run()
    assert resumed.processor_seconds[:2] == state["processor_seconds"]
    assert resumed.processor_seconds == sorted(resumed.processor_seconds)
    assert resumed.processor_seconds[2] > state["budget"]["processor_seconds"] > state["processor_seconds"][1] > 0
    assert [entry["captions_drawn"] for entry in resumed.history] == [6 * IMAGES * n for n in range(1, 6)]


def test_mlflow_gets_captions_and_seconds_at_each_entry(toy):
    logged: list[tuple[int, dict[str, float]]] = []
    training = Training(luo(toy.agents(), Objective(), 0.7), ToyBatches(toy), Optimisation(epochs=2), 4, CPU)
    training.record = lambda metrics, step: logged.append((step, metrics))
    training.run()
    budgets = [(step, metrics) for step, metrics in logged if "captions_drawn" in metrics]
    assert budgets == [
        (3 * n, {"captions_drawn": 6 * IMAGES * n, "processor_seconds": training.processor_seconds[n - 1]})
        for n in (1, 2)
    ]
