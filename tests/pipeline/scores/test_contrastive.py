"""WTF-RL's Eq. 2 by hand on three images, its limit, and the negatives of each denominator."""

from dataclasses import replace
from math import exp, log

import pytest
import torch
from torch import Tensor, nn

from pipeline.channels.hard import Greedy, Multinomial
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.estimators.baselines import SelfCritical
from pipeline.estimators.rollouts import make_human_message
from pipeline.models.retriever import Retriever
from pipeline.scores.contrastive import ClipScore, ContrastiveScore, CosineScore, TargetLogProbability
from pipeline.types import Batch, Message, make_caption_mask

# cosines of captions with the three images
SAMPLED = [[0.9, 0.8, 0.1], [0.3, 0.5, 0.45], [0.0, 0.2, 0.7]]
GREEDY = [[0.6, 0.5, 0.4], [0.2, 0.4, 0.3], [0.1, 0.1, 0.6]]
HUMAN = [[0.7, 0.1, 0.0], [0.1, 0.8, 0.2], [0.2, 0.3, 0.9]]
FIRST_TOKENS = {"sampled": 1, "greedy": 4, "human": 7}  # a caption is one token
TAU = 0.1


class CosineTable(nn.Module):
    """Text encoder that takes a caption's token as the index of its cosines."""

    def encode_text(self, captions: list[str]) -> Tensor:
        table = torch.tensor([*SAMPLED, *GREEDY, *HUMAN])
        return table[[int(caption) - 1 for caption in captions]]


class FixedMessages:
    """Batch of three images, and their captions from each channel."""

    def __init__(self) -> None:
        captions = {name: torch.arange(first, first + 3).unsqueeze(1) for name, first in FIRST_TOKENS.items()}
        rows, features = torch.arange(3), torch.eye(3)
        self.batch = Batch(rows, features, features.unsqueeze(1), torch.ones(3, 1, dtype=torch.bool), captions["human"])
        self.messages = {
            name: Message(tokens, make_caption_mask(tokens), rows, samples=1) for name, tokens in captions.items()
        }
        self.messages["human"] = make_human_message(self.batch)

    def get_message(self, channel) -> Message:
        return self.messages[{Multinomial(): "sampled", Greedy(): "greedy"}.get(channel, "human")]


CAPTIONS = (Multinomial(), Greedy(), TeacherForcing(requires_grad=False))


def make_retriever(neighbours: list[list[int]] | None = None) -> Retriever:
    """Return a retriever with unit image vectors, and a fourth image that is similar to the first."""
    vectors = torch.cat([torch.eye(3), torch.tensor([[0.8, 0.0, 0.6]])])
    indices = None if neighbours is None else torch.tensor(neighbours)
    return Retriever(CosineTable(), vectors, TAU, lambda row: str(row[0]), indices)


def compute_score(
    message: str, neighbours: list[list[int]] | None = None, captions=CAPTIONS, tau: float = TAU, **options
) -> Tensor:
    rollouts = FixedMessages()
    contrastive = ContrastiveScore(make_retriever(neighbours), captions, tau, **options)
    return contrastive.bind_batch(rollouts)(rollouts.messages[message], rollouts.batch)


def test_both_directions_by_hand():
    image_to_text = log(exp(9) / (exp(3) + exp(0) + exp(6) + exp(2) + exp(1) + exp(7) + exp(1) + exp(2)))
    text_to_image = log(exp(9) / (exp(8) + exp(1)))
    found = compute_score("sampled")
    assert float(found[0]) == pytest.approx(TAU * (image_to_text + text_to_image), rel=1e-5)
    last = log(exp(7) / (exp(1) + exp(4.5) + exp(4) + exp(3) + exp(6) + exp(0) + exp(2) + exp(9)))
    assert float(found[2]) == pytest.approx(TAU * (last + log(exp(7) / (exp(0) + exp(2)))), rel=1e-5)


def test_a_human_captions_denominator_has_all_other_captions():
    image_to_text = log(exp(7) / (exp(9) + exp(3) + exp(0) + exp(6) + exp(2) + exp(1) + exp(1) + exp(2)))
    assert float(compute_score("human", directions="image_to_text")[0]) == pytest.approx(TAU * image_to_text, rel=1e-5)


def test_the_mean_of_both_and_the_clamp():
    torch.testing.assert_close(compute_score("sampled", combine="mean"), compute_score("sampled") / 2)
    image_to_text = compute_score("sampled", directions="image_to_text")
    text_to_image = compute_score("sampled", directions="text_to_image")
    torch.testing.assert_close(compute_score("sampled"), image_to_text + text_to_image)
    clamped = compute_score("sampled", clamp=2.0, directions="text_to_image")
    torch.testing.assert_close(clamped, text_to_image.clamp(max=0.2))
    assert (clamped != text_to_image).any()


