"""Methods of visual dialog: each loss is written out from the generated answers (Lu et al. 2017)."""

import pytest
import torch
from expected_losses import assert_same_gradients, compute_likelihood_loss, compute_losses
from small_dialogs import make_batch, make_discriminator, make_generator
from torch.nn import functional as F

from pipeline.channels.hard import Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import Gumbel, ReinMax, StraightThrough
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.objective import Objective
from pipeline.dialog.composition.dialog_agents import DialogAgents
from pipeline.dialog.methods.visual_dialog import g_dis, g_more, g_psst, g_reinmax, g_rloo, gan1, gan2
from pipeline.errors import UserError
from pipeline.estimators.rollouts import StepRollouts

PARTIAL_OPTIONS = {"rho": 0.6, "mix": "caption", "feed": "sample"}
# Each entry has the method, its options, the channel of the preference term, and α.
RELAXED_METHODS = [
    (g_dis, {}, Gumbel(temperature=0.5), 0.5),
    (g_dis, {"alpha": 0.2, "temperature": 0.9}, Gumbel(temperature=0.9), 0.2),
    (g_psst, {}, PartialSampling(StraightThrough(), 0.75), 0.5),
    (g_psst, {"alpha": 0.2, **PARTIAL_OPTIONS}, PartialSampling(StraightThrough(), 0.6, "caption", "sample"), 0.2),
    (g_reinmax, {}, ReinMax(temperature=1.0), 0.5),
    (g_reinmax, {"alpha": 0.2, "temperature": 0.9}, ReinMax(temperature=0.9), 0.2),
    (gan1, {}, Gumbel(temperature=0.5), 0.5),
    (gan1, {"alpha": 0.2, "temperature": 0.9}, Gumbel(temperature=0.9), 0.2),
    (gan2, {}, Gumbel(temperature=0.5), 0.5),
    (gan2, {"alpha": 0.2, "temperature": 0.9}, Gumbel(temperature=0.9), 0.2),
]
NAMES = [f"{method.__name__}-{len(options)}" for method, options, *_ in RELAXED_METHODS]


@pytest.fixture
def agents() -> DialogAgents:
    return DialogAgents(make_generator(), make_discriminator(encode_eos=True))


def compute_gain(model, message, batch) -> torch.Tensor:
    """Return (N,): the discriminator's score of a message's answers minus that of the human answers."""
    encoding = model.encode_question(batch)[message.images]
    return (encoding * (model.encode_text(message) - model.encode_answers(batch.captions)[message.images])).sum(1)


def cross_entropy(agents, generated) -> torch.Tensor:
    message = generated.get_message(TeacherForcing())
    return -message.log_probs[message.mask].mean()


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(("make", "options", "channel", "alpha"), RELAXED_METHODS, ids=NAMES)
def test_the_generators_loss_is_the_preference_through_its_tokens_plus_likelihood(
    agents, make, options, channel, alpha, reduction
):
    """The losses are −log σ(s(relaxed answer) − s(human answer)), Eq. 5, and α · cross-entropy of the human answer."""
    batch = make_batch()
    losses = compute_losses(make(agents, Objective(reduction=reduction), **options), batch)
    assert set(losses) == {"discriminability", "likelihood"}
    generated = StepRollouts(agents.speaker, batch, seed=1)
    value = -torch.log1p((-compute_gain(agents.listener, generated.get_message(channel), batch)).exp())
    expected = -(value.sum() if reduction == "sum" else value.mean())
    assert_same_gradients(losses["discriminability"], expected, agents.speaker)
    assert_same_gradients(losses["likelihood"], alpha * cross_entropy(agents, generated), agents.speaker)
    assert not any(p.requires_grad for p in agents.listener.parameters())


@pytest.mark.parametrize("make", [g_more, g_dis, g_psst, g_reinmax, g_rloo, gan1, gan2])
def test_a_generator_may_start_from_the_discriminators_encoder(agents, make):
    batch, own = make_batch(), {name: value.clone() for name, value in agents.speaker.inner.state_dict().items()}
    speaker, listener = agents.speaker.eval(), agents.listener.eval()
    make(agents, Objective(), encoder="own")
    assert not torch.allclose(speaker.encoder(batch, speaker.word)[:, 0], listener.encode_question(batch))
    make(agents, Objective(), encoder="discriminator")
    torch.testing.assert_close(speaker.encoder(batch, speaker.word)[:, 0], listener.encode_question(batch))
    changed = {name for name, value in speaker.inner.state_dict().items() if not torch.equal(value, own[name])}
    assert changed == {"word.weight"}  # the rest of the decoder is unchanged
    with pytest.raises(UserError, match="the speaker's encoder and the listener's differ in type or size"):
        make(DialogAgents(make_generator("lf"), listener), Objective(), encoder="discriminator")
    with pytest.raises(UserError, match="the same encoder, layer_norm, region_positions, round_positions, word_dim"):
        make(DialogAgents(make_generator(order=True), listener), Objective(), encoder="discriminator")


