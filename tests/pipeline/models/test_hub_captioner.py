"""Captioners of transformers generate the same tokens as the library's `generate`, and LoRA trains only its weights."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import plain
import pytest
import torch
from PIL import Image
from plain import plain_unroll
from tiny_captioners import BEGIN, BLIP_BEGIN, END, IMAGE, KINDS, PAD, REGIONS, SIZES, TOWER, write_captioner
from tiny_pretrained import PROMPT_KINDS, change_json, write_pretrained

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import StraightThrough
from pipeline.data.tokenizer_vocabulary import TokenizerVocabulary
from pipeline.errors import UserError
from pipeline.features.extract import open_network
from pipeline.features.extractor import NetworkSettings
from pipeline.features.hub_tower import TOWERS
from pipeline.models.agent_files import load_agent, save_agents
from pipeline.models.decoder import RolloutDropout
from pipeline.models.guided import GuidedDecoder
from pipeline.models.hub_captioner import HubDecoder
from pipeline.models.unroll import generate, teacher_force
from pipeline.random import BatchRandom
from pipeline.runtime.hub_loading import CAPTIONERS, import_transformers
from pipeline.runtime.hub_prompts import CHAT_PROMPT, PATCHED, PROMPTED, SQUARE
from pipeline.types import Batch

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None or find_spec("peft") is None,
    reason="captioners need the extra: pip install 'saywhich[hub]'",
)
STEPS = 6
QUICK = ("blip", "florence2", "idefics3")  # kinds of `make test`: cross-attention, a prompt to an encoder, a chat
LORA = {"rank": 2, "alpha": 4, "targets": None}


class SmallCaptioner:
    """A small captioner in a folder, with its vocabulary and a batch of its image tower's features."""

    def __init__(self, kind, folder):
        self.kind, self.folder, self.lead = kind, str(folder), []
        if kind in KINDS:
            self.whole = write_captioner(kind, folder)
            self.inputs = {"pixel_values": torch.randn(4, 3, IMAGE, IMAGE, generator=rng())}
            with torch.no_grad():
                outputs = self.whole.get_submodule(TOWERS[self.whole.config.model_type])(**self.inputs)
            regions = outputs.last_hidden_state
            assert regions.shape[1] == REGIONS
            self.begin, self.end = BLIP_BEGIN if kind == "blip" else BEGIN, END
        else:
            regions = self.compute_regions(write_pretrained(kind, folder))
        self.tokens = TokenizerVocabulary.fetch(self.folder, folder / "tokens", [], 1000)
        captions = torch.tensor([[1, 4, 5, 0, 0, 0], [2, 3, 4, 5, 6, 7], [1, 0, 0, 0, 0, 0], [15, 14, 13, 12, 0, 0]])
        mask = torch.ones(regions.shape[:2], dtype=torch.bool)
        self.batch = Batch(torch.arange(4), regions.mean(1), regions, mask, captions)
        # the model's ids of the project's tokens
        self.token_ids = torch.tensor([self.end, *self.tokens.numbers, self.begin])

    def compute_regions(self, folder):
        """Load a captioner with a prompt; return its features of four photos, and keep the library's own inputs."""
        hub = import_transformers()
        self.whole = getattr(hub, CAPTIONERS[self.kind.removesuffix("-t5")]).from_pretrained(folder).eval()
        processor, random = hub.AutoProcessor.from_pretrained(folder), np.random.default_rng(0)
        photos = [Image.fromarray(random.integers(0, 255, (40, 50, 3), dtype=np.uint8)) for _ in range(4)]
        if self.kind in ("blip-2", "blip-2-t5"):
            self.inputs = processor(images=photos, return_tensors="pt")
            self.inputs["input_ids"] = torch.tensor([[3, 3, 3, 1]] * 4)  # three queries, BOS
            self.inputs["attention_mask"] = torch.ones(4, 4, dtype=torch.int64)
        elif self.kind == "florence2":
            change_json(folder / "generation_config.json", forced_bos_token_id=1)  # as in the published models
            self.whole.generation_config.forced_bos_token_id = 1
            self.inputs = processor(images=photos, text=["<CAPTION>"] * 4, return_tensors="pt")
        else:
            content = [{"type": "image"}, {"type": "text", "text": CHAT_PROMPT}]
            chat_prompt = processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True
            )
            images, options = [[photo] for photo in photos], {"do_image_splitting": False}
            if self.kind in PATCHED:
                images, options = [photo.resize((SQUARE, SQUARE), Image.Resampling.BICUBIC) for photo in photos], {}
            self.inputs = processor(images=images, text=[chat_prompt] * 4, return_tensors="pt", **options)
        self.end = 2
        self.lead, self.begin = ([2], 1) if self.kind == "florence2" else ([], int(self.inputs["input_ids"][0, -1]))
        self.begin = 0 if self.kind == "blip-2-t5" else self.begin
        network = open_network(NetworkSettings(f"hub/{folder}"))
        return network([network.prepare(photo) for photo in photos]).regions.clone()

    def compute_logits(self, input_ids):
        """Return the logits (4, T, V) after the tokens `input_ids` (4, T) by the model's own forward pass."""
        count, inputs = input_ids.shape[1], dict(self.inputs)
        if self.kind not in (*KINDS, "florence2", "blip-2-t5"):
            prompt = inputs["input_ids"]
            inputs["input_ids"] = torch.cat([prompt, input_ids[:, 1:]], 1)  # the prompt has the first of these tokens
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            if self.kind in PATCHED:
                inputs["mm_token_type_ids"] = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, count - 1))
            return self.whole(**inputs).logits[:, -count:]
        has_decoder = self.kind in ("vision-encoder-decoder", "gpt2", "florence2", "blip-2-t5")
        argument = "decoder_input_ids" if has_decoder else "input_ids"
        lead = torch.tensor([self.lead] * 4, dtype=torch.int64)
        return self.whole(**inputs, **{argument: torch.cat([lead, input_ids], 1)}).logits[:, -count:]

    def generate_tokens(self, **options):
        """Return the new tokens of each row by the model's own `generate`."""
        tokens = self.whole.generate(**self.inputs, **options)
        prompt = self.inputs.get("input_ids")
        has_own_start = self.kind in (*KINDS, "florence2", "blip-2-t5")
        return tokens[:, len(self.lead) + 1 if has_own_start else prompt.shape[1] :]

    def load_speaker(self, dropout=0.0, lora=None):
        torch.manual_seed(1)
        return HubDecoder.from_hub(self.folder, self.tokens.numbers, STEPS, dropout, lora).eval()


