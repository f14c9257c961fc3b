"""Pragmatic decoding as a logits processor: by hand, against the project's own decoder, and in commands."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from saywhich_world import paint
from tiny_captioners import BLIP_BEGIN, END, SPECIAL, WORDS
from tiny_judges import write_judge
from tiny_pretrained import StepRecorder, write_pretrained

import saywhich
from pipeline.channels.hard import Greedy
from pipeline.errors import UserError
from pipeline.evaluation.pragmatic_captions import stack_distractors
from pipeline.models.hub_captioner import HubDecoder
from pipeline.models.pragmatic_decoder import DistractorBatches, PragmaticDecoder
from pipeline.models.retrieval_pragmatics import TEMPERATURE, RetrievalPragmaticDecoder
from pipeline.models.unroll import generate
from pipeline.types import Batch
from saywhich.cli import main
from saywhich.encoded_photos import EncodedPhotos
from saywhich.judging.judge_sources import open_judge
from saywhich.pragmatic_decoding import PragmaticDecoding, PragmaticGallery
from saywhich.pretrained.pragmatic_generation import PragmaticProcessor, generate_pragmatic_candidates
from saywhich.pretrained.pretrained_speaker import GenerationSettings, PretrainedSpeaker
from saywhich.pretrained.retrieval_generation import RetrievalProcessor, generate_retrieval_candidates

ALPHA, LONGEST = 3.0, 6


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Write a captioner and a listener; return their folder."""
    top = tmp_path_factory.mktemp("pretrained")
    write_pretrained("blip", top / "blip")
    write_judge("clip", top / "clip")
    return top


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    return [paint(Path("photos", f"{seed}.png"), seed) for seed in range(4)]


def compute_log_s1(probabilities, prior):
    """Compute log S1 from `probabilities` (B, V), with the image in row 0, and the listener's `prior` (B,)."""
    posterior = prior.unsqueeze(1) * probabilities
    posterior = posterior[0] / posterior.sum(0)
    weights = probabilities[0] * posterior**ALPHA
    return (weights / weights.sum()).log()


def test_a_beam_keeps_the_listeners_posterior_of_the_continued_row():
    """An image and a distractor have two beams each; at the third step, both beams continue the second beam."""
    first = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])
    processor = PragmaticProcessor(ALPHA, torch.tensor([[True, True]]))
    begin = torch.full((4, 1), 9)
    found = processor(begin, first.repeat_interleave(2, 0).log())
    torch.testing.assert_close(found, compute_log_s1(first, torch.tensor([0.5, 0.5])).expand(4, -1))
    # rows: the image's beams, then the distractor's
    second = torch.tensor([[[0.2, 0.2, 0.6], [0.1, 0.8, 0.1]], [[0.3, 0.3, 0.4], [0.6, 0.2, 0.2]]])
    tokens = torch.tensor([[9, 0], [9, 1]]).repeat(2, 1)
    found = processor(tokens, second.flatten(0, 1).log()).unflatten(0, (2, 2))
    for beam, prior in enumerate([[0.5, 0.1], [0.3, 0.6]]):
        expected = compute_log_s1(second[:, beam], torch.tensor(prior))
        torch.testing.assert_close(found[:, beam], expected.expand(2, -1))
    third = torch.tensor([[0.4, 0.5, 0.1], [0.3, 0.3, 0.4]])
    tokens = torch.tensor([[9, 1, 2], [9, 1, 0]]).repeat(2, 1)
    found = processor(tokens, third.repeat_interleave(2, 0).log()).unflatten(0, (2, 2))
    for beam, prior in enumerate([[0.3 * 0.1, 0.6 * 0.2], [0.3 * 0.1, 0.6 * 0.6]]):
        torch.testing.assert_close(found[0, beam], compute_log_s1(third, torch.tensor(prior)))


def test_impossible_tokens_stay_impossible_and_make_nothing_undefined():
    """A processor of the model may forbid tokens for all images; a beam search may keep such a token for some steps."""
    scores = torch.tensor([[0.0, -torch.inf, 1.0], [2.0, -torch.inf, 0.0]])
    processor = PragmaticProcessor(ALPHA, torch.tensor([[True, True]]))
    found = processor(torch.full((2, 1), 9), scores)
    assert found[:, 1].isneginf().all()
    assert found[:, [0, 2]].isfinite().all()
    forced = torch.tensor([[-torch.inf, 0.0, -torch.inf]] * 2)
    found = processor(torch.tensor([[9, 1]] * 2), forced)
    assert found.tolist() == forced.tolist()


