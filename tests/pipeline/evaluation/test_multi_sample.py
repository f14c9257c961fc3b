import dataclasses

import pytest
import torch

from pipeline.channels.hard import Beam, Multinomial
from pipeline.evaluation.generate import generate_captions
from pipeline.evaluation.multi_sample import MultiSample, measure_sets
from pipeline.metrics import java
from pipeline.metrics.language import LanguageScorer
from pipeline.models.unroll import generate
from pipeline.vocabulary import Vocabulary

CPU = torch.device("cpu")


def slice_batch(batch, rows, step):
    fields = ("images", "pooled", "regions", "region_mask", "captions")
    return dataclasses.replace(batch, step=step, **{name: getattr(batch, name)[rows] for name in fields})


def test_sets_belong_to_their_images_best_first_and_are_reproducible(toy):
    speaker, vocabulary = toy.agents(dropout=0.5).speaker, Vocabulary(tuple("abcdefghijkl"))
    with torch.no_grad():
        speaker.logit.bias[vocabulary.unk] += 5
    sets = MultiSample(samples=3, beams=4).generate(speaker, lambda: [toy.batch()], vocabulary, CPU)
    assert {name: [len(one) for one in each] for name, each in sets.items()} == {
        "samples": [3] * 8, "beams": [4] * 8
    }  # fmt: skip
    for name, channel in (("samples", Multinomial(3, requires_grad=False)), ("beams", Beam(4, 4))):
        tokens = generate_captions(speaker, [toy.batch()], channel, CPU, 12).tokens
        assert sets[name] == [[vocabulary.decode(row) for row in rows] for rows in tokens.tolist()], name
    assert not any("l" in text for each in sets.values() for one in each for text in one), (
        "expected captions without UNK"
    )
    assert all(len(set(one)) == 4 for one in sets["beams"])
    assert MultiSample(3, 4).generate(speaker, lambda: [toy.batch()], vocabulary, CPU) == sets


def test_samples_depend_on_the_number_of_the_batch_alone(toy):
    speaker, batch = toy.agents().speaker, toy.batch()
    first, second = slice_batch(batch, slice(0, 4), 0), slice_batch(batch, slice(4, 8), 1)
    channel = Multinomial(5, requires_grad=False)
    together, separate, renumbered = (
        generate_captions(speaker, batches, channel, CPU, 12).tokens
        for batches in ([first, second], [second], [dataclasses.replace(second, step=0)])
    )
    assert together.shape == (8, 5, 6)
    assert torch.equal(together[4:], separate)
    assert not torch.equal(renumbered, separate)
    assert torch.equal(
        generate(speaker, batch, channel, torch.Generator().manual_seed(3)).tokens,
        generate(speaker, batch, Multinomial(5), torch.Generator().manual_seed(3)).tokens,
    )
    assert generate(speaker, batch, channel, torch.Generator()).log_probs is None


def test_sets_are_measured_on_penn_treebank_tokens_and_cider_is_their_mean():
    sets = [["A dog runs.", "a dog , runs"], ["two cats sit here", "a bird"]]
    references = [["a dog runs", "the dog is running"], ["two cats sit", "cats sit on a mat"]]
    with LanguageScorer(["BLEU-4"]) as language:
        found, reasons = measure_sets(sets, references, language)
        ciders = [language.score(list(each), references, ["CIDEr"]).scores["CIDEr"] for each in zip(*sets, strict=True)]
        assert set(language.score(["a dog", "a cat"], references).scores) == {"BLEU-4"}
    assert not reasons
    assert found["captions"] == 2
    assert found["CIDEr"] == pytest.approx(sum(ciders) / 2)
    assert ciders[0] != pytest.approx(ciders[1])
    assert found["Div-1"] == pytest.approx((3 / 6 + 6 / 6) / 2)  # without the comma and the full stop, in lower case


def test_the_reason_is_recorded_where_the_tokeniser_fails(monkeypatch):
    def raise_not_computed(texts, timeout):
        raise java.NotComputedError("tokeniser: no Java")

    monkeypatch.setattr(java, "tokenise_ptb", raise_not_computed)
    with LanguageScorer(["CIDEr"]) as language:
        found, reasons = measure_sets([["a", "b"]], [["a"]], language)
    assert found == {"captions": 2}
    names = ("CIDEr", "Div-1", "Div-2", "mBLEU-4 corpus", "mBLEU-4 per caption")
    assert reasons == dict.fromkeys(names, "tokeniser: no Java")
