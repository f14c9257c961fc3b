from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest
import torch

from pipeline.channels.hard import Multinomial
from pipeline.estimators.rollouts import make_human_message
from pipeline.models.listener import Listener
from pipeline.models.unroll import generate
from pipeline.scores.discriminability import CollapseRecovery, Hinge, InfoNCE, InputDropout, compute_similarities
from pipeline.types import Message

COSINES = torch.tensor([[[0.9, 0.8, 0.1], [0.3, 0.5, 0.45], [0.0, 0.2, 0.7]]])  # [sample, caption, image]


def test_hardest_hinge_by_hand():
    # margin .2; caption 0: images .2-.9+.8=.1; captions of image 0: .2-.9+.3<0       → .1
    #            caption 1: images .2-.5+.45=.15; captions of image 1: .2-.5+.8=.5     → .65
    #            caption 2: images .2-.7+.2<0;    captions of image 2: .2-.7+.45<0     → 0
    torch.testing.assert_close(Hinge(None, 0.2).losses(COSINES), torch.tensor([[0.1, 0.65, 0.0]]))


def test_hinge_over_all_by_hand():
    # images: .1, 0 | 0 (.2-.5+.3=0), .15 | 0, 0; captions: image 0: 0, 0; image 1: .5, 0; image 2: 0, 0; means of two
    torch.testing.assert_close(Hinge(None, 0.2, "all").losses(COSINES), torch.tensor([[0.05, 0.325, 0.0]]))


def test_a_batch_of_one_image_has_no_distractors():
    assert Hinge(None).losses(torch.ones(1, 1, 1)).item() == 0
    assert Hinge(None, negatives="all").losses(torch.ones(1, 1, 1)).item() == 0


def test_samples_are_compared_with_samples_of_equal_index(toy):
    agents, batch = toy.agents(), toy.batch()
    message = generate(agents.speaker, batch, Multinomial(samples=2), torch.Generator().manual_seed(0))
    both = Hinge(agents.listener)(message, batch)
    for sample in range(2):
        rows = torch.arange(8) * 2 + sample
        one = Message(message.tokens[rows], message.mask[rows], torch.arange(8), 1)
        torch.testing.assert_close(both[rows], Hinge(agents.listener)(one, batch))


def test_info_nce_is_two_cross_entropies(toy):
    agents, batch = toy.agents(), toy.batch()
    message = make_human_message(batch)
    logits = compute_similarities(agents.listener, message, batch)[0] / 0.1
    target = torch.arange(8)
    expected = torch.nn.functional.cross_entropy(logits, target) + torch.nn.functional.cross_entropy(logits.T, target)
    torch.testing.assert_close(-InfoNCE(agents.listener, 0.1)(message, batch).mean(), expected)


def test_each_encoder_of_a_pair_has_its_own_info_nce(toy):
    batch = toy.batch()
    pair = Listener(toy.agents().listener.vocabulary, batch.pooled.shape[1], words=4, hidden=6, encoder="pair")
    message, target, found = make_human_message(batch), torch.arange(8), []
    text_vectors, image_vectors = pair.encode_text(message), pair.encode_image(batch.pooled)
    for part in (slice(0, 6), slice(6, 12)):
        cosines = torch.nn.functional.cosine_similarity(
            text_vectors[:, None, part], image_vectors[None, :, part], dim=2
        )
        losses = [torch.nn.functional.cross_entropy(logits / 0.1, target) for logits in (cosines, cosines.T)]
        found.append(sum(losses))
    torch.testing.assert_close(-InfoNCE(pair, 0.1)(message, batch).mean(), (found[0] + found[1]) / 2)