def rng():
    return torch.Generator().manual_seed(3)


def test_every_kind_that_is_trained_is_tested():
    assert {*KINDS, *PROMPT_KINDS} - {"gpt2", "blip-2-t5"} == CAPTIONERS.keys()
    assert {*PROMPT_KINDS} - {"blip-2-t5"} == {*PROMPTED}


def test_a_text_side_that_is_not_trained_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"^its text side: expected opt or t5, got gpt2; name another captioner$"):
        HubDecoder(10, {"model_type": "blip-2", "text_config": {"model_type": "gpt2"}})


def test_a_tower_that_drops_random_patches_is_refused(tmp_path):
    hub = import_transformers()
    write_captioner("vision-encoder-decoder", tmp_path)
    text = hub.BertConfig(**SIZES, vocab_size=21, is_decoder=True, add_cross_attention=True)
    config = hub.VisionEncoderDecoderConfig.from_encoder_decoder_configs(hub.ViTMAEConfig(**TOWER), text)
    config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = BEGIN, END, PAD
    hub.VisionEncoderDecoderModel(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"has a ViT-MAE encoder, which drops random patches .* name a captioner"):
        open_network(NetworkSettings(f"hub/{tmp_path}"))


@pytest.fixture(
    scope="module",
    params=[kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in (*KINDS, *PROMPT_KINDS)],
)
def captioner(request, tmp_path_factory):
    return SmallCaptioner(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def lora(captioner):
    """Return a speaker with LoRA whose product of matrices is not 0."""
    speaker = captioner.load_speaker(lora=LORA)
    with torch.no_grad():
        for name, parameter in speaker.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=rng())
    return speaker


def compute_hidden(speaker, batch):
    hidden, positions = speaker.teacher_force(
        batch, speaker.encode_image(batch), RolloutDropout(0.0, BatchRandom(batch, None))
    )
    return hidden, positions


