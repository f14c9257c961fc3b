"""Random draws depend on stated names, not on a channel's repr."""

import dataclasses

import pytest
import torch

from pipeline.channels.corrupted import CorruptedCaptions
from pipeline.channels.hard import BanToken, Beam, Greedy, Multinomial, TemperatureScaling
from pipeline.channels.partial import PartialSampling
from pipeline.channels.search import NoRepeatNgram, SearchTrajectory
from pipeline.channels.straight_through import Gumbel, GumbelRao, ReinMax, StraightThrough
from pipeline.channels.teacher_forcing import (
    ForcedPrefix,
    PrefixRollouts,
    PrefixSchedule,
    ScheduledSampling,
    TeacherForcing,
)
from pipeline.estimators.rollouts import StepRollouts

CHANNELS = [
    Multinomial(2),
    Greedy(),
    Beam(3),
    StraightThrough(2),
    Gumbel(temperature=0.7),
    ReinMax(),
    GumbelRao(k=3),
    PartialSampling(Gumbel(2), 0.5),
    TeacherForcing(ScheduledSampling(0, 1, 0.5, 0.5)),
    ForcedPrefix(PrefixSchedule(2)),
]


def add_option(channel):
    """Return `channel` as an instance of a subclass of the same name with one more option, which has a default."""
    base = type(channel)
    field = ("extra", int, dataclasses.field(default=1))
    extended = dataclasses.make_dataclass(base.__name__, [field], bases=(base,), frozen=True)
    return extended(**{f.name: getattr(channel, f.name) for f in dataclasses.fields(channel)})


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: type(channel).__name__)
def test_one_more_option_with_a_default_changes_no_caption(toy, channel):
    extended = add_option(channel)
    assert repr(extended) != repr(channel)
    assert extended.rng_key == channel.rng_key  # the captions of Greedy, Beam and TeacherForcing do not depend on it
    speaker = toy.agents(dropout=0.3).speaker.train()
    generated = [StepRollouts(speaker, toy.batch(), 1).get_message(each).tokens for each in (channel, extended)]
    assert torch.equal(*generated)


def test_channels_with_different_draws_have_different_streams():
    assert len({channel.rng_key for channel in CHANNELS}) == len(CHANNELS)
    assert PartialSampling(Gumbel(2), 0.5).rng_key != PartialSampling(Gumbel(2), 0.25).rng_key
    assert Multinomial(2, entropies=True).rng_key == Multinomial(2).rng_key


def test_a_stream_key_keeps_the_original_names_of_classes_and_options():
    """With another key, a channel draws other numbers, and recorded results cannot be repeated."""
    keys = {
        PartialSampling(StraightThrough(), 0.25): (
            "PartialSampling(inner=StraightThrough(samples=1, ending='constant'), rho=0.25, mix='token', "
            "feed='distribution')"
        ),
        SearchTrajectory(
            NoRepeatNgram(Beam(3), 2)
        ): "Reread(channel=Unrepeated(channel=Beam(width=3, samples=1), n=2))",
        BanToken(Multinomial(2), 5): "Without(channel=Multinomial(samples=2), word=5)",
        TemperatureScaling(Multinomial(2), 0.5): "Tempered(channel=Multinomial(samples=2), temperature=0.5)",
        TeacherForcing(requires_grad=False): "Forced(scheduled=None, learns=False)",
        ForcedPrefix(PrefixSchedule(3)): "Prompted(words=Annealed(start=3, every=1, by=4))",
        PrefixRollouts(2, 4): "Continued(each=2, places=4)",
        CorruptedCaptions(): "Broken()",
    }
    assert {channel: channel.rng_key for channel in keys} == keys
