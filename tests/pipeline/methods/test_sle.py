from dataclasses import replace

import pytest
import torch
from conftest import STEPS
from pycocoevalcap.rouge.rouge import Rouge

from pipeline.channels.hard import Greedy, Multinomial
from pipeline.composition.joint import Objective
from pipeline.errors import UserError
from pipeline.estimators.rollouts import StepRollouts
from pipeline.methods.sle import sll, sll_me, sll_sle
from pipeline.scores.exploration import SetDistance


def make_peaked_agents(toy):
    """Return agents whose speaker generates two words most often, so that its captions resemble each other."""
    agents = toy.agents()
    with torch.no_grad():
        agents.speaker.logit.bias[1:3] += 4
    return agents


def run_step(method, batch, seed: int = 3):
    """Run one step; return the losses by name and the gradients of their sum."""
    method.freeze(batch.step)
    losses, _ = method.step(batch, seed)
    gradients = torch.autograd.grad(sum(losses.values()), list(method.agents["speaker"].parameters()))
    return losses, gradients


def assert_equal_gradients(left, right) -> None:
    for gradient, other in zip(left[1], right[1], strict=True):
        torch.testing.assert_close(gradient, other, atol=1e-8, rtol=1e-5)


def test_sll_sle_with_alpha_1_equals_sll(toy):
    assert_equal_gradients(
        run_step(sll_sle(toy.agents(), Objective(), alpha=1.0), toy.batch()),
        run_step(sll(toy.agents(), Objective(), samples=5), toy.batch()),
    )


def test_sll_me_with_weight_0_equals_sll(toy):
    plain, unweighted, weighted = (
        run_step(method, toy.batch())
        for method in (
            sll(toy.agents(), Objective()),
            sll_me(toy.agents(), Objective(), weight=0.0),
            sll_me(toy.agents(), Objective(), weight=0.3),
        )
    )
    assert_equal_gradients(unweighted, plain)
    torch.testing.assert_close(weighted[0]["naturalness"], plain[0]["naturalness"], atol=0, rtol=0)
    assert any(not torch.equal(*pair) for pair in zip(weighted[1], plain[1], strict=True))


def test_equation_16_by_hand(toy):
    """Loss and gradient equal a sum that is computed sample by sample.

    The code averages over tokens, and the paper averages over captions.
    """
    agents, batch, alpha, s = make_peaked_agents(toy), toy.batch(), 0.6, 3
    losses, gradients = run_step(sll_sle(agents, Objective(), alpha=alpha, samples=s, scale=1.0), batch)
    speaker = agents.speaker
    rollouts = StepRollouts(speaker, batch, seed=3)
    message, greedy = rollouts.get_message(Multinomial(s)), rollouts.get_message(Greedy())
    rewards = toy.cider(message.tokens, message.images).tolist()
    baselines = toy.cider(greedy.tokens, greedy.images).tolist()
    total = torch.zeros(())
    for image in range(len(batch)):
        rows = range(image * s, image * s + s)
        pairs = {(j, k): compute_pair_distance(message, j, k, batch) for j in rows for k in rows}
        mean = sum(pairs.values()) / s**2
        for j in rows:
            log_p = message.log_probs[j].sum()
            precision = (rewards[j] - baselines[image]) / 10 * log_p
            diversity = 2 / s * sum(pairs[j, k] - mean for k in rows) * log_p
            total = total - (alpha * precision + (1 - alpha) * diversity)
    total = total / message.mask.sum()
    torch.testing.assert_close(sum(losses.values()), total)
    assert losses["exploration"].abs() > 1e-3
    expected_gradients = torch.autograd.grad(total, list(speaker.parameters()))
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected)


def compute_pair_distance(message, j: int, k: int, batch) -> float:
    """Return the distance d(j, k): twice the mean distance of j to the set {j, k}, since d(j, j) = 0."""
    pair = replace(message, tokens=message.tokens[[j, k]], samples=2)
    return 2 * float(SetDistance()(pair, batch)[0])


