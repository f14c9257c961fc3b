import dataclasses

import pytest
import torch

from pipeline.channels.hard import Beam, Greedy
from pipeline.evaluation.generate import generate_captions
from pipeline.evaluation.judges import (
    JudgedCaptions,
    ListenerJudge,
    TextJudge,
    judge_retrieval,
    make_judge,
    sample_galleries,
)
from pipeline.evaluation.validation import Validation
from pipeline.metrics.retrieval import draw_distractors, find_similar_distractors

CPU = torch.device("cpu")


def judge_tokens(listener, tokens, owners, distractors=None):
    """Return a listener's retrieval result for captions (N, T) of eight images."""
    judge = ListenerJudge(listener, lambda rows: torch.zeros(len(rows), 1), CPU)
    return judge_retrieval(judge, JudgedCaptions(tokens, ()), owners, torch.arange(8), distractors)


class FirstTokenListener(torch.nn.Module):
    """A listener that takes the first token as the number of the image."""

    def encode_image(self, pooled):
        return torch.eye(len(pooled))

    def encode_text(self, message):
        return torch.eye(8)[message.tokens[:, 0]]


def test_recalls_in_both_directions_equal_values_computed_by_hand():
    """Captions of image 0 name images 7 and 3. Captions of images 1 and 2 name image 1. Others name their own image."""
    tokens = torch.tensor([[7, 0], [3, 0], [1, 0], [1, 0], [3, 0], [4, 0], [5, 0], [6, 0], [7, 0]])
    owners = torch.tensor([0, 0, 1, 2, 3, 4, 5, 6, 7])
    found = judge_tokens(FirstTokenListener(), tokens, owners)
    # if a caption names another image, that image is better and the other six tie: the rank is the last
    assert found.by_caption.tolist() == [8, 8, 1, 8, 1, 1, 1, 1, 1]
    assert found.text_to_image["R@1"] == pytest.approx(100 * 6 / 9)
    # Images 1, 3 and 7 have rank 2, because a caption of another image ties. Images 4, 5 and 6 have rank 1.
    # Image 0's captions and all 7 others score 0: rank 8. Image 2's caption ties with 8 others: rank 9.
    assert found.image_to_text["R@1"] == pytest.approx(100 * 3 / 8)
    assert found.image_to_text["R@5"] == pytest.approx(100 * 6 / 8)
    assert found.image_to_text["mean_rank"] == pytest.approx((8 + 2 + 9 + 2 + 1 + 1 + 1 + 2) / 8)


def test_smaller_galleries_have_recalls_and_the_first_images_are_returned():
    tokens = torch.tensor([[0], [1], [2], [3], [4], [6], [5], [7]])
    distractors = {"easy": torch.tensor([[1], [0], [0], [0], [0], [0], [0], [0]])}
    found = judge_tokens(FirstTokenListener(), tokens, torch.arange(8), distractors)
    assert found.text_to_image["R@1"] == pytest.approx(75.0)
    # images 5 and 6, whose captions name each other, tie with image 0: rank 2 of two
    assert found.galleries["easy"]["R@1"] == pytest.approx(75.0)
    assert found.galleries["easy"]["MRR"] == pytest.approx(100 * (6 + 2 / 2) / 8)
    assert found.retrieved.shape == (8, 5)
    assert found.retrieved[:, 0].tolist() == [0, 1, 2, 3, 4, 6, 5, 7]


def test_galleries_exist_where_there_are_enough_images():
    pooled = torch.randn(101, 3)
    few, some, many = (sample_galleries(vectors) for vectors in (pooled[:100], pooled, torch.randn(1001, 3)))
    assert few == {}
    assert torch.equal(some["similar100"], find_similar_distractors(pooled, 99))
    assert torch.equal(some["random100"], draw_distractors(101, 99, 0))
    assert {name: tuple(rows.shape) for name, rows in some.items()} == {
        "random100": (101, 99),
        "similar100": (101, 99),
    }
    assert torch.equal(many["1000"], draw_distractors(1001, 999, 0))
    assert "1000" not in sample_galleries(torch.randn(1000, 3))


def test_a_constant_listener_ranks_the_target_last(toy):
    class ConstantListener(FirstTokenListener):
        def encode_image(self, pooled):
            return torch.ones(len(pooled), 4)

        def encode_text(self, message):
            return torch.ones(len(message), 4)

    found = judge_tokens(ConstantListener(), torch.ones(8, 2, dtype=torch.int64), torch.arange(8))
    assert found.by_caption.tolist() == [8] * 8
    assert found.image_to_text["R@1"] == 0