def test_the_listeners_distribution_by_hand():
    """The listener scores two of three tokens for one image and one distractor.

    A caption's embedding is the vector of its last token.
    """
    vectors = torch.nn.functional.normalize(torch.tensor([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0]]), dim=1)
    images = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    processor = RetrievalProcessor(ALPHA, images, lambda tokens: vectors[tokens[:, -1]], 0.5, considered=2)
    probabilities = torch.tensor([0.5, 0.3, 0.2])
    first, second = (vectors[:2] @ images[0].T / 0.5).exp()
    expected = torch.tensor([0.5 * (first[0] / first.sum()) ** ALPHA, 0.3 * (second[0] / second.sum()) ** ALPHA, 0.0])
    torch.testing.assert_close(
        processor(torch.tensor([[7]]), probabilities.log()[None])[0].exp(), expected / expected.sum()
    )


def test_captions_with_weight_0_are_those_of_the_speaker(models, photos):
    speaker = PretrainedSpeaker(str(models / "blip"))
    inputs = [speaker.prepare(path) for path in photos]
    gallery = PragmaticGallery(
        PragmaticDecoding(0.0),
        EncodedPhotos(torch.zeros(4, 1), tuple("abcd")),
        lambda rows: [inputs[row] for row in rows],
    )
    nearest = torch.tensor([[1, 2], [3, -1], [-1, -1], [0, 1]])
    for settings in (GenerationSettings(beam=3, max_tokens=LONGEST), GenerationSettings(samples=3, max_tokens=LONGEST)):
        assert generate_pragmatic_candidates(
            speaker, inputs, nearest, gallery, settings
        ) == speaker.generate_candidates(inputs, settings)


class BeginBan:
    """A logits processor that forbids BLIP's BOS, which the project's decoder never generates."""

    def __call__(self, tokens, scores):
        return scores.index_fill(1, torch.tensor([BLIP_BEGIN]), -torch.inf)


def build_decoder(models, speaker, inputs):
    """Return the captioner as the project's decoder, the tokenizer's ids of its tokens, and a function for batches."""
    numbers = [number for number in range(len(SPECIAL) + len(WORDS)) if number != END]
    own = HubDecoder.from_hub(str(models / "blip"), numbers, LONGEST, 0.0, None).eval()
    regions = speaker.model.vision_model(speaker.encode(inputs)["pixel_values"]).last_hidden_state

    def make_batch(rows):
        mask = torch.ones(len(rows), regions.shape[1], dtype=torch.bool)
        return Batch(rows, regions[rows, 0], regions[rows], mask, torch.zeros(len(rows), 1, dtype=torch.int64))

    return own, torch.tensor([END, *numbers]), make_batch


def generate_texts(decoder, ids, batch, speaker):
    """Return the decoder's greedy captions as the tokenizer's texts."""
    tokens = ids[generate(decoder, batch, Greedy(), torch.Generator()).tokens].tolist()
    ends = [row.index(END) if END in row else len(row) for row in tokens]
    return [
        speaker.tokenizer.decode(row[:end], skip_special_tokens=True) for row, end in zip(tokens, ends, strict=True)
    ]


@torch.inference_mode()
def test_captions_equal_those_of_the_projects_decoder(models, photos):
    speaker = PretrainedSpeaker(str(models / "blip"))
    inputs = [speaker.prepare(path) for path in photos]
    nearest = torch.tensor([[1, 2], [3, -1], [-1, -1], [0, 1]])
    gallery = PragmaticGallery(
        PragmaticDecoding(ALPHA),
        EncodedPhotos(torch.zeros(4, 1), tuple("abcd")),
        lambda rows: [inputs[row] for row in rows],
    )
    settings = GenerationSettings(beam=1, max_tokens=LONGEST)
    texts = generate_pragmatic_candidates(speaker, inputs, nearest, gallery, settings, [BeginBan()])
    own, ids, make_batch = build_decoder(models, speaker, inputs)
    distractors = DistractorBatches([make_batch(column.clamp_min(0)) for column in nearest.T], nearest >= 0)
    pragmatic = PragmaticDecoder(own, ALPHA, lambda _: distractors)
    assert texts == [[text] for text in generate_texts(pragmatic, ids, make_batch(torch.arange(4)), speaker)]
    assert texts != [[text] for text in generate_texts(own, ids, make_batch(torch.arange(4)), speaker)]


