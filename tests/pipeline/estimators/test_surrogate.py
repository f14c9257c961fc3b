import pytest
import torch

from pipeline.channels.hard import Multinomial
from pipeline.channels.teacher_forcing import ForcedPrefix, PrefixSchedule, TeacherForcing
from pipeline.estimators.baselines import SelfCritical
from pipeline.estimators.rollouts import StepRollouts, make_human_message
from pipeline.estimators.surrogate import Detached, NoBaseline, ScoreFunction, build_surrogate
from pipeline.models.unroll import generate
from pipeline.scores.discriminability import Hinge
from pipeline.types import Message, make_caption_mask


def test_the_surrogate_by_hand():
    tokens = torch.tensor([[1, 0], [2, 3]])
    log_probs = torch.tensor([[-1.0, -2.0], [-0.5, -0.25]], requires_grad=True)
    message = Message(tokens, make_caption_mask(tokens), torch.arange(2), 1, log_probs)
    value = torch.tensor([0.3, -0.7], requires_grad=True)
    advantage = torch.tensor([2.0, -1.0])
    # −mean(.3, −.7) − [2·(−1 −2) − 1·(−.5 −.25)] / 4 words
    loss, report = build_surrogate(value, message, advantage)
    assert loss.item() == pytest.approx(0.2 - (-6.0 + 0.75) / 4)
    assert build_surrogate(value, message, advantage, "sum")[0].item() == pytest.approx(0.4 - (-6.0 + 0.75) / 4)
    assert report["words"] == 2
    assert report["score"].item() == pytest.approx(-0.2)
    loss.backward()
    torch.testing.assert_close(log_probs.grad, torch.tensor([[-0.5, -0.5], [0.25, 0.25]]))
    torch.testing.assert_close(value.grad, torch.tensor([-0.5, -0.5]))


def test_scores_that_are_sums_over_words_are_averaged_over_them_by_hand():
    tokens = torch.tensor([[1, 0, 0], [2, 3, 0]])
    message = Message(tokens, make_caption_mask(tokens), torch.arange(2), 1)
    value = torch.tensor([1.5, -0.5], requires_grad=True)
    loss, _ = build_surrogate(value, message, reduction="words")
    loss.backward()
    assert loss.item() == pytest.approx(-1.0 / 5)
    torch.testing.assert_close(value.grad, torch.full((2,), -0.2))


def test_words_after_the_end_have_no_weight():
    tokens = torch.tensor([[1, 0, 0], [2, 3, 0]])
    log_probs = torch.tensor([[-1.0, -2.0, 0.0], [-0.5, -0.25, -3.0]], requires_grad=True)
    message = Message(tokens, make_caption_mask(tokens), torch.arange(2), 1, log_probs)
    build_surrogate(torch.ones(2), message, torch.ones(2))[0].backward()
    assert log_probs.grad[0, 2] == 0
    torch.testing.assert_close(log_probs.grad[1], torch.full((3,), -0.2))


def test_equal_channels_share_one_rollout(toy):
    rollouts = StepRollouts(toy.agents().speaker, toy.batch(), seed=1)
    assert rollouts.get_message(Multinomial()) is rollouts.get_message(Multinomial(samples=1))
    assert rollouts.get_message(Multinomial()) is not rollouts.get_message(Multinomial(samples=2))


def test_captions_depend_on_seed_step_and_channel_alone(toy):
    speaker = toy.agents().speaker

    def generate_tokens(seed=1, step=0, first=None):
        rollouts = StepRollouts(speaker, toy.batch(step), seed)
        if first is not None:
            rollouts.get_message(first)
        tokens = rollouts.get_message(Multinomial(samples=4)).tokens
        return torch.nn.functional.pad(tokens, (0, 6 - tokens.shape[1]))

    assert torch.equal(generate_tokens(), generate_tokens(first=Multinomial()))
    assert not torch.equal(generate_tokens(), generate_tokens(seed=2))
    assert not torch.equal(generate_tokens(), generate_tokens(step=1))
    rollouts = StepRollouts(speaker, toy.batch(), seed=1)
    channels = (Multinomial(), ForcedPrefix(PrefixSchedule(0)))  # both draw every token, from separate streams
    assert not torch.equal(*(rollouts.get_message(channel).tokens for channel in channels))


def test_a_caption_first_requested_by_a_baseline_has_a_gradient(toy):
    agents = toy.agents()
    rollouts = StepRollouts(agents.speaker, toy.batch(), seed=1)
    with torch.no_grad():
        first = rollouts.get_message(TeacherForcing())
    assert first.log_probs.requires_grad
    assert rollouts.get_message(TeacherForcing(requires_grad=False)).log_probs is None


def test_greedy_decodes_without_dropout_and_leaves_the_training_mode(toy):
    from pipeline.channels.hard import Greedy

    agents = toy.agents(dropout=0.9)
    agents.speaker.train()
    rollouts = StepRollouts(agents.speaker, toy.batch(), seed=1)
    torch.manual_seed(0)
    greedy = rollouts.get_message(Greedy())
    assert agents.speaker.training
    agents.speaker.eval()
    expected = generate(agents.speaker, toy.batch(), Greedy(), torch.Generator())
    assert torch.equal(greedy.tokens, expected.tokens)
    assert greedy.log_probs is None


def test_no_baseline_is_0_and_the_ground_truths_baseline_is_the_score_of_human_captions(toy):
    agents = toy.agents()
    rollouts, score = StepRollouts(agents.speaker, toy.batch(), seed=1), Hinge(agents.listener)
    assert not NoBaseline()(torch.arange(16.0), score, rollouts).any()
    truth = score(make_human_message(rollouts.batch), rollouts.batch)
    found = SelfCritical(TeacherForcing(requires_grad=False))(torch.arange(8.0), score, rollouts)
    torch.testing.assert_close(found, truth)


def test_the_greedy_hinge_is_among_greedy_captions(toy):
    """Luo 2018: the baseline's distractor captions are the other greedy captions, not the samples."""
    agents = toy.agents()
    rollouts = StepRollouts(agents.speaker, toy.batch(), seed=1)
    score = Hinge(agents.listener)
    _, report = ScoreFunction(Multinomial(), SelfCritical()).surrogate(score, rollouts)
    sampled = score(rollouts.get_message(Multinomial()), rollouts.batch)
    greedy = score(rollouts.get_message(SelfCritical().channel), rollouts.batch)
    torch.testing.assert_close(report["advantage"], (sampled - greedy).mean().detach())


def test_detached_gives_the_speaker_no_gradient(toy):
    agents = toy.agents()
    loss, _ = Detached(Multinomial()).surrogate(Hinge(agents.listener), StepRollouts(agents.speaker, toy.batch(), 1))
    loss.backward()
    assert all(p.grad is None for p in agents.speaker.parameters())
    assert agents.listener.image.weight.grad.any()


def test_reports_hold_no_graph():
    tokens = torch.tensor([[1, 0], [2, 3]])
    log_probs = torch.tensor([[-1.0, -2.0], [-0.5, -0.25]], requires_grad=True)
    message = Message(tokens, make_caption_mask(tokens), torch.arange(2), 1, log_probs)
    value = torch.tensor([0.3, -0.7], requires_grad=True)
    for advantage in (value - 0.1, value.unsqueeze(1).expand(2, 2)):
        _, report = build_surrogate(value, message, advantage)
        assert not any(number.requires_grad for number in report.values())