def test_the_maximum_entropy_loss_by_hand(toy):
    agents, batch = toy.agents(), toy.batch()
    losses, _ = run_step(sll_me(agents, Objective(), weight=0.01), batch)
    message = StepRollouts(agents.speaker, batch, seed=3).get_message(Multinomial(entropies=True))
    torch.testing.assert_close(losses["entropy"], -0.01 * message.entropies[message.mask].mean())
    assert 1 < message.entropies[message.mask].mean() < torch.tensor(13.0).log()


def test_the_scale_multiplies_only_the_loss_of_naturalness(toy):
    ten, one = (run_step(sll_sle(toy.agents(), Objective(), scale=scale), toy.batch())[0] for scale in (10.0, 1.0))
    torch.testing.assert_close(ten["naturalness"], 10 * one["naturalness"])
    assert torch.equal(ten["exploration"], one["exploration"])


def test_exploration_makes_captions_differ(toy):
    """Training on the distance alone raises the mean distance of an image's captions."""
    method = sll_sle(make_peaked_agents(toy), Objective(), alpha=0.0)
    adam = torch.optim.Adam(method.agents["speaker"].parameters(), lr=0.05)
    distances = []
    for number in range(20):
        method.freeze(number)
        losses, report = method.step(toy.batch(number), seed=1)
        distances.append(float(report["exploration/score"]))
        adam.zero_grad()
        sum(losses.values()).backward()
        adam.step()
    assert sum(distances[-5:]) > sum(distances[:5]) + 0.5


def test_sll_sle_rejects_fewer_than_three_samples(toy):
    with pytest.raises(UserError, match="sll_sle: expected 3 samples or more per image, got 2"):
        sll_sle(toy.agents(), Objective(), samples=2)


def test_a_mixed_reward_replaces_cider_by_hand(toy):
    """The reward is 2 · ROUGE-L + 0.5 · CIDEr; pycocoevalcap computes ROUGE-L of words and EOS."""
    agents, batch = toy.agents(), toy.batch()
    losses, _ = run_step(sll(agents, Objective(), samples=2, reward={"ROUGE-L": 2.0, "CIDEr": 0.5}), batch)
    rollouts = StepRollouts(agents.speaker, batch, seed=3)
    message, greedy = rollouts.get_message(Multinomial(2)), rollouts.get_message(Greedy())

    def compute_reward(message, row: int) -> float:
        image = int(message.images[row])
        generated = [str(word) for word in cut_after_eos(message.tokens[row].tolist())]
        human = [
            [str(word) for word in cut_after_eos((words + [0] * STEPS)[:STEPS])] for words in toy.references[image]
        ]
        rouge = Rouge().calc_score([" ".join(generated)], [" ".join(words) for words in human])
        return 2 * rouge + 0.5 * float(toy.cider(message.tokens[row : row + 1], message.images[row : row + 1]))

    total = torch.zeros(())
    for row in range(len(message)):
        advantage = compute_reward(message, row) - compute_reward(greedy, int(message.images[row]))
        total = total - advantage * message.log_probs[row].sum()
    torch.testing.assert_close(losses["naturalness"], total / message.mask.sum())


def cut_after_eos(words: list[int]) -> list[int]:
    """Return the words up to and including the first EOS."""
    return words[: words.index(0) + 1] if 0 in words else words


def test_the_default_weights_are_those_of_the_paper(toy):
    """Chen and Jin (2020) use the entropy weight .01, and α = .75 with five samples."""
    weights = {make: make(toy.agents(), Objective()).weights for make in (sll_me, sll_sle)}
    assert weights == {
        sll_me: {"naturalness": 1.0, "entropy": 0.01},
        sll_sle: {"naturalness": 0.75, "exploration": 0.5},
    }
    channels = {term.estimator.channel for term in sll_sle(toy.agents(), Objective()).terms}
    assert channels == {Multinomial(5)}