@pytest.mark.parametrize("family", ["blip", "git", "blip-2", "florence2", "idefics3"])
def test_each_token_follows_the_listeners_posterior_of_whole_prefixes(models, photos, family):
    """The listener encodes BLIP's prompt with the caption; captions of other families hold no prompt."""
    if not (models / family).exists():
        write_pretrained(family, models / family)
    prompt = {"prompt": "a red"} if family == "blip" else {}
    speaker, listener = PretrainedSpeaker(str(models / family), **prompt), open_judge(str(models / "clip"))
    listener.temperature, record, alpha = 0.05, StepRecorder(), 20.0
    inputs = [speaker.prepare(path) for path in photos]
    vectors = torch.from_numpy(listener.encode_photos([listener.prepare(path) for path in photos]))
    images = stack_distractors(vectors, vectors, torch.tensor([[1, 2], [3, -1], [-1, -1], [0, 1]]))
    settings = GenerationSettings(beam=1, max_tokens=LONGEST)
    captions = generate_retrieval_candidates(speaker, listener, inputs, images, settings, alpha, [record])
    begin, checked = 0 if family == "blip" else record.steps[0][0].shape[1], 0
    for (prefixes, scores), (longer, _) in pairwise(record.steps):
        for row, (tokens, token) in enumerate(zip(prefixes[:, begin:], longer[:, -1], strict=True)):
            best = scores[row].topk(10).indices
            texts = [speaker.tokenizer.decode([*tokens, word], skip_special_tokens=True) for word in best]
            cosines = listener.encode_texts(texts) @ vectors.T / 0.05
            rows = [[0, 1, 2], [1, 3], [2], [3, 0, 1]][row]
            posterior = cosines[:, rows].log_softmax(1)[:, 0]
            expected = scores[row].log_softmax(0)[best] + alpha * posterior
            if not torch.isin(tokens, torch.tensor([2, 3])).any():  # the caption has not ended
                assert expected[best == token] >= expected.max() - 1e-3
                checked += 1
    assert checked >= 2 * len(photos)
    assert captions[2] == speaker.generate_candidates(inputs, settings)[2]
    assert captions != speaker.generate_candidates(inputs, settings)


@torch.inference_mode()
def test_captions_by_the_listeners_posterior_equal_those_of_the_projects_decoder(models, photos):
    speaker, listener = PretrainedSpeaker(str(models / "blip")), open_judge(str(models / "clip"))
    listener.temperature = TEMPERATURE
    inputs = [speaker.prepare(path) for path in photos]
    vectors = torch.from_numpy(listener.encode_photos([listener.prepare(path) for path in photos]))
    images = stack_distractors(vectors, vectors, torch.tensor([[1, 2], [3, -1], [-1, -1], [0, 1]]))
    settings = GenerationSettings(beam=1, max_tokens=LONGEST)
    texts = generate_retrieval_candidates(speaker, listener, inputs, images, settings, ALPHA, [BeginBan()])
    own, ids, make_batch = build_decoder(models, speaker, inputs)

    def encode(tokens):
        captions = speaker.tokenizer.batch_decode(ids[tokens], skip_special_tokens=True)
        return listener.encode_texts([" ".join(text.split()) for text in captions])

    pragmatic = RetrievalPragmaticDecoder(own, ALPHA, lambda _: images, encode)
    assert texts == [[text] for text in generate_texts(pragmatic, ids, make_batch(torch.arange(4)), speaker)]
    assert texts != [[text] for text in generate_texts(own, ids, make_batch(torch.arange(4)), speaker)]


