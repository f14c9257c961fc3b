from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.evaluation.human_likelihood import compute_human_log_likelihood
from pipeline.models.unroll import teacher_force

CPU = torch.device("cpu")


def make_prepared_data(toy):
    """Return prepared data in which image 2 has one caption only."""
    toy.references[2] = toy.references[2][:1]

    def read_references(images):
        found = np.zeros((len(images), 3, 6), np.int32)
        for position, image in enumerate(images):
            for k, words in enumerate(toy.references[image]):
                found[position, k, : len(words)] = words
        return found

    return SimpleNamespace(references=read_references)


def test_the_mean_is_over_words_of_all_captions_and_their_ends(toy):
    speaker = toy.agents(dropout=0.5).speaker.train()
    found = compute_human_log_likelihood(speaker, [toy.batch()], make_prepared_data(toy), CPU)
    log_probs = []
    for caption in range(3):
        batch = toy.batch()
        for image, texts in enumerate(toy.references):
            if caption < len(texts):
                batch.captions[image] = 0
                batch.captions[image, : len(texts[caption])] = torch.tensor(texts[caption])
        message = teacher_force(speaker.eval(), batch)
        rows = [image for image, texts in enumerate(toy.references) if caption < len(texts)]
        log_probs += message.log_probs[rows][message.mask[rows]].tolist()
    assert found == pytest.approx(sum(log_probs) / len(log_probs), rel=1e-5)


def test_a_speaker_with_zero_logits_gives_every_token_the_same_probability(toy):
    speaker = toy.agents().speaker
    with torch.no_grad():
        speaker.logit.weight.zero_()
        speaker.logit.bias.zero_()
    assert compute_human_log_likelihood(speaker, [toy.batch()], make_prepared_data(toy), CPU) == pytest.approx(
        -np.log(13), rel=1e-6
    )
