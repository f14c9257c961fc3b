"""Pretrained captioners of every family against forward passes of transformers, and the command with each family."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from saywhich_world import paint
from tiny_captioners import BEGIN, BLIP_BEGIN
from tiny_judges import write_judge
from tiny_pretrained import FAMILIES, StepRecorder, write_pretrained

from pipeline.runtime.hub_loading import import_transformers
from pipeline.runtime.hub_prompts import CHAT_PROMPT
from saywhich.cli import main
from saywhich.encoded_photos import EncodedPhotos
from saywhich.judging.judge_sources import open_judge
from saywhich.pragmatic_decoding import PragmaticDecoding, PragmaticGallery
from saywhich.pretrained.pragmatic_generation import generate_pragmatic_candidates
from saywhich.pretrained.pretrained_speaker import GenerationSettings, PretrainedSpeaker

# families of `make test`: with cross-attention, with a prompted encoder, and a chat model
QUICK = ("blip", "florence2", "idefics3")
SIZES = [(40, 50), (90, 30), (64, 64)]


@pytest.fixture(
    scope="module",
    params=[family if family in QUICK else pytest.param(family, marks=pytest.mark.slow) for family in FAMILIES],
)
def family(request, tmp_path_factory):
    """Write a captioner of a family; return the name of the family and the folder."""
    return request.param, write_pretrained(request.param, tmp_path_factory.mktemp("pretrained") / request.param)


@pytest.fixture(scope="module")
def listener(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listener") / "clip"
    write_judge("clip", folder)
    return str(folder)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    return [paint(Path("photos", f"{seed}.png"), seed, size) for seed, size in enumerate(SIZES)]


def compute_logits(family, folder, image, tokens):
    """Compute the logits (T, V) of T generated tokens with the forward pass of transformers."""
    hub, count = import_transformers(), len(tokens)

    def prepend(*begin):
        return torch.tensor([[*begin, *tokens]])

    if family == "gpt2":
        model = hub.VisionEncoderDecoderModel.from_pretrained(folder).eval()
        pixels = hub.AutoImageProcessor.from_pretrained(folder)(image, return_tensors="pt").pixel_values
        return model(pixel_values=pixels, decoder_input_ids=prepend(BEGIN)).logits[0, :count]
    processor = hub.AutoProcessor.from_pretrained(folder)
    if family in ("blip", "git", "blip-2", "blip-2-t5"):
        pixels = processor(images=image, return_tensors="pt").pixel_values
        if family == "blip":
            model = hub.BlipForConditionalGeneration.from_pretrained(folder).eval()
            return model(pixel_values=pixels, input_ids=prepend(BLIP_BEGIN)).logits[0, :count]
        if family == "git":
            model = hub.GitForCausalLM.from_pretrained(folder).eval()
            return model(pixel_values=pixels, input_ids=prepend(BEGIN)).logits[0, -count - 1 : -1]
        model = hub.Blip2ForConditionalGeneration.from_pretrained(folder).eval()
        if family == "blip-2-t5":
            prompt = torch.tensor([[3, 3, 3, 1]])  # three query tokens and BOS
            return model(pixel_values=pixels, input_ids=prompt, decoder_input_ids=prepend(0)).logits[0, :count]
        return model(pixel_values=pixels, input_ids=prepend(3, 3, 3, 1)).logits[0, 3 : 3 + count]
    model = hub.AutoModelForImageTextToText.from_pretrained(folder).eval()
    if family == "florence2":
        inputs = processor(images=image, text="<CAPTION>", return_tensors="pt")
        return model(**inputs, decoder_input_ids=prepend(2)).logits[0, :count]
    content = [{"type": "image"}, {"type": "text", "text": CHAT_PROMPT}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    inputs = processor(images=[image], text=[text], return_tensors="pt")
    prompt = inputs["input_ids"].shape[1]
    inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([tokens])], 1)
    for name, value in (("attention_mask", 1), ("mm_token_type_ids", 0)):
        if name in inputs:
            inputs[name] = torch.nn.functional.pad(inputs[name], (0, count), value=value)
    return model(**inputs).logits[0, prompt - 1 : prompt - 1 + count]


@torch.inference_mode()
def test_a_speaker_has_the_likelihoods_of_the_librarys_own_forward(family, photos):
    name, folder = family
    speaker, recorder = PretrainedSpeaker(str(folder)), StepRecorder()
    inputs = [speaker.prepare(path) for path in photos]
    speaker.generate_candidates(inputs, GenerationSettings(samples=2, max_tokens=7), [recorder])
    begin = recorder.steps[0][0].shape[1]
    tokens, scores = recorder.steps[-1][0][:, begin:], torch.stack([each for _, each in recorder.steps], 1)
    assert len(tokens) == 2 * len(photos)
    compared = 0
    for row, caption in enumerate(tokens.tolist()):
        ends = [position for position, token in enumerate(caption) if token in (2, 3)]
        caption = caption[: min(ends, default=len(caption))]
        expected = compute_logits(name, folder, inputs[row // 2].image, [*caption, 1])[: len(caption) + 1]
        found = scores[row, : len(caption) + 1]
        torch.testing.assert_close(found.log_softmax(1), expected.log_softmax(1), atol=1e-5, rtol=0)
        compared += len(caption)
    assert compared > 10
    first = scores[::2, 0].log_softmax(1)
    assert (first[0] - first[1]).abs().max() > 1e-3  # photos differ


@torch.inference_mode()
def test_each_token_follows_bayes_rule_over_whole_prefixes(family, photos):
    """The forward pass of transformers gives log p of each prefix; photo 1 has one distractor, and photo 2 has none."""
    name, folder = family
    speaker, recorder, alpha = PretrainedSpeaker(str(folder)), StepRecorder(), 30.0
    inputs = [speaker.prepare(path) for path in photos]
    distractors = EncodedPhotos(torch.zeros(3, 1), ("a", "b", "c"))
    gallery = PragmaticGallery(PragmaticDecoding(alpha), distractors, lambda rows: [inputs[row] for row in rows])
    nearest, settings = torch.tensor([[2, 1], [0, -1], [-1, -1]]), GenerationSettings(beam=1, max_tokens=7)
    candidates = generate_pragmatic_candidates(speaker, inputs, nearest, gallery, settings, [recorder])
    begin, tokens = recorder.steps[0][0].shape[1], recorder.steps[-1][0]
    captions = [row[begin:] for row in tokens.tolist()]
    assert captions[0::3] == captions[1::3] == captions[2::3]
    changed = 0
    for photo, (caption, distractor_rows) in enumerate(zip(captions[::3], nearest.tolist(), strict=True)):
        caption = caption[
            : min((position for position, token in enumerate(caption) if token in (2, 3)), default=len(caption))
        ]
        images = [inputs[row].image for row in (photo, *distractor_rows) if row >= 0]
        by_image = torch.stack([compute_logits(name, folder, image, [*caption, 1]).log_softmax(1) for image in images])
        each = by_image[:, : len(caption)].gather(2, torch.tensor(caption).view(1, -1, 1).expand(len(images), -1, 1))
        prefix = each.squeeze(2).cumsum(1) - each.squeeze(2)  # log p of the prefix by image
        posterior = (prefix.unsqueeze(2) + by_image[:, : len(caption)]).log_softmax(0)[0]
        scores = by_image[0, : len(caption)] + alpha * posterior
        caption_scores = scores.gather(1, torch.tensor(caption).unsqueeze(1)).squeeze(1)
        assert (caption_scores >= scores.max(1).values - 1e-3).all()
        changed += int((by_image[0, : len(caption)].argmax(1) != torch.tensor(caption)).sum())
    assert changed
    assert candidates[2] == speaker.generate_candidates(inputs, settings)[2]


def test_the_command_writes_the_candidate_with_the_largest_margin(family, photos, listener, capsys):
    speaker_options = ["--speaker", str(family[1]), "--samples", "3", "--max-tokens", "6"]
    gallery_options = ["--among", "photos", "--listener", listener, "--jsonl", "captions.jsonl"]
    assert main(["caption", "photos", *speaker_options, *gallery_options]) == 0
    assert capsys.readouterr().out == ""
    rows = [json.loads(line) for line in Path("captions.jsonl").read_text().splitlines()]
    assert [row["file"] for row in rows] == [str(path) for path in photos]
    judge = open_judge(listener)
    image_vectors = torch.from_numpy(judge.encode_photos([judge.prepare(path) for path in photos]))
    for own, row in enumerate(rows):
        assert len(row["candidates"]) == 3
        scores = judge.encode_texts(row["candidates"]) @ image_vectors.T
        distractor_scores = torch.cat([scores[:, :own], scores[:, own + 1 :]], 1)
        margins = scores[:, own] - distractor_scores.amax(1)
        assert margins[0] == pytest.approx(row["margin"], abs=1e-5)
        assert margins[0] >= margins.max() - 1e-6
        assert row["rank"] == 1 + int((distractor_scores[0] >= scores[0, own]).sum())
        assert row["of"] == 3
    assert (
        main(["caption", *map(str, reversed(photos)), *speaker_options, "--batch", "3", "--jsonl", "again.jsonl"]) == 0
    )
    again = [json.loads(line) for line in Path("again.jsonl").read_text().splitlines()]
    assert [sorted(row["candidates"]) for row in again[::-1]] == [sorted(row["candidates"]) for row in rows]


def test_a_caption_of_a_beam_is_generated_in_half_precision(family, photos, capsys, monkeypatch):
    precisions, original = [], PretrainedSpeaker.generate_candidates

    def record_precision(self, *arguments):
        precisions.append(self.model.dtype)
        return original(self, *arguments)

    monkeypatch.setattr(PretrainedSpeaker, "generate_candidates", record_precision)
    options = ["--speaker", str(family[1]), "--dtype", "bfloat16", "--beam", "2", "--max-tokens", "6"]
    assert main(["caption", "photos/0.png", *options]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("photos/0.png\t")
    assert precisions == [torch.bfloat16]


def test_a_chat_model_is_prompted_for_a_language(family, photos):
    name, folder = family
    if name not in ("idefics3", "smolvlm", "qwen2_5_vl"):
        pytest.skip("no chat model")
    speaker = PretrainedSpeaker(str(folder), language="German", prompt="What is this?")
    tokens = speaker.encode([speaker.prepare(photos[0])])["input_ids"][0]
    text = speaker.tokenizer.decode(tokens, skip_special_tokens=True)
    assert "What is this? Answer in German.assistant:" in text


def test_a_pretrained_listener_retrieves_photos(photos, listener, capsys):
    Path("photos/broken.png").write_bytes(b"no photo")
    for _ in range(2):  # the first search computes the embeddings, the second reads them from the cache
        assert main(["find", "a red dog", "photos", "--listener", listener, "--top", "2"]) == 1
        found = capsys.readouterr()
        assert "broken.png: the image cannot be decoded" in found.err
        judge = open_judge(listener)
        image_vectors = torch.from_numpy(judge.encode_photos([judge.prepare(path) for path in photos]))
        scores = image_vectors @ judge.encode_texts(["a red dog"])[0]
        best = scores.argsort(descending=True)[:2].tolist()
        assert found.out == "".join(f"{scores[row]:.3f}\t{photos[row]}\n" for row in best)
    assert main(["find", "红色的狗", "photos", "--listener", listener]) == 1
    assert capsys.readouterr().err.startswith("note: most words of this text are unknown to clip: 红色的狗\n")
    assert main(["find", "a red dog", "photos", "--listener", listener, "--model", "x"]) == 2
    assert capsys.readouterr().err.startswith("--model names a trained model, with a listener of its own: leave out")
