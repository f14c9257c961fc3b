"""The evaluation protocol on a small prepared data set: generated captions, their images and their judges."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline.channels.hard import Beam
from pipeline.channels.search import ban_repeated_ngrams
from pipeline.data.batches import iterate_sequentially
from pipeline.data.corpus import AnnotatedCaption, Corpus, CorpusImage
from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.data.prepared import PreparedData, write_prepared
from pipeline.errors import UserError
from pipeline.evaluation.baseline_captions import build_random_captioner
from pipeline.evaluation.caption_evaluation import Evaluation
from pipeline.evaluation.evaluation_settings import RerankSettings
from pipeline.evaluation.generate import generate_captions
from pipeline.evaluation.hard_gallery import build_vector_gallery
from pipeline.evaluation.human_likelihood import compute_human_log_likelihood
from pipeline.evaluation.judges import JudgedCaptions, ListenerJudge, judge_retrieval
from pipeline.evaluation.multi_sample import MultiSample
from pipeline.evaluation.pragmatic_captions import PragmaticCaptions
from pipeline.evaluation.rerank import Reranker
from pipeline.metrics.language import LanguageScorer
from pipeline.models.att2in import Att2in
from pipeline.models.listener import Listener

CPU = torch.device("cpu")
IMAGES, SPLITS = 12, ("train", "val", "test")
NOUNS = ("ball", "dog", "cat", "tree", "car", "bird", "cup", "hat", "boat", "cow", "kite", "lamp")


@pytest.fixture(scope="module")
def prepared_data(tmp_path_factory) -> PreparedData:
    """Return twelve images with two captions each; every third image is in the same split."""
    images = []
    for n, noun in enumerate(NOUNS):
        words = (("a", noun, "is", "here"), ("the", noun))
        texts = tuple(AnnotatedCaption(" ".join(each), each) for each in words)
        images.append(CorpusImage(str(100 + n), f"{n}.jpg", SPLITS[n % 3], texts))
    folder = tmp_path_factory.mktemp("prepared")
    write_prepared(Corpus("nouns", tuple(images), ()), folder, min_count=0, max_words=5, count_words="all")
    return PreparedData.load(folder)


@pytest.fixture(scope="module")
def store(prepared_data) -> FeatureStore:
    rng, folder = np.random.default_rng(0), prepared_data.folder / "features"
    folder.mkdir()
    with FeatureWriter(folder, IMAGES, 4, (3, 6)) as writer:
        writer.write(np.arange(IMAGES), rng.normal(size=(IMAGES, 4)), rng.normal(size=(IMAGES, 3, 6)))
    return FeatureStore(folder)


@pytest.fixture
def speaker(prepared_data) -> Att2in:
    """Return a speaker whose words differ between images, that repeats words, and whose UNK is probable."""
    torch.manual_seed(1)
    speaker = Att2in(len(prepared_data.vocabulary), 6, words=6, hidden=8, attention=6, dropout=0.5, max_words=5)
    with torch.no_grad():
        speaker.logit.weight *= 3
        speaker.logit.bias[0] -= 2
        speaker.logit.bias[prepared_data.vocabulary.unk] += 5
    return speaker.train()


@pytest.fixture(scope="module")
def judge(prepared_data, store) -> ListenerJudge:
    torch.manual_seed(2)
    listener = Listener(len(prepared_data.vocabulary), 4, words=6, hidden=6)
    torch.nn.init.normal_(listener.word.weight)
    return ListenerJudge(listener, lambda rows: torch.from_numpy(store.pooled(rows.numpy())), CPU)


LANGUAGE = LanguageScorer(())  # shared by all tests, because it tokenises each text once


def make_evaluation(prepared_data, store, judges=None, beam: int = 3, **options) -> Evaluation:
    return Evaluation(prepared_data, store, judges or {}, LANGUAGE, beam, CPU, **options)


def test_a_split_of_one_image_is_reported_before_captions_are_generated():
    prepared = SimpleNamespace(folder=Path("prepared"), rows=lambda split: np.array([7]))
    evaluation = Evaluation(prepared, None, {}, None, 2, torch.device("cpu"))
    with pytest.raises(UserError, match="prepared: expected two or more images in the split val, found 1; add"):
        evaluation.evaluate_split(None, "val")


@pytest.mark.parametrize("split", ["val", "test"])
def test_captions_are_those_of_the_requested_beam_and_split(prepared_data, store, speaker, split):
    found = {}
    for beam, no_repeat in ((1, None), (3, None), (3, 1)):
        evaluation = make_evaluation(prepared_data, store, beam=beam, no_repeat=no_repeat)
        results, columns = evaluation.evaluate_split(speaker.train(), split)
        channel = ban_repeated_ngrams(Beam(beam), no_repeat)
        batches = iterate_sequentially(prepared_data, store, prepared_data.rows(split), 8)
        generated = generate_captions(speaker, batches, channel, CPU, prepared_data.vocabulary.unk)
        texts = [prepared_data.vocabulary.decode(row) for row in generated.tokens[:, 0].tolist()]
        assert columns["caption"] == texts
        assert columns["image"] == prepared_data.rows(split).tolist()
        assert columns["id"] == [str(100 + row) for row in prepared_data.rows(split)]
        assert columns["file"] == [f"{row}.jpg" for row in prepared_data.rows(split)]
        assert columns["split"] == [split] * 4
        assert results["images"] == 4
        assert "UNK" not in " ".join(texts)
        found[beam, no_repeat] = texts
    assert len(set(map(tuple, found.values()))) == 3, "expected other captions for another beam"
    reward = SimpleNamespace(eos_in_reward=True, document_frequencies="train")
    assert "|decode=beam:3,no-repeat:1|" in evaluation.signature(("val",), reward, 1.0)


def test_every_judge_ranks_generated_and_human_captions_among_the_split(prepared_data, store, speaker, judge):
    rows = torch.from_numpy(prepared_data.rows("val"))
    hard_gallery = build_vector_gallery(lambda images: torch.eye(IMAGES)[images], 3)
    evaluation = make_evaluation(
        prepared_data, store, {"own": judge}, hard_gallery=hard_gallery, hard_gallery_name="features:3"
    )
    results, columns = evaluation.evaluate_split(speaker, "val")
    generated = generate_captions(
        speaker, iterate_sequentially(prepared_data, store, rows.numpy(), 8), Beam(3), CPU, prepared_data.vocabulary.unk
    )
    distractors = {"neighbourhood": hard_gallery(rows.numpy())}
    found = judge_retrieval(judge, JudgedCaptions(generated.tokens[:, 0], []), torch.arange(4), rows, distractors)
    own = results["judges"]["own"]
    assert {name: own[name] for name in found.recalls()} == found.recalls()
    assert own["galleries"] == found.galleries
    assert columns["rank_own"] == found.by_caption.tolist()
    assert columns["neighbourhood_own"] == found.among["neighbourhood"].tolist()
    assert columns["retrieved_own"] == rows[found.retrieved].tolist()
    assert {row for each in columns["retrieved_own"] for row in each} == set(rows.tolist())
    human = torch.tensor(prepared_data.references(rows.numpy())).flatten(0, 1).long()
    human_retrieval = judge_retrieval(
        judge, JudgedCaptions(human, []), torch.arange(4).repeat_interleave(2), rows, distractors
    )
    assert own["human"] == {**human_retrieval.recalls(), "galleries": human_retrieval.galleries}
    assert results["diversity"]["human_log_likelihood"] == compute_human_log_likelihood(
        speaker, iterate_sequentially(prepared_data, store, rows.numpy(), 8), prepared_data, CPU
    )


def test_baselines_are_judged_and_the_listener_can_rerank(prepared_data, store, speaker, judge):
    evaluation = make_evaluation(
        prepared_data, store, {"own": judge}, baselines={"random": build_random_captioner(prepared_data, store)}
    )
    results, columns = evaluation.evaluate_split(speaker, "val")
    rows = prepared_data.rows("val")
    texts = build_random_captioner(prepared_data, store)(rows, [])
    assert columns["random_caption"] == texts
    tokens = torch.zeros(4, 5, dtype=torch.int64)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text.split())] = torch.tensor(prepared_data.vocabulary.encode(text.split()))
    found = judge_retrieval(judge, JudgedCaptions(tokens, texts), torch.arange(4), torch.from_numpy(rows))
    assert results["baselines"]["random"]["judges"]["own"]["text_to_image"] == found.text_to_image
    assert not any(name.startswith("human_") for name in results["baselines"]["random"])
    reranker = Reranker(RerankSettings(samples=6), judge)
    _, columns = make_evaluation(prepared_data, store, {"own": judge}, rerank=reranker, no_repeat=1).evaluate_split(
        speaker, "val"
    )
    reranked = reranker.generate(
        speaker, iterate_sequentially(prepared_data, store, rows, 8), prepared_data.vocabulary, CPU, 1
    )
    assert columns["caption"] == [prepared_data.vocabulary.decode(row) for row in reranked.tokens[:, 0].tolist()]


@pytest.mark.parametrize("posterior", ["speaker", "listener"])
def test_pragmatic_captions_replace_the_speakers_own(prepared_data, store, speaker, judge, posterior):
    decoding, rows = PragmaticCaptions(5.0, 2, posterior, judge), prepared_data.rows("val")
    _, columns = make_evaluation(prepared_data, store, {"own": judge}, pragmatic=decoding, no_repeat=1).evaluate_split(
        speaker, "val"
    )
    _, plain = make_evaluation(prepared_data, store, {"own": judge}, no_repeat=1).evaluate_split(speaker, "val")

    def read_batch(images):
        return next(iterate_sequentially(prepared_data, store, images, len(images)))

    pragmatic_speaker = decoding.bind(speaker, rows, read_batch, prepared_data.vocabulary)
    channel = ban_repeated_ngrams(Beam(3), 1)
    generated = generate_captions(pragmatic_speaker, [read_batch(rows)], channel, CPU, prepared_data.vocabulary.unk)
    assert columns["caption"] == [prepared_data.vocabulary.decode(row) for row in generated.tokens[:, 0].tolist()]
    assert columns["caption"] != plain["caption"]


def test_the_signature_names_reranking_guidance_and_pragmatic_decoding(prepared_data, store, judge):
    reward = SimpleNamespace(eos_in_reward=True, document_frequencies="train")
    reranking = make_evaluation(
        prepared_data,
        store,
        {"own": judge},
        rerank=Reranker(RerankSettings(samples=6, temperature=0.5, score="similarity", listener="judge"), judge),
    )
    pragmatic = make_evaluation(
        prepared_data, store, {"own": judge}, pragmatic=PragmaticCaptions(5.0, 2, "listener", judge)
    )
    assert "|rerank=samples:6,by:similarity,temperature:0.5,listener:judge|" in reranking.signature(
        ("val",), reward, 1.0
    )
    part = "|guidance=1.5|pragmatic=alpha:5,distractors:2,posterior:listener,among:split|"
    assert part in pragmatic.signature(("val",), reward, 1.5)


def test_caption_sets_repeat_no_banned_ngram(prepared_data, store, speaker):
    for no_repeat in (1, None):
        evaluation = make_evaluation(prepared_data, store, multi_sample=MultiSample(4, 3), no_repeat=no_repeat)
        _, columns = evaluation.evaluate_split(speaker, "val")
        for name in ("samples", "beams"):
            words = [text.split() for texts in columns[name] for text in texts]
            assert all(len(set(each)) == len(each) for each in words) is (no_repeat == 1)


def test_the_best_caption_of_a_wide_beam_is_its_first(prepared_data, store, speaker):
    scored = []

    class RecordingScorer:
        tokenise = staticmethod(LANGUAGE.tokenise)

        def score(self, texts, references, *names):
            scored.append(list(texts))
            return LANGUAGE.score(texts, references, *names)

    evaluation = Evaluation(prepared_data, store, {}, RecordingScorer(), 3, CPU, multi_sample=MultiSample(2, 3))
    results, columns = evaluation.evaluate_split(speaker, "val")
    first, last = ([beam[rank] for beam in columns["beams"]] for rank in (0, -1))
    assert first == columns["caption"] != last
    assert first in scored[1 + 3 + 2 :]  # after the scores of the captions and of both sets
    assert last not in scored[1 + 3 + 2 :]
    assert "best" in results["multi_sample"]["beams"]
