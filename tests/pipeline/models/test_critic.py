"""The critic and RELAX's control variate equal computations by hand."""

import pytest
import torch

from pipeline.models.critic import ControlVariate, Critic


def test_a_critic_is_an_mlp_with_one_hidden_layer():
    critic = Critic(2, 3)
    with torch.no_grad():
        critic.inner.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
        critic.inner.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
        critic.outer.weight.copy_(torch.tensor([[2.0, 3.0, 5.0]]))
        critic.outer.bias.fill_(0.5)
    found = critic(torch.tensor([[[1.0, 2.0], [-3.0, 1.0]]]))
    assert found.tolist() == [[2 * 1 + 3 * 3 + 0.5, 3 * 2 + 5 * 2 + 0.5]]


def test_a_control_variate_is_initially_0_and_takes_the_softmax_at_its_temperature():
    torch.manual_seed(0)
    control = ControlVariate(2, 3, 4)
    states, perturbed = torch.randn(5, 2), torch.randn(5, 3)
    assert control(states, perturbed).tolist() == [0.0] * 5
    with torch.no_grad():
        control.outer.weight.fill_(1.0)
        control.outer.bias.fill_(0.5)
        control.log_temperature.fill_(0.7)
    weights = torch.exp(perturbed / torch.exp(torch.tensor(0.7)))
    word = weights / weights.sum(1, keepdim=True)
    hidden = states @ control.from_state.weight.T + control.from_state.bias + word @ control.from_word.weight.T
    torch.testing.assert_close(control(states, perturbed), hidden.clamp(min=0).sum(1) + 0.5)
    torch.testing.assert_close(control(states, perturbed + 3), control(states, perturbed))
    assert control.from_word.bias is None
    assert float(control(states, 9 * perturbed)[0].detach()) != pytest.approx(
        float(control(states, perturbed)[0].detach())
    )