def test_teacher_forced_logits_equal_the_models_own_forward_pass(captioner):
    speaker, tokens = captioner.load_speaker(), captioner.batch.captions
    inputs = torch.cat([torch.full((4, 1), speaker.vocabulary + 1), tokens[:, :-1]], 1)
    with torch.no_grad():
        expected = captioner.compute_logits(captioner.token_ids[inputs])
        hidden, positions = compute_hidden(speaker, captioner.batch)
        found = speaker.logits(hidden)
    torch.testing.assert_close(
        found, expected[..., captioner.token_ids[:-1]].flatten(0, 1)[positions], atol=1e-5, rtol=1e-4
    )
    assert len(positions) == 4 + 6 + 2 + 5
    assert found.std(0).mean() > 0.01  # logits depend on images and words


def test_step_by_step_states_equal_teacher_forcing(captioner):
    speaker, batch = captioner.load_speaker(), captioner.batch
    hidden, positions = compute_hidden(speaker, batch)
    state, steps = (
        speaker.begin(batch, speaker.encode_image(batch), RolloutDropout(0.0, BatchRandom(batch, None)), 1),
        [],
    )
    inputs = torch.cat([torch.full((4, 1), speaker.vocabulary + 1), batch.captions[:, :-1]], 1)
    for words in inputs.unbind(1):
        again, _ = speaker.step(speaker.word(words), state)  # a step does not change its state
        found, state = speaker.step(speaker.word(words), state)
        assert torch.equal(again, found)
        steps.append(found)
    torch.testing.assert_close(torch.stack(steps, 1).flatten(0, 1)[positions], hidden, atol=1e-5, rtol=1e-4)


def test_greedy_captions_are_those_of_generate(captioner):
    vocabulary = captioner.compute_logits(captioner.token_ids[captioner.batch.captions]).shape[2]
    never = set(range(vocabulary)) - set(captioner.token_ids[:-1].tolist())
    never -= {captioner.begin} if captioner.lead else set()  # this token is forced after the lead
    options = {"do_sample": False, "max_new_tokens": STEPS + len(captioner.lead), "suppress_tokens": sorted(never)}
    generated = captioner.generate_tokens(**options)
    tokens = generate(captioner.load_speaker(), captioner.batch, Greedy(), rng()).tokens
    for found, expected in zip(tokens.tolist(), generated.tolist(), strict=True):
        found = found[: found.index(0)] if 0 in found else found
        expected = expected[: expected.index(captioner.end)] if captioner.end in expected else expected
        assert captioner.token_ids[found].tolist() == expected
    if captioner.kind != "florence2":  # its tiny captioner generates one caption for all images
        assert len({tuple(row) for row in tokens.tolist()}) > 1


def make_channels():
    return {
        "st": StraightThrough(3),
        "psst": PartialSampling(StraightThrough(3), 0.5, "token"),
        "all whole": PartialSampling(StraightThrough(2), 1.0),
        "multinomial": Multinomial(3),
    }


@pytest.mark.parametrize("name", make_channels())
def test_the_unroll_and_every_gradient_equal_the_plain_form(captioner, name):
    speaker, batch = captioner.load_speaker(dropout=0.2).double().train(), captioner.batch
    batch = replace(batch, regions=batch.regions.double())
    with torch.no_grad():
        speaker.logit.bias[0] += 2  # some captions end early
    twin = deepcopy(speaker)
    message = generate(speaker, batch, make_channels()[name], rng())
    tokens, log_probs, _, captions = plain_unroll(twin, batch, make_channels()[name], rng())
    assert torch.equal(message.tokens, tokens)
    assert 0 < (tokens == 0).sum() < tokens.numel()
    found, expected = (
        (message.log_probs, log_probs)
        if name == "multinomial"
        else (message.distributions(speaker.vocabulary), captions)
    )
    torch.testing.assert_close(found, expected)
    weight = torch.randn(expected.shape, dtype=expected.dtype, generator=rng())
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    reached = 0
    for (path, parameter), plain_parameter in zip(speaker.named_parameters(), twin.parameters(), strict=True):
        if plain_parameter.grad is not None and plain_parameter.grad.abs().max() > 1e-12:
            reached += 1
            torch.testing.assert_close(
                parameter.grad, plain_parameter.grad, atol=1e-10, rtol=1e-7, msg=lambda text, n=path: n + text
            )
    assert reached > (30 if captioner.kind in KINDS else 10)  # the other kinds have one layer
    assert speaker.word.weight.grad.abs().max() > 0
    assert speaker.logit.weight.grad.abs().max() > 0