@pytest.mark.parametrize("decoding", [[], ["--beam", "2"], ["--samples", "3"]])
def test_the_command_takes_distractors_from_the_folder(models, photos, decoding, capsys):
    """A copy of a photo is no distractor of that photo; the listener computes the rank."""
    Path("photos/copy.png").write_bytes(photos[0].read_bytes())
    files = [*photos, Path("photos/copy.png")]
    pretrained = ["--speaker", str(models / "blip"), "--listener", str(models / "clip"), "--max-tokens", str(LONGEST)]
    options = ["--among", "photos", "--pragmatic", "3", "--distractors", "2", "--jsonl", "captions.jsonl", *decoding]
    assert main(["caption", "photos", *pretrained, *options]) == 0
    rows = [json.loads(line) for line in Path("captions.jsonl").read_text().splitlines()]
    assert [row["file"] for row in rows] == [str(path) for path in files]

    speaker, listener = PretrainedSpeaker(str(models / "blip")), open_judge(str(models / "clip"))
    vectors = torch.from_numpy(listener.encode_photos([listener.prepare(path) for path in files]))
    inputs = [speaker.prepare(path) for path in files]
    beam = int(decoding[1]) if "--beam" in decoding else 5
    settings = GenerationSettings(beam, 3 if "--samples" in decoding else None, whole_beam=False, max_tokens=LONGEST)
    for own, row in enumerate(rows):
        scores = vectors @ vectors[own]
        scores[[own, *([0, 4] if own in (0, 4) else [])]] = -torch.inf
        nearest = scores.argsort(descending=True, stable=True)[:2].unsqueeze(0)
        gallery = PragmaticGallery(
            PragmaticDecoding(3.0), EncodedPhotos(vectors, ()), lambda rows: [inputs[other] for other in rows]
        )
        (expected,) = generate_pragmatic_candidates(speaker, [inputs[own]], nearest, gallery, settings)
        assert sorted(row.get("candidates", [row["caption"]])) == sorted(expected)
        assert row["of"] == (4 if own in (0, 4) else 5)
        ranks = listener.encode_texts([row["caption"]])[0] @ vectors.T
        others = [other for other in range(5) if other != own and not {other, own} <= {0, 4}]
        assert row["rank"] == 1 + int((ranks[others] >= ranks[own]).sum())


def test_captions_of_the_command_are_those_of_the_python_call(models, photos):
    pretrained = ["--speaker", str(models / "blip"), "--listener", str(models / "clip"), "--max-tokens", str(LONGEST)]
    options = ["--among", "photos", "--csv", "captions.csv", "--pragmatic", "3"]
    assert main(["caption", "photos", *pretrained, *options]) == 0
    loaded = saywhich.load(models / "blip", listener=str(models / "clip"))
    model = replace(loaded, settings=GenerationSettings(max_tokens=LONGEST))
    paths = [str(path) for path in photos]
    found = model.caption(paths, among=paths, pragmatic=3.0)
    lines = [f"{path},{each.text},{each.rank},4,{each.margin:.4f}" for path, each in zip(paths, found, strict=True)]
    assert Path("captions.csv").read_text().splitlines()[1:] == lines
    assert [each.text for each in found] != [each.text for each in model.caption(paths)]
    more = ["--posterior", "listener", "--distractors", "2"]
    assert main(["caption", "photos", *pretrained, *options, *more]) == 0
    found = model.caption(paths, among=paths, pragmatic=3.0, posterior="listener", distractors=2)
    lines = [f"{path},{each.text},{each.rank},4,{each.margin:.4f}" for path, each in zip(paths, found, strict=True)]
    assert Path("captions.csv").read_text().splitlines()[1:] == lines
    with pytest.raises(UserError, match="give among"):
        model.caption(paths, pragmatic=3.0)


def test_the_temperature_applies_after_the_logits_processors(models, photos):
    """S1 uses the speaker's own probabilities, and the temperature applies to S1.

    A very small temperature or top-p gives greedy captions.
    """
    speaker, steps = PretrainedSpeaker(str(models / "blip"), device="cpu"), []

    def record_scores(tokens, scores):
        steps.append(scores.clone())
        return scores

    for temperature in (1.0, 0.25):
        settings = GenerationSettings(samples=2, temperature=temperature, max_tokens=1)
        speaker.generate_candidates([speaker.prepare(photos[0])], settings, [record_scores])
    torch.testing.assert_close(*steps)
    inputs = [speaker.prepare(path) for path in photos]
    greedy = speaker.generate_candidates(inputs, GenerationSettings(beam=1, max_tokens=LONGEST))
    for sharp in ({"temperature": 1e-6}, {"top_p": 1e-6}):
        settings = GenerationSettings(samples=2, max_tokens=LONGEST, **sharp)
        assert speaker.generate_candidates(inputs, settings) == [2 * texts for texts in greedy]
    plain = GenerationSettings(samples=2, max_tokens=LONGEST)
    assert speaker.generate_candidates(inputs, plain) != [2 * texts for texts in greedy]