@pytest.mark.parametrize("encoder", ["gru", "bag", "pair"])
@pytest.mark.parametrize("make", [Hinge, partial(Hinge, margin=0.5), partial(Hinge, negatives="all"), InfoNCE], ids=str)
def test_every_caption_has_the_score_of_its_own_image_among_captions_of_equal_index(toy, encoder, make):
    """Loops compute the score of caption s of image i from the other images and their s-th captions."""
    batch = toy.batch()
    torch.manual_seed(3)
    listener = Listener(12, batch.pooled.shape[1], words=4, hidden=6, encoder=encoder)
    torch.nn.init.normal_(listener.word.weight)
    message = generate(toy.agents().speaker, batch, Multinomial(3), torch.Generator().manual_seed(0))
    score = make(listener)
    text_vectors, image_vectors, parts = (
        listener.encode_text(message),
        listener.encode_image(batch.pooled),
        listener.parts,
    )
    found = score(message, batch)
    for n in range(len(message)):
        image, sample = divmod(n, 3)
        total = 0.0
        for k in range(parts) if isinstance(score, InfoNCE) else [slice(None)]:
            part = slice(6 * k, 6 * k + 6) if isinstance(k, int) else k
            scale = parts if isinstance(k, int) else 1
            by_image = scale * (image_vectors[:, part] @ text_vectors[n, part])  # of this caption with every image
            by_caption = scale * (
                text_vectors[sample::3, part] @ image_vectors[image, part]
            )  # of this image with every caption
            others = torch.arange(8) != image
            own = by_image[image]
            if isinstance(score, InfoNCE):
                logs = [(c / 0.07).log_softmax(0)[image] for c in (by_image, by_caption)]
                total = total + sum(logs) / parts
            else:
                losses = [(score.margin - own + c[others]).clamp(min=0) for c in (by_image, by_caption)]
                total = total - sum(each.max() if score.negatives == "hardest" else each.mean() for each in losses)
        torch.testing.assert_close(found[n], total, atol=1e-5, rtol=1e-5)


def test_recovery_counts_consecutive_steps_on_the_plateau(toy):
    """A level is a mean loss divided by 2·margin.

    After three levels in a row within .1 of 1, two steps use all negatives.
    """
    score = CollapseRecovery(Hinge(toy.agents().listener), warmup=1, patience=3, steps=2, width=0.1)
    levels = [1.0, 1.05, 0.95, 1.2, 0.95, 1.0, 1.09, 1.0, 1.0, 1.0, 1.0, 1.0, 0.89]
    states = []
    for level in levels:
        score._count(torch.tensor(level))
        states.append((score.collapsed.item(), score.easy.item(), score.recoveries.item()))
    assert states == [
        (0, 0, 0),  # warm-up
        (1, 0, 0),
        (2, 0, 0),
        (0, 0, 0),  # not on the plateau
        (1, 0, 0),
        (2, 0, 0),
        (3, 2, 1),
        (0, 1, 1),
        (0, 0, 1),
        (1, 0, 1),
        (2, 0, 1),
        (3, 2, 2),
        (0, 1, 2),
    ]
    assert CollapseRecovery(Hinge(toy.agents().listener), 1, 3, 2).width == 0.02


def test_recovery_keeps_the_hinges_margin_in_both_forms(toy):
    batch, listener = toy.batch(), toy.agents().listener
    score = CollapseRecovery(Hinge(listener, 0.7), warmup=1, patience=3, steps=2)
    torch.testing.assert_close(
        score(make_human_message(batch), batch), Hinge(listener, 0.7, "all")(make_human_message(batch), batch)
    )
    torch.testing.assert_close(
        score(make_human_message(batch), batch), Hinge(listener, 0.7)(make_human_message(batch), batch)
    )


def _collapse(listener):
    """Move the embeddings of all images to one point."""
    with torch.no_grad():
        listener.image.weight.zero_()
        listener.image.bias.fill_(1.0)


def test_the_plateau_is_recognised_only_for_a_collapsed_listener(toy):
    batch, listener = toy.batch(), toy.agents().listener
    _collapse(listener)
    score = CollapseRecovery(Hinge(listener, 0.2), warmup=0, patience=3, steps=2, width=0.1)
    for _ in range(6):
        score(make_human_message(batch), batch)
        assert Hinge(listener)(make_human_message(batch), batch).mean().item() == pytest.approx(
            -0.4, rel=0.1
        )  # 2·margin: the plateau
    assert score.recoveries.item() == 1  # after three steps; two steps use all negatives, the sixth counts anew
    uncollapsed = toy.agents(seed=1).listener
    score = CollapseRecovery(Hinge(uncollapsed, 0.2), warmup=0, patience=3, steps=2, width=0.1)
    for _ in range(6):
        score(make_human_message(batch), batch)
    assert (score.recoveries.item(), score.easy.item()) == (0, 0)


