"""Methods of visual dialog: each loss written out from the answers that the generator gives (Lu et al. 2017)."""

import pytest
import torch
from by_hand import assert_same_gradients, likelihood_loss, losses_of
from small_dialogs import batch, discriminator, generator
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

PASSED = {"rho": 0.6, "mix": "token", "feed": "sample"}
# method, its options, the channel that the preference crosses, α
THROUGH = [
    (g_dis, {}, Gumbel(temperature=0.5), 0.5),
    (g_dis, {"alpha": 0.2, "temperature": 0.9}, Gumbel(temperature=0.9), 0.2),
    (g_psst, {}, PartialSampling(StraightThrough(), 0.25), 0.5),
    (g_psst, {"alpha": 0.2, **PASSED}, PartialSampling(StraightThrough(), 0.6, "token", "sample"), 0.2),
    (g_reinmax, {}, ReinMax(temperature=1.0), 0.5),
    (g_reinmax, {"alpha": 0.2, "temperature": 0.9}, ReinMax(temperature=0.9), 0.2),
    (gan1, {}, Gumbel(temperature=0.5), 0.5),
    (gan1, {"alpha": 0.2, "temperature": 0.9}, Gumbel(temperature=0.9), 0.2),
    (gan2, {}, Gumbel(temperature=0.5), 0.5),
    (gan2, {"alpha": 0.2, "temperature": 0.9}, Gumbel(temperature=0.9), 0.2),
]
NAMES = [f"{method.__name__}-{len(options)}" for method, options, *_ in THROUGH]


@pytest.fixture
def agents() -> DialogAgents:
    return DialogAgents(generator(), discriminator(encode_eos=True))


def gain(model, message, given) -> torch.Tensor:
    """Return (N,): the discriminator's score of a message's answers minus that of the human answers."""
    encoding = model.encode_question(given)[message.images]
    return (encoding * (model.encode_text(message) - model.encode_answers(given.captions)[message.images])).sum(1)


def cross_entropy(agents, generated) -> torch.Tensor:
    message = generated.of(TeacherForcing())
    return -message.log_probs[message.mask].mean()


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(("make", "options", "channel", "alpha"), THROUGH, ids=NAMES)
def test_the_generators_loss_is_the_preference_through_its_tokens_plus_likelihood(
    agents, make, options, channel, alpha, reduction
):
    """Eq. 5, log σ(s(said) − s(human)), through the relaxed answer, and α · cross-entropy of the human answer."""
    given = batch()
    losses = losses_of(make(agents, Objective(reduction=reduction), **options), given)
    assert set(losses) == {"discriminability", "likelihood"}
    generated = StepRollouts(agents.speaker, given, seed=1)
    value = -torch.log1p((-gain(agents.listener, generated.of(channel), given)).exp())
    expected = -(value.sum() if reduction == "sum" else value.mean())
    assert_same_gradients(losses["discriminability"], expected, agents.speaker)
    assert_same_gradients(losses["likelihood"], alpha * cross_entropy(agents, generated), agents.speaker)
    assert not any(p.requires_grad for p in agents.listener.parameters())


@pytest.mark.parametrize("make", [g_more, g_dis, g_psst, g_reinmax, g_rloo, gan1, gan2])
def test_a_generator_may_start_from_the_discriminators_encoder(agents, make):
    given, own = batch(), {name: value.clone() for name, value in agents.speaker.inner.state_dict().items()}
    speaker, listener = agents.speaker.eval(), agents.listener.eval()
    make(agents, Objective(), encoder="own")
    assert not torch.allclose(speaker.encoder(given, speaker.word)[:, 0], listener.encode_question(given))
    make(agents, Objective(), encoder="discriminator")
    torch.testing.assert_close(speaker.encoder(given, speaker.word)[:, 0], listener.encode_question(given))
    changed = {name for name, value in speaker.inner.state_dict().items() if not torch.equal(value, own[name])}
    assert changed == {"word.weight"}  # the decoder stays
    with pytest.raises(UserError, match="the speaker's encoder and the listener's differ in type or size"):
        make(DialogAgents(generator("lf"), listener), Objective(), encoder="discriminator")
    with pytest.raises(UserError, match="the same encoder, layer_norm, region_positions, round_positions, word_dim"):
        make(DialogAgents(generator(order=True), listener), Objective(), encoder="discriminator")


@pytest.mark.parametrize("make", [g_dis, g_psst, g_reinmax, gan1, gan2])
def test_the_channel_takes_eos_gradient_from_the_objective(agents, make):
    with torch.no_grad():
        agents.speaker.logit.bias[0] = 9.0  # answers end at once: all the gradient there is, is the end's
    for ending, zero in (("constant", True), ("soft", False)):
        losses = losses_of(make(agents, Objective(eos_gradient=ending)), batch())
        assert_same_gradients(losses["discriminability"], losses["discriminability"], agents.speaker, zero=zero)