def test_at_a_small_temperature_each_direction_is_the_cosine_minus_the_hardest_negatives_cosine():
    # image 0: .9 − .7; image 1: .5 − .8; image 2: .7 − .9. captions: .9 − .8, .5 − .45, .7 − .2
    expected = torch.tensor([0.2, -0.3, -0.2])
    torch.testing.assert_close(
        compute_score("sampled", tau=1e-3, directions="image_to_text"), expected, atol=1e-3, rtol=0
    )
    expected = torch.tensor([0.1, 0.05, 0.5])
    torch.testing.assert_close(
        compute_score("sampled", tau=1e-3, directions="text_to_image"), expected, atol=1e-3, rtol=0
    )


def test_where_the_greedy_caption_is_the_hardest_negative_the_score_is_self_critical():
    # without human captions, the greedy caption is the hardest negative of images 0 and 2
    rollouts, channels = FixedMessages(), (Multinomial(), Greedy())
    found = compute_score("sampled", tau=1e-3, directions="image_to_text", captions=channels)
    similarity = CosineScore(make_retriever())
    value = similarity(rollouts.messages["sampled"], rollouts.batch)
    critical = value - SelfCritical(Greedy())(value, similarity, rollouts)
    torch.testing.assert_close(found[[0, 2]], critical[[0, 2]], atol=1e-3, rtol=0)
    assert float((found - critical)[1].abs()) > 0.1  # the hardest negative of image 1 is another caption


def test_neighbours_are_negatives_once_each_and_never_the_image_itself():
    # image 3, a neighbour of images 0 and 1, has the cosine .8·.9 + .6·.1 = .78 with caption 0
    found = compute_score("sampled", [[3], [3], [0], [0]], directions="text_to_image")
    assert float(found[0]) == pytest.approx(TAU * log(exp(9) / (exp(8) + exp(1) + exp(7.8))), rel=1e-5)
    assert float(found[2]) == pytest.approx(TAU * log(exp(7) / (exp(0) + exp(2) + exp(4.2))), rel=1e-5)


def test_a_batch_of_one_image_has_no_negatives():
    rollouts = FixedMessages()
    one = Batch(
        *(getattr(rollouts.batch, name)[:1] for name in ("images", "pooled", "regions", "region_mask", "captions"))
    )
    contrastive = ContrastiveScore(make_retriever(), (), TAU)
    tokens = rollouts.messages["sampled"].tokens[:1]
    message = Message(tokens, make_caption_mask(tokens), torch.zeros(1, dtype=torch.int64), 1)
    assert float(contrastive.bind_batch(rollouts)(message, one)) == 0


def test_samples_are_contrasted_with_samples_of_equal_index_and_all_other_captions():
    rollouts = FixedMessages()
    tokens = torch.stack([rollouts.messages["sampled"].tokens, rollouts.messages["greedy"].tokens], 1).flatten(0, 1)
    two = Message(tokens, make_caption_mask(tokens), torch.arange(3).repeat_interleave(2), samples=2)
    contrastive = ContrastiveScore(make_retriever(), (TeacherForcing(requires_grad=False),), TAU)
    found = contrastive.bind_batch(rollouts)(two, rollouts.batch)
    torch.testing.assert_close(
        found[0::2], compute_score("sampled", captions=(Multinomial(), TeacherForcing(requires_grad=False)))
    )
    torch.testing.assert_close(
        found[1::2], compute_score("greedy", captions=(Greedy(), TeacherForcing(requires_grad=False)))
    )


def test_the_clip_score_is_two_and_a_half_cosines():
    rollouts = FixedMessages()
    assert ClipScore(CosineScore(make_retriever()))(
        rollouts.messages["sampled"], rollouts.batch
    ).tolist() == pytest.approx([2.25, 1.25, 1.75])


def score_images(rows: list[int], neighbours: list[list[int]] | None) -> Tensor:
    """Return the text-to-image scores of the images `rows`, each with the sampled caption of its position."""
    rollouts = FixedMessages()
    features = torch.eye(4)[rows]
    batch = replace(rollouts.batch, images=torch.tensor(rows), pooled=features, regions=features.unsqueeze(1))
    contrastive = ContrastiveScore(make_retriever(neighbours), CAPTIONS, TAU, "text_to_image")
    return contrastive.bind_batch(rollouts)(rollouts.messages["sampled"], batch)