@pytest.mark.parametrize("channel", [Beam(3), Beam(4, samples=2)])
def test_beams_are_those_of_the_plain_unroll(captioner, channel):
    speaker = captioner.load_speaker()
    found = generate(speaker, captioner.batch, channel, rng())
    expected = plain.plain_generate(speaker, captioner.batch, channel, rng())
    assert torch.equal(found.tokens, expected.tokens)


def test_teacher_forcing_equals_the_plain_form(captioner):
    speaker = captioner.load_speaker()
    found, expected = teacher_force(speaker, captioner.batch), plain.plain_teacher_force(speaker, captioner.batch)
    torch.testing.assert_close(found.log_probs, expected.log_probs, atol=1e-5, rtol=1e-4)


def test_only_lora_weights_have_a_gradient(captioner, lora):
    base = captioner.load_speaker()
    lora.train().requires_grad_(True)  # as in a step that trains the speaker
    message = generate(lora, captioner.batch, StraightThrough(2), rng())
    (message.distributions(lora.vocabulary) * torch.randn(lora.vocabulary + 1, generator=rng())).sum().backward()
    updated = {name for name, p in lora.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    assert len(updated) > 10
    assert all("lora_" in name for name in updated)
    assert {name for name, p in lora.named_parameters() if p.requires_grad} >= updated
    lora.requires_grad_(False)
    assert not any(p.requires_grad for p in lora.parameters())
    fresh = captioner.load_speaker(lora=LORA)  # the initial product of its matrices is 0
    torch.testing.assert_close(compute_hidden(fresh, captioner.batch)[0], compute_hidden(base, captioner.batch)[0])
    difference = compute_hidden(lora.eval(), captioner.batch)[0] - compute_hidden(base, captioner.batch)[0]
    assert difference.abs().max() > 1e-3


def test_targets_of_lora_may_be_named_and_unknown_ones_are_reported_in_one_line(captioner):
    name = {"gpt2": "c_attn", "blip-2-t5": "q"}.get(captioner.kind, "query" if captioner.kind in KINDS else "q_proj")
    speaker = captioner.load_speaker(lora={**LORA, "targets": (name,)})
    layers = {path.rpartition(".lora_A")[0] for path, _ in speaker.named_parameters() if ".lora_A" in path}
    assert layers
    assert all(path.endswith(name) for path in layers)
    with pytest.raises(UserError, match=r"lora.targets of a speaker in pretrain: .*nowhere") as caught:
        captioner.load_speaker(lora={**LORA, "targets": ("nowhere",)})
    assert "\n" not in caught.value.args[0]


@pytest.mark.parametrize("settings", [None, LORA], ids=["full", "lora"])
def test_a_saved_captioner_generates_the_same_captions(captioner, lora, settings, tmp_path):
    speaker = captioner.load_speaker() if settings is None else lora
    speaker.add_null_image()
    with torch.no_grad():
        speaker.null.normal_(generator=rng())
    save_agents(tmp_path / "weights.safetensors", {"speaker": speaker})
    loaded = load_agent(tmp_path / "weights.safetensors", "speaker")
    save_agents(tmp_path / "guided.safetensors", {"speaker": GuidedDecoder(speaker, 2.0)})
    guided = load_agent(tmp_path / "guided.safetensors", "speaker")
    expected, found = (
        generate(agent, captioner.batch, Beam(2), rng()) for agent in (GuidedDecoder(speaker, 2.0), guided)
    )
    assert torch.equal(expected.tokens, found.tokens)
    assert str(captioner.folder) not in json.dumps(loaded.arguments)
    assert [p.requires_grad for p in loaded.parameters()] == [p.requires_grad for p in speaker.parameters()]
    expected, found = (generate(agent, captioner.batch, Multinomial(2), rng()) for agent in (speaker, loaded))
    assert torch.equal(expected.tokens, found.tokens)
    assert torch.equal(expected.log_probs, found.log_probs)


def test_the_null_image_is_one_trained_vector(captioner, lora):
    speaker, batch = lora, captioner.batch
    speaker.add_null_image()
    speaker.requires_grad_(True)
    without_regions = replace(batch, region_mask=torch.zeros_like(batch.region_mask))
    hidden, _ = compute_hidden(speaker, without_regions)
    changed, _ = compute_hidden(speaker, replace(without_regions, regions=batch.regions + 1))
    assert torch.equal(hidden, changed)
    assert (hidden - compute_hidden(speaker, batch)[0]).abs().max() > 1e-3
    (hidden * torch.randn(hidden.shape, generator=rng())).sum().backward()
    assert speaker.null.grad.abs().max() > 0


def test_the_models_own_dropout_is_off(captioner):
    speaker = captioner.load_speaker(dropout=0.5).train()
    torch.manual_seed(0)
    first, _ = compute_hidden(speaker, captioner.batch)
    torch.manual_seed(1)
    assert torch.equal(compute_hidden(speaker, captioner.batch)[0], first)
    assert 'dropout_prob": 0.1' not in json.dumps(speaker.arguments)


def test_words_of_another_tokenizer_are_reported(captioner):
    for token_ids in ((5, captioner.end), (5, 10**6)):
        with pytest.raises(UserError, match=r"do not consist of its tokens; set prepare.tokenizer"):
            HubDecoder.from_hub(captioner.folder, token_ids, STEPS, 0.0, None)


@pytest.mark.parametrize(
    ("kind", "file", "values", "found"),
    [
        ("gpt2", "generation_config.json", {"eos_token_id": []}, r"2, \[\]"),
        ("gpt2", "generation_config.json", {"eos_token_id": -1}, "2, -1"),
        ("gpt2", "generation_config.json", {"decoder_start_token_id": [2, 2]}, r"\[2, 2\], 3"),
        ("gpt2", "generation_config.json", {"forced_bos_token_id": "x"}, "2, 3, 'x'"),
        ("blip", "config.json", {"sep_token_id": None}, "20, None"),
    ],
    ids=str,
)
def test_special_tokens_that_are_no_ids_are_reported(tmp_path, kind, file, values, found):
    captioner = SmallCaptioner(kind, tmp_path)
    config = json.loads((tmp_path / file).read_text())
    change_json(tmp_path / file, **({"text_config": config["text_config"] | values} if kind == "blip" else values))
    with pytest.raises(UserError, match=rf"expected token ids in {file}.*: .*_token_id.*; got {found}; correct them$"):
        captioner.load_speaker()
    if kind == "gpt2":
        change_json(tmp_path / file, eos_token_id=3, decoder_start_token_id=500, forced_bos_token_id=4)
        with pytest.raises(UserError, match="the prepared captions do not consist of its tokens"):
            captioner.load_speaker()


def test_an_encoder_of_very_many_classes_is_saved_without_their_names(tmp_path):
    captioner = SmallCaptioner("gpt2", tmp_path)
    encoder = json.loads((tmp_path / "config.json").read_text())["encoder"]
    names = {"id2label": {str(i): f"class {i}" for i in range(10_001)}}
    names |= {"label2id": {name: int(i) for i, name in names["id2label"].items()}}
    change_json(tmp_path / "config.json", encoder=encoder | names)
    speaker = captioner.load_speaker()
    save_agents(tmp_path / "weights.safetensors", {"speaker": speaker})
    assert load_agent(tmp_path / "weights.safetensors", "speaker").arguments == speaker.arguments


def test_captions_longer_than_the_text_sides_positions_are_refused(tmp_path):
    captioner = SmallCaptioner("blip", tmp_path)
    with pytest.raises(
        UserError, match=rf"^{tmp_path}: its text side has 32 .* lower prepare\.max_words to 30 or less$"
    ):
        HubDecoder.from_hub(captioner.folder, captioner.tokens.numbers, 31, 0.0, None)
    assert HubDecoder.from_hub(captioner.folder, captioner.tokens.numbers, 30, 0.0, None).max_words == 30


def test_an_unavailable_captioner_is_reported_in_one_line_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"nobody/nothing.*hf download nobody/nothing --local-dir FOLDER") as caught:
        HubDecoder.from_hub("nobody/nothing", (5,), STEPS, 0.0, None)
    assert "\n" not in caught.value.args[0]
