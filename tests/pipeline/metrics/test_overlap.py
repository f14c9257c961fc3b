"""BLEU and ROUGE-L of token ids equal pycocoevalcap's on the same tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.rouge.rouge import Rouge

from pipeline.metrics.cider import CiderD, compute_document_frequencies
from pipeline.metrics.overlap import compute_bleu_per_caption, compute_rouge_l

IMAGES, STEPS, VOCABULARY = 40, 9, 5


def draw_caption(rng: np.random.Generator, shortest: int) -> list[int]:
    return rng.integers(1, VOCABULARY + 1, rng.integers(shortest, STEPS + 1)).tolist()


@pytest.fixture(params=[True, False], ids=["EOS counts", "words only"])
def scored_captions(request):
    """Return a CIDEr-D scorer, tokens of captions, and captions and references as texts of token ids."""
    rng = np.random.default_rng(4)
    references = [[draw_caption(rng, 1) for _ in range(1 + i % 5)] for i in range(IMAGES)]
    caption_texts = [draw_caption(rng, 0) for _ in references]
    caption_texts[0], caption_texts[1], caption_texts[2] = [], references[1][0], [1] * STEPS
    tokens = torch.zeros(IMAGES, STEPS, dtype=torch.int64)
    for row, words in zip(tokens, caption_texts, strict=True):
        row[: len(words)] = torch.tensor(words, dtype=torch.int64)
    eos = request.param
    keys, counts = compute_document_frequencies(references, max_words=STEPS, eos=eos)
    scorer = CiderD.build(references, keys, counts, IMAGES, max_words=STEPS, eos=eos)

    def join_ids(words: list[int]) -> str:
        return " ".join(map(str, [*words, 0] if eos and len(words) < STEPS else words))

    human = {i: [join_ids(words) for words in texts] for i, texts in enumerate(references)}
    return scorer, tokens, {i: [join_ids(words)] for i, words in enumerate(caption_texts)}, human


def test_bleu_of_each_caption_equals_pycocoevalcap(scored_captions):
    scorer, tokens, texts, human = scored_captions
    _, expected = Bleu(4).compute_score(human, texts, verbose=0)
    found = compute_bleu_per_caption(*scorer.pair_with_references(tokens, torch.arange(IMAGES)))
    assert (found > 0.5).any()
    np.testing.assert_allclose(found.numpy(), np.array(expected), rtol=1e-9, atol=1e-30)


def test_rouge_l_of_each_caption_equals_pycocoevalcap(scored_captions):
    scorer, tokens, texts, human = scored_captions
    _, expected = Rouge().compute_score(human, texts)
    found = compute_rouge_l(*scorer.pair_with_references(tokens, torch.arange(IMAGES)))
    assert len(found.unique()) > IMAGES // 2
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_captions_of_one_image_are_scored_each_by_itself(scored_captions):
    scorer, tokens, *_ = scored_captions
    images = torch.full((IMAGES,), 4)
    together = scorer.pair_with_references(tokens, images)
    pairs = [scorer.pair_with_references(row.unsqueeze(0), images[:1]) for row in tokens]
    torch.testing.assert_close(
        compute_bleu_per_caption(*together), torch.cat([compute_bleu_per_caption(*pair) for pair in pairs], 1)
    )
    torch.testing.assert_close(compute_rouge_l(*together), torch.cat([compute_rouge_l(*pair) for pair in pairs]))
