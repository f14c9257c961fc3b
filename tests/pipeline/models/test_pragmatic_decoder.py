"""Pragmatic decoding equals Bayes' rule, computed by hand and over whole prefixes."""

import math
from dataclasses import replace

import pytest
import torch
from selected_rows import check_selected_rows

from pipeline.channels.hard import Beam, Greedy
from pipeline.evaluation.pragmatic_captions import PragmaticCaptions, find_nearest_in_split
from pipeline.models.pragmatic_decoder import DistractorBatches, PragmaticDecoder, compute_pragmatic_logits
from pipeline.models.unroll import generate, teacher_force
from pipeline.vocabulary import Vocabulary

ALPHA = 2.0


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.fixture
def speaker(toy, decoder):
    """Return an untrained speaker of each architecture, with logits large enough to depend on the image."""
    agent = toy.agents(decoder=decoder).speaker.eval()
    with torch.no_grad():
        agent.logit.weight *= 4
        agent.region.weight *= 4
    return agent


def shift_images(batch, rows):
    """Return the batch with the images shifted by `rows` rows."""
    rolled = {name: getattr(batch, name).roll(-rows, 0) for name in ("images", "pooled", "regions", "region_mask")}
    return replace(batch, **rolled)


def make_distractors(batch):
    mask = torch.ones(len(batch), 2, dtype=torch.bool)
    mask[3, 1] = False
    return DistractorBatches([shift_images(batch, 1), shift_images(batch, 2)], mask)


def test_the_distribution_is_bayes_rule_by_hand():
    """S0 of three words is (.5, .3, .2) for the image and (.1, .6, .3) for the distractor, whose prior is ⅓."""
    generated = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]]]).log()
    prior = torch.tensor([[math.log(2 / 3), math.log(1 / 3)]])
    posterior = torch.tensor([[1.0 / 1.1, 0.6 / 1.2, 0.4 / 0.7]])
    expected = torch.tensor([[0.5, 0.3, 0.2]]) * posterior**ALPHA
    found = compute_pragmatic_logits(generated, prior, ALPHA).softmax(1)
    torch.testing.assert_close(found, expected / expected.sum())
    torch.testing.assert_close(compute_pragmatic_logits(generated, prior, 0).exp(), torch.tensor([[0.5, 0.3, 0.2]]))


@pytest.mark.parametrize("channel", [Greedy(), Beam(3), Beam(4, samples=2)], ids=repr)
def test_captions_are_the_speakers_without_weight_or_distractors(toy, speaker, channel):
    batch = toy.batch()
    expected = generate(speaker, batch, channel, rng()).tokens
    no_distractors = DistractorBatches([], torch.zeros(len(batch), 0, dtype=torch.bool))
    missing = replace(make_distractors(batch), mask=torch.zeros(len(batch), 2, dtype=torch.bool))
    for alpha, distractors in ((0.0, make_distractors(batch)), (ALPHA, no_distractors), (ALPHA, missing)):
        pragmatic = PragmaticDecoder(speaker, alpha, lambda _, found=distractors: found)
        assert torch.equal(generate(pragmatic, batch, channel, rng()).tokens, expected)


def compute_prefix_log_probs(speaker, batch, tokens, position):
    """Return (B,): log p of the tokens before `position` for each image."""
    log_probs = teacher_force(speaker, replace(batch, captions=tokens)).log_probs
    return log_probs[:, :position].sum(1)


def test_each_token_is_the_best_by_bayes_rule_over_whole_prefixes(toy, speaker):
    batch, distractors = toy.batch(), make_distractors(toy.batch())
    pragmatic = PragmaticDecoder(speaker, ALPHA, make_distractors)
    tokens = generate(pragmatic, batch, Greedy(), rng()).tokens
    assert not torch.equal(tokens, generate(speaker, batch, Greedy(), rng()).tokens)
    images = [batch, *distractors.batches]
    prior = torch.zeros(len(batch), 3)
    prior[:, 1:].masked_fill_(~distractors.mask, -torch.inf)
    for t in range(tokens.shape[1]):
        unfinished = ~(tokens[:, :t] == 0).any(1)
        scores = []
        for word in range(speaker.vocabulary + 1):
            candidate = tokens.clone()
            candidate[:, t] = word
            candidate[:, t + 1 :] = 0
            whole = torch.stack([compute_prefix_log_probs(speaker, each, candidate, t + 1) for each in images], 1)
            prefix = torch.stack([compute_prefix_log_probs(speaker, each, candidate, t) for each in images], 1)
            posterior = (prior + whole).log_softmax(1)[:, 0]
            scores.append((whole - prefix)[:, 0] + ALPHA * posterior)
        scores = torch.stack(scores, 1)
        token_scores = scores.gather(1, tokens[:, t : t + 1]).squeeze(1)
        assert (token_scores >= scores.max(1).values - 1e-4)[unfinished].all()


