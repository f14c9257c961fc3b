import torch

from pipeline.channels.hard import Multinomial
from pipeline.estimators.rollouts import make_human_message
from pipeline.models.unroll import generate
from pipeline.scores.naturalness import CiderScore, HumanCaption


def test_cider_uses_the_references_of_the_captions_image(toy):
    batch = toy.batch()
    score = CiderScore(toy.cider)
    own = score(make_human_message(batch), batch)
    assert not score.differentiable
    # every image gets the caption of image 2
    batch.captions[:] = batch.captions[2].clone()
    same_words = score(make_human_message(batch), batch)
    assert own[2] == same_words[2]
    assert (same_words[torch.arange(8) != 2] < own[torch.arange(8) != 2]).all()


def test_each_sample_is_scored_with_the_references_of_its_image(toy):
    batch = toy.batch()
    message = generate(toy.agents().speaker, batch, Multinomial(samples=3), torch.Generator().manual_seed(0))
    expected = toy.cider(message.tokens, torch.arange(8).repeat_interleave(3))
    assert torch.equal(CiderScore(toy.cider)(message, batch), expected)


def test_the_score_of_human_captions_is_1(toy):
    assert not HumanCaption().differentiable
    assert torch.equal(HumanCaption()(make_human_message(toy.batch()), toy.batch()), torch.ones(8))