@pytest.mark.parametrize("make", [g_dis, g_psst, g_reinmax, gan1, gan2])
def test_the_channel_takes_eos_gradient_from_the_objective(agents, make):
    with torch.no_grad():
        agents.speaker.logit.bias[0] = 9.0  # every answer is EOS alone, so only EOS can pass a gradient
    for eos_gradient, zero in (("constant", True), ("soft", False)):
        losses = compute_losses(make(agents, Objective(eos_gradient=eos_gradient)), make_batch())
        assert_same_gradients(losses["discriminability"], losses["discriminability"], agents.speaker, zero=zero)


def test_g_dis_subtracts_the_norm_of_the_generated_answer(agents):
    batch = make_batch()
    losses = compute_losses(g_dis(agents, Objective(reduction="mean"), norm_penalty=0.3), batch)
    message = StepRollouts(agents.speaker, batch, seed=1).get_message(Gumbel(temperature=0.5))
    value = F.logsigmoid(compute_gain(agents.listener, message, batch))
    size = agents.listener.encode_text(message).square().sum(1)
    assert_same_gradients(losses["discriminability"], -(value - 0.3 * size).mean(), agents.speaker)


@pytest.mark.parametrize(("options", "samples", "alpha"), [({}, 4, 0.5), ({"samples": 3, "alpha": 0.2}, 3, 0.2)])
def test_g_rloo_compares_each_sample_with_the_others_of_its_question(agents, options, samples, alpha):
    batch = make_batch()
    losses = compute_losses(g_rloo(agents, Objective(), **options), batch)
    generated = StepRollouts(agents.speaker, batch, seed=1)
    message = generated.get_message(Multinomial(samples))
    value = F.logsigmoid(compute_gain(agents.listener, message, batch)).detach().view(-1, samples)
    advantage = value - torch.stack(
        [value[:, [k for k in range(samples) if k != j]].mean(1) for j in range(samples)], 1
    )
    assert_same_gradients(
        losses["discriminability"], compute_likelihood_loss(advantage.flatten(), message), agents.speaker
    )
    assert_same_gradients(losses["likelihood"], alpha * cross_entropy(agents, generated), agents.speaker)


def make_batch_with_a_human_answer(speaker, temperature: float) -> tuple:
    """Return a batch, its generated answers, and a mask of the answers that are not human: all but the first."""
    batch = make_batch(step=1)
    message = StepRollouts(speaker.eval(), batch, seed=1).get_message(Gumbel(temperature=temperature)).detach()
    width = message.tokens.shape[1]
    batch.captions[0] = F.pad(message.tokens[0], (0, batch.captions.shape[1] - width))
    differs = (message.tokens != batch.captions[:, :width]).any(1) | batch.captions[:, width:].any(1)
    assert differs.tolist() == [False] + [True] * (len(batch) - 1)
    return batch, message, differs


@pytest.mark.parametrize("temperature", [0.5, 0.9])
def test_gan1s_discriminator_loss_is_the_preference_for_the_human_answer(agents, temperature):
    """The loss is log(1 + exp(s(generated) − s(human))), and 0 where the generated answer is the human one."""
    batch, message, differs = make_batch_with_a_human_answer(agents.speaker, temperature)
    method = gan1(agents, Objective(), temperature=temperature)
    losses = compute_losses(method, batch)
    assert set(losses) == {"matching"}
    expected = (torch.log1p(compute_gain(agents.listener, message, batch).exp()) * differs).mean()
    assert_same_gradients(losses["matching"], expected, agents.listener)
    assert [method.schedule.roles(step) for step in range(4)] == [{"speaker"}, {"listener"}] * 2


@pytest.mark.parametrize("temperature", [0.5, 0.9])
def test_gan2s_discriminator_loss_has_all_candidates_and_the_generated_answer(agents, temperature):
    batch, message, differs = make_batch_with_a_human_answer(agents.speaker, temperature)
    method = gan2(agents, Objective(), temperature=temperature)
    losses = compute_losses(method, batch)
    assert set(losses) == {"matching"}
    model = agents.listener
    encoding = model.encode_question(batch)
    scores = (encoding * model.encode_text(message)).sum(1).masked_fill(~differs, -torch.inf)
    candidates = (encoding @ model.encode_answers(batch.questions.answers).T).gather(1, batch.questions.options)
    expected = F.cross_entropy(torch.cat([candidates, scores.unsqueeze(1)], 1), batch.questions.truth)
    assert_same_gradients(losses["matching"], expected, model)
    assert [method.schedule.roles(step) for step in range(4)] == [{"speaker"}, {"listener"}] * 2


def test_the_control_is_trained_by_likelihood_alone(agents):
    batch = make_batch()
    method = g_more(agents, Objective())
    losses = compute_losses(method, batch)
    assert set(losses) == {"likelihood"}
    generated = StepRollouts(agents.speaker, batch, seed=1)
    assert_same_gradients(losses["likelihood"], cross_entropy(agents, generated), agents.speaker)
    assert method.schedule.all_roles == {"speaker"}
    assert method.agents == agents.roles


@pytest.mark.parametrize("make", [g_dis, g_psst, g_reinmax, g_rloo, gan1, gan2])
def test_alpha_0_drops_the_likelihood_term(agents, make):
    assert set(compute_losses(make(agents, Objective(), alpha=0.0), make_batch())) == {"discriminability"}