def compute_scores_by_loop(rows: list[int], neighbours: list[list[int]] | None) -> list[float]:
    """Compute the scores of the images `rows`; each other image, of the batch or a neighbour, counts once."""
    vectors = torch.cat([torch.eye(3), torch.tensor([[0.8, 0.0, 0.6]])])
    images = {*rows, *(other for row in rows for other in (neighbours[row] if neighbours else []))}
    found = []
    for position, row in enumerate(rows):
        caption = torch.tensor(SAMPLED[position])
        negatives = [exp(float(caption @ vectors[other]) / TAU) for other in images - {row}]
        found.append(TAU * (float(caption @ vectors[row]) / TAU - log(sum(negatives))))
    return found


@pytest.mark.parametrize(
    ("rows", "neighbours"),
    [
        ([0, 1, 2], None),
        ([0, 1, 2], [[0], [1], [2], [3]]),  # each image is its own neighbour
        ([0, 1, 2], [[0, 3], [1, 0], [2, 0], [3, 0]]),
        ([0, 1, 2], [[0, 3], [3, 3], [2, 0], [3, 0]]),
        ([0, 3, 2], [[3, 1], [0, 3], [1, 0], [0, 3]]),
        ([0, 0, 2], [[3], [3], [3], [3]]),  # an image twice in the batch
        ([2, 0, 0], None),
        ([1, 1, 3], [[1], [1], [2], [0]]),
    ],
)
def test_an_image_is_a_negative_once_and_never_its_own(rows, neighbours):
    assert score_images(rows, neighbours).tolist() == pytest.approx(compute_scores_by_loop(rows, neighbours), rel=1e-5)


def test_the_same_message_of_another_channel_is_no_negative():
    # two channels may return the same message, which counts once
    rollouts = FixedMessages()
    rollouts.messages["greedy"] = rollouts.messages["sampled"]
    contrastive = ContrastiveScore(make_retriever(), CAPTIONS, TAU, "image_to_text")
    found = contrastive.bind_batch(rollouts)(rollouts.messages["sampled"], rollouts.batch)
    expected = compute_score(
        "sampled", captions=(Multinomial(), TeacherForcing(requires_grad=False)), directions="image_to_text"
    )
    torch.testing.assert_close(found, expected)


def test_every_sample_is_compared_with_its_own_image_and_no_clip_score_is_negative():
    rollouts = FixedMessages()
    tokens = torch.tensor([[1], [4], [7], [2], [5], [8]])  # two captions of each image
    two = Message(tokens, make_caption_mask(tokens), torch.tensor([0, 0, 1, 1, 2, 2]), samples=2)
    found = CosineScore(make_retriever())(two, rollouts.batch)
    torch.testing.assert_close(found, torch.tensor([0.9, 0.6, 0.1, 0.5, 0.3, 0.2]))
    low = CosineScore(make_retriever())
    low.retriever.vectors[2] = torch.tensor([0.0, 0.0, -1.0])
    assert ClipScore(low)(two, rollouts.batch).tolist() == pytest.approx([2.25, 1.5, 0.25, 1.25, 0.0, 0.0])


def test_a_retriever_has_no_gradient_and_no_dropout(toy):
    encoder = toy.agents().listener.train()
    retriever = Retriever(encoder, torch.eye(8), 0.1, str)
    assert retriever.encoder is encoder
    assert not encoder.training
    assert not any(weight.requires_grad for weight in encoder.parameters())


def test_the_targets_log_probability_by_hand():
    rollouts = FixedMessages()
    found = TargetLogProbability(make_retriever(), TAU)(rollouts.messages["sampled"], rollouts.batch)
    expected = [log(exp(9) / (exp(9) + exp(8) + exp(1))), log(exp(5) / (exp(3) + exp(5) + exp(4.5)))]
    assert found[:2].tolist() == pytest.approx(expected, rel=1e-5)


def test_neighbours_are_candidates_too_and_an_image_counts_once():
    rollouts = FixedMessages()
    neighbours = [[3], [0], [1], [0]]  # image 3 in addition to the images of the batch
    found = TargetLogProbability(make_retriever(neighbours), TAU)(rollouts.messages["sampled"], rollouts.batch)
    logit = 10 * (0.8 * 0.9 + 0.6 * 0.1)
    assert float(found[0]) == pytest.approx(log(exp(9) / (exp(9) + exp(8) + exp(1) + exp(logit))), rel=1e-5)
    assert (found < TargetLogProbability(make_retriever(), TAU)(rollouts.messages["sampled"], rollouts.batch)).all()
