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


def peaked_agents(toy):
    """Return agents whose speaker prefers two words, so that its captions resemble each other."""
    agents = toy.agents()
    with torch.no_grad():
        agents.speaker.logit.bias[1:3] += 4
    return agents


def step(method, batch, seed: int = 3):
    """Return losses by name and the gradients of their sum."""
    method.freeze(batch.step)
    losses, _ = method.step(batch, seed)
    gradients = torch.autograd.grad(sum(losses.values()), list(method.agents["speaker"].parameters()))
    return losses, gradients


def same(left, right) -> None:
    for one, other in zip(left[1], right[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-5)


def test_all_weight_on_precision_is_sequence_level_learning(toy):
    same(
        step(sll_sle(toy.agents(), Objective(), alpha=1.0), toy.batch()),
        step(sll(toy.agents(), Objective(), samples=5), toy.batch()),
    )


def test_an_entropy_weight_of_0_is_sequence_level_learning(toy):
    plain, none, some = (
        step(method, toy.batch())
        for method in (
            sll(toy.agents(), Objective()),
            sll_me(toy.agents(), Objective(), weight=0.0),
            sll_me(toy.agents(), Objective(), weight=0.3),
        )
    )
    same(none, plain)
    torch.testing.assert_close(some[0]["naturalness"], plain[0]["naturalness"], atol=0, rtol=0)
    assert any(not torch.equal(*pair) for pair in zip(some[1], plain[1], strict=True))


def test_equation_16_by_hand(toy):
    """Loss and gradient written out sample by sample; ours is a mean over words, the paper's over captions."""
    agents, batch, alpha, s = peaked_agents(toy), toy.batch(), 0.6, 3
    losses, gradients = step(sll_sle(agents, Objective(), alpha=alpha, samples=s, scale=1.0), batch)
    speaker = agents.speaker
    rollouts = StepRollouts(speaker, batch, seed=3)
    message, greedy = rollouts.of(Multinomial(s)), rollouts.of(Greedy())
    delta = toy.cider(message.tokens, message.images).tolist()
    expected = toy.cider(greedy.tokens, greedy.images).tolist()
    total = torch.zeros(())
    for image in range(len(batch)):
        rows = range(image * s, image * s + s)
        pairs = {(j, k): pair_distance(message, j, k, batch) for j in rows for k in rows}
        mean = sum(pairs.values()) / s**2
        for j in rows:
            log_p = message.log_probs[j].sum()
            precision = (delta[j] - expected[image]) / 10 * log_p
            diversity = 2 / s * sum(pairs[j, k] - mean for k in rows) * log_p
            total = total - (alpha * precision + (1 - alpha) * diversity)
    total = total / message.mask.sum()
    torch.testing.assert_close(sum(losses.values()), total)
    assert losses["exploration"].abs() > 1e-3
    expectation = torch.autograd.grad(total, list(speaker.parameters()))
    for found, other in zip(gradients, expectation, strict=True):
        torch.testing.assert_close(found, other)


def pair_distance(message, j: int, k: int, batch) -> float:
    """Return d(j, k) alone: twice the mean distance in a set of two, of which one is j itself."""
    two = replace(message, tokens=message.tokens[[j, k]], samples=2)
    return 2 * float(SetDistance()(two, batch)[0])


def test_the_maximum_entropy_loss_by_hand(toy):
    agents, batch = toy.agents(), toy.batch()
    losses, _ = step(sll_me(agents, Objective(), weight=0.01), batch)
    message = StepRollouts(agents.speaker, batch, seed=3).of(Multinomial(entropies=True))
    torch.testing.assert_close(losses["entropy"], -0.01 * message.entropies[message.mask].mean())
    assert 1 < message.entropies[message.mask].mean() < torch.tensor(13.0).log()


def test_the_scale_multiplies_precision_alone(toy):
    ten, one = (step(sll_sle(toy.agents(), Objective(), scale=scale), toy.batch())[0] for scale in (10.0, 1.0))
    torch.testing.assert_close(ten["naturalness"], 10 * one["naturalness"])
    assert torch.equal(ten["exploration"], one["exploration"])


def test_exploration_makes_captions_differ(toy):
    """Train a speaker on the distance alone; its captions then differ more."""
    method = sll_sle(peaked_agents(toy), Objective(), alpha=0.0)
    adam = torch.optim.Adam(method.agents["speaker"].parameters(), lr=0.05)
    found = []
    for number in range(20):
        method.freeze(number)
        losses, report = method.step(toy.batch(number), seed=1)
        found.append(float(report["exploration/score"]))
        adam.zero_grad()
        sum(losses.values()).backward()
        adam.step()
    assert sum(found[-5:]) > sum(found[:5]) + 0.5


def test_two_samples_are_too_few(toy):
    with pytest.raises(UserError, match="sll_sle: expected samples of 3 or more, got 2"):
        sll_sle(toy.agents(), Objective(), samples=2)


def test_another_reward_takes_the_place_of_cider_by_hand(toy):
    """ROUGE-L by pycocoevalcap, of words and EOS, caption by caption."""
    agents, batch = toy.agents(), toy.batch()
    losses, _ = step(sll(agents, Objective(), samples=2, reward={"ROUGE-L": 2.0, "CIDEr": 0.5}), batch)
    rollouts = StepRollouts(agents.speaker, batch, seed=3)
    message, greedy = rollouts.of(Multinomial(2)), rollouts.of(Greedy())

    def worth(message, row: int) -> float:
        image = int(message.images[row])
        generated = [str(word) for word in with_end(message.tokens[row].tolist())]
        human = [[str(word) for word in with_end((one + [0] * STEPS)[:STEPS])] for one in toy.references[image]]
        rouge = Rouge().calc_score([" ".join(generated)], [" ".join(words) for words in human])
        return 2 * rouge + 0.5 * float(toy.cider(message.tokens[row : row + 1], message.images[row : row + 1]))

    total = torch.zeros(())
    for row in range(len(message)):
        advantage = worth(message, row) - worth(greedy, int(message.images[row]))
        total = total - advantage * message.log_probs[row].sum()
    torch.testing.assert_close(losses["naturalness"], total / message.mask.sum())


def with_end(words: list[int]) -> list[int]:
    """Return the words up to the EOS, with it."""
    return words[: words.index(0) + 1] if 0 in words else words


def test_the_defaults_weigh_exploration_as_the_paper_does(toy):
    """Chen and Jin 2020: .01 times the entropy, and α = .75 with five samples."""
    weights = {make: make(toy.agents(), Objective()).weights for make in (sll_me, sll_sle)}
    assert weights == {
        sll_me: {"naturalness": 1.0, "entropy": 0.01},
        sll_sle: {"naturalness": 0.75, "exploration": 0.5},
    }
    channels = {term.estimator.channel for term in sll_sle(toy.agents(), Objective()).terms}
    assert channels == {Multinomial(5)}
