import inspect

import torch

from pipeline.channels.hard import Multinomial
from pipeline.composition.joint import Objective
from pipeline.estimators.rollouts import StepRollouts
from pipeline.methods.spider import pg_spider
from pipeline.types import Message

CHANNEL, CONTINUATIONS = Multinomial(2), 3


def compute_credit(toy, message: Message, continued: Message) -> torch.Tensor:
    """Return (N, T): the mean CIDEr-D of a token's continuations; for the last token, the caption's own CIDEr-D."""
    continuations = continued.tokens.view(len(message), -1, CONTINUATIONS, toy.batch().captions.shape[1])
    found = torch.zeros(message.tokens.shape)
    for n, image in enumerate(message.images):
        last = int(message.mask[n].sum()) - 1
        for t in range(last):
            assert torch.equal(continuations[n, t, :, : t + 1], message.tokens[n, : t + 1].expand(CONTINUATIONS, -1))
            found[n, t] = toy.cider(continuations[n, t], image.expand(CONTINUATIONS)).mean()
        found[n, last] = toy.cider(message.tokens[n : n + 1], image[None])[0]
    return found


def test_a_token_of_pg_spider_has_the_credit_of_its_continuations(toy):
    """The losses of the speaker and of its critic (Liu et al. 2017) equal those computed token by token."""
    torch.manual_seed(0)
    objective = Objective(samples=CHANNEL.samples)
    method = pg_spider(toy.agents(), objective, 0.25, {"CIDEr": 1}, CONTINUATIONS, critic_hidden=4, critic_first=0)
    losses, _ = method.step(toy.batch(), seed=1)
    rollouts = StepRollouts(method.speaker, toy.batch(), seed=1)
    message = rollouts.get_message(CHANNEL)
    credit, mask = compute_credit(toy, message, rollouts.continue_prefixes(CHANNEL, CONTINUATIONS)), message.mask
    expected = method.agents["critic"](message.states())
    speaker_loss = -0.75 * ((credit - expected.detach()) * message.log_probs)[mask].mean()
    torch.testing.assert_close(losses["naturalness"], speaker_loss)
    torch.testing.assert_close(losses["critic"], (expected - credit)[mask].square().mean())
    weights = list(method.speaker.parameters())
    found, expectation = (torch.autograd.grad(loss, weights) for loss in (losses["naturalness"], speaker_loss))
    for left, right in zip(found, expectation, strict=True):
        torch.testing.assert_close(left, right)


def test_the_default_is_bcmr_with_three_continuations_and_no_listener():
    defaults = {name: each.default for name, each in inspect.signature(pg_spider).parameters.items()}
    assert (defaults["reward"], defaults["rollouts"], defaults["lam"]) == ("bcmr", 3, 0.0)