def test_g_dis_subtracts_the_norm_of_the_generated_answer(agents):
    given = batch()
    losses = losses_of(g_dis(agents, Objective(reduction="mean"), norms=0.3), given)
    message = StepRollouts(agents.speaker, given, seed=1).of(Gumbel(temperature=0.5))
    value = F.logsigmoid(gain(agents.listener, message, given))
    size = agents.listener.encode_text(message).square().sum(1)
    assert_same_gradients(losses["discriminability"], -(value - 0.3 * size).mean(), agents.speaker)


@pytest.mark.parametrize(("options", "samples", "alpha"), [({}, 4, 0.5), ({"samples": 3, "alpha": 0.2}, 3, 0.2)])
def test_g_rloo_compares_each_sample_with_the_others_of_its_question(agents, options, samples, alpha):
    given = batch()
    losses = losses_of(g_rloo(agents, Objective(), **options), given)
    generated = StepRollouts(agents.speaker, given, seed=1)
    message = generated.of(Multinomial(samples))
    value = F.logsigmoid(gain(agents.listener, message, given)).detach().view(-1, samples)
    advantage = value - torch.stack(
        [value[:, [k for k in range(samples) if k != j]].mean(1) for j in range(samples)], 1
    )
    assert_same_gradients(losses["discriminability"], likelihood_loss(advantage.flatten(), message), agents.speaker)
    assert_same_gradients(losses["likelihood"], alpha * cross_entropy(agents, generated), agents.speaker)


@pytest.mark.parametrize("temperature", [0.5, 0.9])
def test_gan1s_discriminator_loss_is_the_preference_for_the_human_answer(agents, temperature):
    """log(1 + exp(s(said) − s(human))) in its own turn, 0 where the generator says the human answer."""
    given = batch(step=1)
    method = gan1(agents, Objective(), temperature=temperature)
    losses = losses_of(method, given)
    assert set(losses) == {"listening"}
    message = StepRollouts(agents.speaker.eval(), given, seed=1).of(Gumbel(temperature=temperature)).detach()
    width = message.tokens.shape[1]
    differs = (message.tokens != given.captions[:, :width]).any(1) | given.captions[:, width:].any(1)
    expected = (torch.log1p(gain(agents.listener, message, given).exp()) * differs).mean()
    assert_same_gradients(losses["listening"], expected, agents.listener)
    assert [method.schedule.learners(step) for step in range(4)] == [{"speaker"}, {"listener"}] * 2


@pytest.mark.parametrize("temperature", [0.5, 0.9])
def test_gan2s_discriminator_loss_has_all_candidates_and_the_generated_answer(agents, temperature):
    given = batch(step=1)
    method = gan2(agents, Objective(), temperature=temperature)
    losses = losses_of(method, given)
    assert set(losses) == {"listening"}
    message = StepRollouts(agents.speaker.eval(), given, seed=1).of(Gumbel(temperature=temperature)).detach()
    model, width = agents.listener, message.tokens.shape[1]
    differs = (message.tokens != given.captions[:, :width]).any(1) | given.captions[:, width:].any(1)
    encoding = model.encode_question(given)
    scores = (encoding * model.encode_text(message)).sum(1).masked_fill(~differs, -torch.inf)
    candidates = (encoding @ model.encode_answers(given.rounds.answers).T).gather(1, given.rounds.options)
    expected = F.cross_entropy(torch.cat([candidates, scores.unsqueeze(1)], 1), given.rounds.truth)
    assert_same_gradients(losses["listening"], expected, model)
    assert [method.schedule.learners(step) for step in range(4)] == [{"speaker"}, {"listener"}] * 2


def test_the_control_is_trained_by_likelihood_alone(agents):
    given = batch()
    method = g_more(agents, Objective())
    losses = losses_of(method, given)
    assert set(losses) == {"likelihood"}
    generated = StepRollouts(agents.speaker, given, seed=1)
    assert_same_gradients(losses["likelihood"], cross_entropy(agents, generated), agents.speaker)
    assert method.schedule.all_roles == {"speaker"}
    assert method.agents == agents.roles


@pytest.mark.parametrize("make", [g_dis, g_psst, g_reinmax, g_rloo, gan1, gan2])
def test_alpha_0_drops_the_likelihood_term(agents, make):
    assert set(losses_of(make(agents, Objective(), alpha=0.0), batch())) == {"discriminability"}
