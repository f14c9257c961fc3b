"""Pragmatic decoding by a retrieval listener equals its computation over whole prefixes."""

from dataclasses import replace

import pytest
import torch
from selected_rows import check_selected_rows

from pipeline.channels.hard import Beam, Greedy
from pipeline.evaluation.judges import ListenerJudge
from pipeline.evaluation.pragmatic_captions import PragmaticCaptions, find_nearest_in_split, stack_distractors
from pipeline.models.retrieval_pragmatics import (
    TEMPERATURE,
    RetrievalPragmaticDecoder,
    compute_retrieval_logits,
    compute_retrieval_posterior,
)
from pipeline.models.unroll import generate, teacher_force
from pipeline.types import Message, make_caption_mask
from pipeline.vocabulary import Vocabulary

ALPHA = 3.0
WORDS = Vocabulary(tuple("abcdefghijkl"))


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.fixture
def agents(toy):
    """Return an untrained speaker and listener whose outputs depend on image and words."""
    untrained = toy.agents()
    with torch.no_grad():
        untrained.speaker.logit.weight *= 4
        untrained.speaker.region.weight *= 4
        untrained.listener.word.weight *= 20
    return untrained.speaker.eval(), untrained.listener.eval()


def embed_tokens(listener, tokens):
    mask = make_caption_mask(tokens)
    return listener.encode_text(Message(tokens, mask, torch.arange(len(tokens)), 1))


def test_the_posterior_by_hand():
    images = torch.tensor([[[1.0, 0.0], [0.6, 0.8], [0.0, 0.0]]])
    texts = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    first, second = torch.tensor(1 / 0.5).exp(), torch.tensor(0.6 / 0.5).exp()
    other = torch.tensor(0.8 / 0.5).exp()
    expected = torch.stack([first / (first + second), 1 / (1 + other)]).log()
    torch.testing.assert_close(compute_retrieval_posterior(texts, images, 0.5)[0], expected)


def test_tokens_that_are_no_candidates_are_impossible():
    generated, best = torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[2, 0]])
    posterior = torch.tensor([[0.9, 0.5]]).log()
    found = compute_retrieval_logits(generated, best, posterior, 2.0).exp()
    torch.testing.assert_close(found, torch.tensor([[0.5 * 0.25, 0.0, 0.2 * 0.81]]))
    assert torch.equal(compute_retrieval_logits(generated, best, posterior, 0), generated)


@pytest.mark.parametrize("candidates", [3, None])
@torch.no_grad()
def test_each_token_is_the_best_by_the_listener_of_whole_prefixes(toy, agents, candidates):
    speaker, listener = agents
    batch = toy.batch()
    vectors = listener.encode_image(batch.pooled)
    nearest = find_nearest_in_split(vectors, 2)
    nearest[3, 1] = -1
    images = stack_distractors(vectors, vectors, nearest)
    pragmatic = RetrievalPragmaticDecoder(
        speaker, ALPHA, lambda _: images, lambda tokens: embed_tokens(listener, tokens)
    )
    pragmatic.candidates = candidates or speaker.vocabulary + 1
    tokens = generate(pragmatic, batch, Greedy(), rng()).tokens
    for t in range(tokens.shape[1]):
        unfinished = ~(tokens[:, :t] == 0).any(1)
        generated, posterior = [], []
        for word in range(speaker.vocabulary + 1):
            prefix = torch.cat([tokens[:, :t], torch.full((len(tokens), 1), word)], 1)
            padded = torch.nn.functional.pad(prefix, (0, tokens.shape[1] - t - 1))
            generated.append(teacher_force(speaker, replace(batch, captions=padded)).log_probs[:, t])
            cosines = torch.einsum("nd,nkd->nk", embed_tokens(listener, prefix), images) / TEMPERATURE
            cosines[3, 2] = -torch.inf
            posterior.append(cosines.log_softmax(1)[:, 0])
        log_probs = torch.stack(generated, 1)
        scores = log_probs + ALPHA * torch.stack(posterior, 1)
        if candidates:
            scores[log_probs < log_probs.topk(candidates, 1).values[:, -1:]] = -torch.inf
        token_scores = scores.gather(1, tokens[:, t : t + 1]).squeeze(1)
        assert (token_scores >= scores.max(1).values - 1e-4)[unfinished].all()
    assert not torch.equal(tokens, generate(speaker, batch, Greedy(), rng()).tokens)
    assert torch.equal(generate(pragmatic, batch, Beam(1), rng()).tokens, tokens)


def test_rows_move_with_their_images_and_tokens(toy, agents):
    speaker, listener = agents
    batch = toy.batch()
    vectors = listener.encode_image(batch.pooled)
    images = stack_distractors(vectors, vectors, find_nearest_in_split(vectors, 2))
    pragmatic = RetrievalPragmaticDecoder(
        speaker, ALPHA, lambda _: images, lambda tokens: embed_tokens(listener, tokens)
    )
    check_selected_rows(pragmatic, batch)


def test_a_splits_speaker_embeds_each_images_neighbours(toy, agents):
    speaker, listener = agents
    batch = toy.batch()
    judge = ListenerJudge(listener, lambda rows: batch.pooled[rows], torch.device("cpu"))
    rows = torch.arange(len(batch))
    pragmatic = PragmaticCaptions(ALPHA, 2, "listener", judge).bind(
        speaker, rows.numpy(), lambda _: pytest.fail("features"), WORDS
    )
    found = generate(pragmatic, batch, Beam(3), rng()).tokens
    with torch.no_grad():
        vectors = listener.encode_image(batch.pooled)
        images = stack_distractors(vectors, vectors, find_nearest_in_split(vectors, 2))
        expected = RetrievalPragmaticDecoder(
            speaker, ALPHA, lambda _: images, lambda tokens: embed_tokens(listener, tokens)
        )
    assert torch.equal(found, generate(expected, batch, Beam(3), rng()).tokens)
    part = replace(
        batch, images=batch.images[5:], pooled=batch.pooled[5:], regions=batch.regions[5:],
        region_mask=batch.region_mask[5:], captions=batch.captions[5:],
    )  # fmt: skip
    some = generate(pragmatic, part, Beam(3), rng()).tokens
    assert torch.equal(some, found[5:, : some.shape[1]])
    unweighted = PragmaticCaptions(0.0, 2, "listener", judge).bind(speaker, rows.numpy(), lambda _: batch, WORDS)
    assert torch.equal(
        generate(unweighted, batch, Beam(3), rng()).tokens, generate(speaker, batch, Beam(3), rng()).tokens
    )
