from dataclasses import replace

import torch

from pipeline.evaluation.evaluation_settings import RerankSettings
from pipeline.evaluation.rerank import Reranker, rank_candidates
from pipeline.vocabulary import Vocabulary

AXES = torch.eye(3)


def test_the_candidate_with_the_largest_margin_is_taken():
    # three images on the axes; the first image's second candidate is less similar to it, but has a larger margin
    text_vectors = torch.tensor([[[0.9, 0.8, 0.0], [0.7, 0.1, 0.0], [0.7, 0.0, 0.1]]])
    same = torch.tensor([[True, False, False]])
    ranking = rank_candidates(text_vectors, AXES[:1], AXES, same)
    torch.testing.assert_close(ranking.margins, torch.tensor([[0.1, 0.6, 0.6]]))
    assert ranking.best.tolist() == [1], "expected the first of two equally good candidates"
    assert ranking.ranks.tolist() == [[1, 1, 1]]


def test_ties_and_more_similar_images_worsen_the_rank():
    text_vectors = torch.tensor([[[0.5, 0.5, 0.6], [0.5, 0.5, 0.0], [0.2, 0.9, 0.9]]])
    ranking = rank_candidates(text_vectors, AXES[:1], AXES, torch.tensor([[True, False, False]]))
    assert ranking.ranks.tolist() == [[3, 2, 3]]
    torch.testing.assert_close(ranking.margins, torch.tensor([[-0.1, 0.0, -0.7]]))
    assert ranking.best.tolist() == [1]


def test_parts_equal_the_whole(monkeypatch):
    torch.manual_seed(0)
    text_vectors, images = torch.randn(7, 4, 5), torch.randn(7, 5)
    same = torch.eye(7, dtype=torch.bool)
    whole = rank_candidates(text_vectors, images, images, same)
    monkeypatch.setattr("pipeline.evaluation.rerank.MAX_SCORES", 1)
    parts = rank_candidates(text_vectors, images, images, same)
    assert parts.best.equal(whole.best)
    assert parts.ranks.equal(whole.ranks)
    assert parts.margins.equal(whole.margins)


def test_every_caption_retrieves_the_only_image():
    ranking = rank_candidates(
        torch.randn(2, 3, 5), torch.randn(2, 5), torch.zeros(0, 5), torch.zeros(2, 0, dtype=torch.bool)
    )
    assert ranking.ranks.eq(1).all()
    assert ranking.best.tolist() == [0, 0]


class ImageNumberJudge:
    """A judge that takes the caption's first token, minus 1, as the number of the image."""

    def embed(self, message, rows):
        first = [text.split()[:1] for text in message.texts]
        assert first == [[str(word)] if word else [] for word in message.tokens[:, 0].tolist()]
        return torch.eye(20)[message.tokens[:, 0] - 1], torch.eye(20)[rows]


def test_each_image_gets_the_caption_that_retrieves_it(toy):
    """The speaker's words are random: with many samples, one of them begins with the word of the image."""
    speaker, batch = toy.agents().speaker, replace(toy.batch(), images=torch.tensor([7, 3, 10, 4, 9, 5, 8, 6]))
    vocabulary = Vocabulary((*map(str, range(1, 12)), "UNK"))

    def measure_recall(samples):
        captions = Reranker(RerankSettings(samples=samples), ImageNumberJudge()).generate(
            speaker, [batch], vocabulary, torch.device("cpu")
        )
        assert captions.tokens.shape == (8, 1, 6)
        return (captions.tokens[:, 0, 0] == captions.images + 1).float().mean()

    assert measure_recall(200) == 1
    assert measure_recall(1) < 0.5


def test_a_temperature_of_samples_divides_the_speakers_logits(toy):
    speaker, vocabulary = toy.agents().speaker, Vocabulary((*map(str, range(1, 12)), "UNK"))

    def generate_tokens(temperature):
        reranker = Reranker(RerankSettings(samples=2, temperature=temperature), ImageNumberJudge())
        return reranker.generate(speaker, [toy.batch()], vocabulary, torch.device("cpu")).tokens

    tempered, plain = generate_tokens(0.125), generate_tokens(1.0)
    speaker.divide_logits(0.125)  # division by a power of two is exact
    assert tempered.equal(generate_tokens(1.0))
    assert not tempered.equal(plain)


class ParityJudge:
    """A judge with one embedding for even first tokens and one for odd ones; most image vectors are 0."""

    captions = torch.tensor([[0.9, 0.9], [0.2, 0.8]])
    images = torch.cat([torch.tensor([[0.6, 0.8], [1.0, 0.0]]), torch.zeros(18, 2)])

    def embed(self, message, rows):
        return self.captions[message.tokens[:, 0] % 2], self.images[rows]


def test_other_images_do_not_count_in_the_score_similarity(toy):
    """Image 0 has similarities 1.26 and .76 to the captions, and margins .36 and .56."""
    speaker, vocabulary = toy.agents().speaker, Vocabulary((*map(str, range(1, 12)), "UNK"))

    def choose_parities(score):
        reranker = Reranker(RerankSettings(samples=200, score=score), ParityJudge())
        captions = reranker.generate(speaker, [toy.batch()], vocabulary, torch.device("cpu"))
        return (captions.tokens[captions.images == 0, 0, 0] % 2).tolist()

    assert set(choose_parities("margin")) == {1}
    assert set(choose_parities("similarity")) == {0}