def test_beam_search_of_width_1_is_greedy(toy, speaker):
    batch = toy.batch()
    pragmatic = PragmaticDecoder(speaker, ALPHA, make_distractors)
    greedy = generate(pragmatic, batch, Greedy(), rng()).tokens
    assert torch.equal(generate(pragmatic, batch, Beam(1), rng()).tokens, greedy)


def test_rows_move_with_their_states_and_priors(toy, speaker):
    batch = toy.batch()
    pragmatic = PragmaticDecoder(speaker, ALPHA, make_distractors)
    check_selected_rows(pragmatic, batch)


def test_distractors_are_the_nearest_other_images():
    vectors = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    assert find_nearest_in_split(vectors, 1).flatten().tolist() == [1, 0, 3, 2]
    assert find_nearest_in_split(vectors, 5)[0].tolist() == [1, 3, 2, -1, -1]


def test_a_splits_speaker_takes_the_features_of_each_images_neighbours(toy, speaker):
    """The distractors of an image depend on its row alone, not on the other images of its batch."""
    batch, loaded_rows = toy.batch(), []

    class RowEncoder:
        device = torch.device("cpu")

        def encode_image(self, rows):
            return torch.stack([torch.cos(rows * 0.7), torch.sin(rows * 0.7)], 1)

    def load_images(rows):
        loaded_rows.append(rows.tolist())
        indices = torch.from_numpy(rows)
        all_images = toy.batch()
        return replace(
            all_images, images=indices, pooled=all_images.pooled[indices], regions=all_images.regions[indices],
            region_mask=all_images.region_mask[indices], captions=all_images.captions[indices],
        )  # fmt: skip

    rows = torch.arange(8).numpy()
    pragmatic = PragmaticCaptions(ALPHA, 2, "speaker", RowEncoder()).bind(
        speaker.train(), rows, load_images, Vocabulary(tuple("abcdefghijkl"))
    )
    assert not speaker.training
    found = generate(pragmatic, batch, Greedy(), rng()).tokens
    nearest = find_nearest_in_split(RowEncoder().encode_image(torch.arange(8)), 2)
    assert loaded_rows == nearest.T.tolist()
    distractors = DistractorBatches([load_images(column.numpy()) for column in nearest.T], nearest >= 0)
    expected = generate(PragmaticDecoder(speaker, ALPHA, lambda _: distractors), batch, Greedy(), rng()).tokens
    assert torch.equal(found, expected)
    some = generate(pragmatic, load_images(rows[[6, 2, 5]]), Greedy(), rng()).tokens
    assert torch.equal(some, expected[[6, 2, 5], : some.shape[1]])
    split, loaded_rows[:] = rows[[7, 2, 6, 1]], []  # the rows of a split differ from the positions of its images
    pragmatic = PragmaticCaptions(ALPHA, 2, "speaker", RowEncoder()).bind(
        speaker, split, load_images, Vocabulary(tuple("abcdefghijkl"))
    )
    generate(pragmatic, load_images(split), Greedy(), rng())
    nearest = find_nearest_in_split(RowEncoder().encode_image(torch.from_numpy(split)), 2)
    assert loaded_rows[1:] == torch.from_numpy(split)[nearest].T.tolist()
    decoders = [
        PragmaticCaptions(ALPHA, count, "speaker", RowEncoder()).bind(
            speaker, rows[:2], load_images, Vocabulary(tuple("abcdefghijkl"))
        )
        for count in (1, 3)
    ]  # two images have one distractor each; with `count` 3, two are missing
    captions = [generate(each, load_images(rows[:2]), Greedy(), rng()).tokens for each in decoders]
    assert torch.equal(*captions)