def test_captions_come_in_the_order_of_the_images_whatever_the_batches(toy):
    speaker, whole = toy.agents().speaker, toy.batch()
    fields = ("images", "pooled", "regions", "region_mask", "captions")

    def slice_batch(rows):
        return dataclasses.replace(whole, **{name: getattr(whole, name)[rows] for name in fields})

    for channel in (Greedy(), Beam(3)):
        together = generate_captions(speaker, [whole], channel, CPU, 12)
        in_parts = generate_captions(speaker, [slice_batch(slice(0, 3)), slice_batch(slice(3, 8))], channel, CPU, 12)
        assert together.tokens.shape == (8, 1, 6)
        for name in ("tokens", "images", "pooled"):
            assert torch.equal(getattr(together, name), getattr(in_parts, name))


def test_validation_metrics_depend_on_the_trained_agents(toy):
    agents = toy.agents()
    with torch.no_grad():
        agents.speaker.logit.bias[12] += 5  # UNK, which is banned
    metrics = Validation(agents.speaker, agents.listener, toy.cider, lambda: [toy.batch()], CPU, 12)()
    assert set(metrics) == {"cider", "recall@1", "recall@5", "recall@10"}
    generated = generate_captions(agents.speaker, [toy.batch()], Greedy(), CPU, 12)
    assert metrics["cider"] == pytest.approx(float(toy.cider(generated.tokens[:, 0], torch.arange(8)).mean()))
    assert set(Validation(agents.speaker, None, toy.cider, lambda: [toy.batch()], CPU, 12)()) == {"cider"}
    listener_metrics = Validation(None, agents.listener, None, lambda: [toy.batch()], CPU, 12)()
    assert listener_metrics["rsum"] == pytest.approx(sum(v for k, v in listener_metrics.items() if k != "rsum"))
    assert len(listener_metrics) == 7


class NoisyListener(torch.nn.Module):
    """A listener whose caption embeddings depend slightly on the position in the batch, like a rounding error."""

    def encode_text(self, message):
        return torch.eye(8)[message.tokens[:, 0]] + 1e-6 * torch.arange(len(message)).unsqueeze(1)


def test_equal_captions_are_encoded_once_and_returned_in_order():
    tokens = torch.tensor([[5, 0], [2, 0], [5, 0], [7, 0], [2, 0]])
    vectors = ListenerJudge(NoisyListener(), None, CPU).encode_text(JudgedCaptions(tokens, ()))
    assert torch.equal(vectors[0], vectors[2])
    assert torch.equal(vectors[1], vectors[4])
    assert vectors.argmax(1).tolist() == tokens[:, 0].tolist()


def test_a_text_judge_encodes_texts_not_ids():
    class NumberEncoder(torch.nn.Module):
        def encode_text(self, texts):
            return torch.eye(8)[[int(text.split()[-1]) for text in texts]]

        def encode_image(self, pooled):
            return pooled

    texts = [f"number {i}" for i in (0, 1, 2, 3, 4, 6, 5, 7)]
    judge = TextJudge(NumberEncoder(), lambda rows: torch.eye(8)[rows], CPU)
    found = judge_retrieval(judge, JudgedCaptions(torch.zeros(8, 2), texts), torch.arange(8), torch.arange(8))
    assert found.text_to_image["R@1"] == pytest.approx(75.0)
    rows = torch.tensor([2, 0])  # a gallery of two images, and two equal captions
    found = judge_retrieval(judge, JudgedCaptions(torch.zeros(3, 2), ["0", "2", "0"]), torch.tensor([1, 0, 1]), rows)
    assert found.by_caption.tolist() == [1, 1, 1]
    assert found.retrieved[:, 0].tolist() == [1, 0, 1]


def test_mirror_images_follow_all_others_in_the_store(toy):
    class MirroredStore:
        mirrored = True

        def __len__(self):
            return 8

        def pooled(self, rows):
            return rows[:, None].astype("float32")

    judge = make_judge(toy.agents().listener, MirroredStore(), CPU)
    assert judge.pooled(torch.tensor([3, 0])).flatten().tolist() == [3, 0]
    assert judge.mirrored(torch.tensor([3, 0])).flatten().tolist() == [11, 8]


def test_an_image_embedding_is_the_normalised_sum_with_the_mirror_image():
    class NormalisingListener(torch.nn.Module):
        def encode_image(self, pooled):
            return torch.nn.functional.normalize(pooled, dim=-1)

    straight, turned = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([[0.0, 5.0], [0.0, 1.0]])
    judge = ListenerJudge(NormalisingListener(), lambda rows: straight[rows], CPU, lambda rows: turned[rows])
    half = 0.5**0.5
    torch.testing.assert_close(judge.encode_image(torch.tensor([1, 0])), torch.tensor([[0.0, 1.0], [half, half]]))