def test_a_collapsed_listener_recovers_in_training(toy):
    """After 120 steps by hardest negatives alone all cosines are nearly equal, and the hinge is −2 · .2."""

    def train(score, listener):
        adam = torch.optim.Adam(listener.parameters(), lr=0.005)
        for _ in range(120):
            adam.zero_grad()
            (-score(make_human_message(batch), batch).mean()).backward()
            adam.step()
        return Hinge(listener)(make_human_message(batch), batch).detach().mean().item()

    batch = toy.batch()
    listener = toy.agents().listener
    _collapse(listener)
    other = deepcopy(listener)
    assert train(Hinge(other), other) == pytest.approx(-0.4, abs=0.01)
    assert train(CollapseRecovery(Hinge(listener), warmup=0, patience=5, steps=60, width=0.1), listener) > -0.15


def test_warm_up_counts_training_steps_only(toy):
    batch, listener = toy.batch(), toy.agents().listener
    score = CollapseRecovery(Hinge(listener), warmup=2, patience=3, steps=2)
    with torch.no_grad():
        score(make_human_message(batch), batch)
    assert score.easy.item() == 2
    torch.testing.assert_close(
        score(make_human_message(batch), batch), Hinge(listener, 0.2, "all")(make_human_message(batch), batch)
    )
    score(make_human_message(batch), batch)
    assert score.easy.item() == 0
    torch.testing.assert_close(
        score(make_human_message(batch), batch), Hinge(listener)(make_human_message(batch), batch)
    )


def test_input_dropout_drops_its_shares_in_training_only(toy):
    batch, recorded = toy.batch(), []
    batch = replace(batch, pooled=torch.full((8, 500), 3.0), captions=batch.captions.clamp(min=1))  # no caption has EOS

    def record_inputs(message, masked):
        recorded.append((message.tokens, masked.pooled))
        return torch.zeros(len(message))

    score = InputDropout(record_inputs, vector=0.25, words=0.5, unk=99)

    def apply_dropout(part):
        torch.manual_seed(7)
        score(make_human_message(part), part)
        return recorded[-1]

    tokens, pooled = apply_dropout(batch)
    assert set(pooled.unique().tolist()) == {0.0, 4.0}
    assert 0.7 < (pooled > 0).float().mean() < 0.8  # 4,000 numbers: .75 ± .007
    dropped = tokens == 99
    assert torch.equal(tokens[~dropped], batch.captions[~dropped])
    assert 0.2 < dropped.float().mean() < 0.8
    empty = replace(batch, captions=torch.zeros_like(batch.captions))
    assert not apply_dropout(empty)[0].any(), "EOS is never dropped"
    shards = [
        replace(
            batch, pooled=batch.pooled[rows], captions=batch.captions[rows], images=batch.images[rows], whole_size=8
        )
        for rows in (slice(0, 4), slice(4, 8))
    ]
    shards[1] = replace(shards[1], first=4)
    for rows, shard in ((slice(0, 4), shards[0]), (slice(4, 8), shards[1])):
        torch.testing.assert_close(apply_dropout(shard), (tokens[rows], pooled[rows]))
    with torch.no_grad():
        torch.testing.assert_close(apply_dropout(batch), (batch.captions, batch.pooled))


def test_wrapped_scores_are_differentiable(toy):
    hinge = Hinge(toy.agents().listener)
    for score in (hinge, CollapseRecovery(hinge, 1, 2, 3), InputDropout(hinge, 0.1, 0.1, 5)):
        assert score.differentiable


def test_a_loss_off_the_plateau_is_no_collapse(toy):
    score = CollapseRecovery(Hinge(toy.agents().listener), warmup=0, patience=2, steps=3)
    for level in (0.5, 0.97, 1.03, 2.0):
        score._count(torch.tensor(level))
        assert score.collapsed == 0
    score._count(torch.tensor(0.99))
    assert score.collapsed == 1
