"""Judges of open_clip and transformers against the libraries' own preprocessing and forward passes."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from captions_in_scripts import LATIN, OTHER_SCRIPTS
from PIL import Image
from safetensors.torch import load_file, save_file
from saywhich_world import paint
from tiny_judges import LONGEST, MODELS, write_judge
from torch.nn.functional import normalize

import saywhich
from pipeline.errors import UserError
from pipeline.runtime.hub_loading import import_transformers
from pipeline.runtime.torchvision_cpu import declare_operators
from saywhich.judging.clip_metrics import CLIP_SCORE, PAC_SCORE, average_with_reference
from saywhich.judging.hub_judge import HubJudge
from saywhich.judging.judge_sources import open_encoder, open_judge
from saywhich.judging.open_clip_judge import OpenClipJudge
from saywhich.judging.retrieval_scores import judge_row

SHORT = ["a red dog", "A red ball!", "the box"]
LONG = "the dog on the box on the ball on the dog"
CLIP = "open_clip/ViT-S-32-alt"
SMALL = {
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "patch_size": 32},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    return [paint(folder / f"{seed}.png", seed, size) for seed, size in enumerate([(40, 50), (90, 30), (64, 64)])]


@pytest.fixture(scope="module", params=MODELS)
def family(request, tmp_path_factory):
    """Write a model of a family; return the name of the family and the folder."""
    folder = tmp_path_factory.mktemp("hub") / request.param
    write_judge(request.param, folder)
    return request.param, folder


def assert_close(found, expected):
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected), atol=1e-5, rtol=0)


def test_a_hub_judge_has_the_embeddings_of_the_librarys_own_forward(family, photos):
    name, folder = family
    judge = open_judge(str(folder))
    assert isinstance(judge, HubJudge)
    assert judge.metric == (CLIP_SCORE if name == "clip" else None)
    hub, texts = import_transformers(), [*SHORT, LONG]
    model = getattr(hub, MODELS[name]).from_pretrained(folder).eval()
    assert judge.temperature == pytest.approx(1 / model.logit_scale.exp().item())
    processor = hub.AutoProcessor.from_pretrained(folder)
    inputs = processor(
        text=texts, images=[Image.open(path).convert("RGB") for path in photos], padding="max_length",
        truncation=True, max_length=LONGEST, return_tensors="pt",
    )  # fmt: skip
    with torch.inference_mode():
        expected = model(**inputs)
    image_vectors = judge.encode_photos([judge.prepare(path) for path in photos])
    assert image_vectors.shape == (3, judge.size)
    assert_close(image_vectors, expected.image_embeds)
    assert_close(judge.encode_texts(texts), expected.text_embeds)
    assert_close(judge.encode_texts(texts[:1]), expected.text_embeds[:1])  # padded as in a batch with a longer text
    assert np.abs(image_vectors[0] - image_vectors[1]).max() > 0.01  # photos differ


def test_a_hub_judge_reports_truncated_captions(family):
    judge = open_judge(str(family[1]))
    assert judge.find_truncated(["a", LONG]) == [LONG]
    assert judge.find_unknown(["xyz", "a green dog", *OTHER_SCRIPTS]) == OTHER_SCRIPTS


def test_a_hub_judge_judges_captions(family, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name, folder = family
    captions = {path.name: text for path, text in zip(photos, SHORT, strict=True)}
    found = saywhich.judge(captions, photos[0].parent, judges=[str(folder)])
    judge = open_judge(str(folder))
    image_vectors = judge.encode_photos([judge.prepare(path) for path in photos])
    cosines = judge.encode_texts(SHORT).numpy() @ image_vectors.T
    ranks = (cosines >= cosines.diagonal()[:, None]).sum(1)
    (row,) = found.rows
    assert row.ranks[folder.name].among_all.tolist() == ranks.tolist()
    assert ((folder.name, "CLIPScore") in row.scores) == (name == "clip")
    # CLIPScore's prompt leaves one of the tiny model's 16 tokens for a caption
    assert ["are cut" in note for note in found.notes] == [True] * (name == "clip")


def test_a_hub_judge_with_code_of_its_own_is_refused(family, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family[0], "auto_map": {"AutoModel": "evil.Evil"}}))
    with pytest.raises(UserError, match="has auto_map, which loads code or unchecked files"):
        open_judge(str(tmp_path))


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "clip"
    write_judge("clip", folder)
    return folder


def copy_with_change(folder: Path, out: Path, file: str, *keys: str, value: object) -> Path:
    """Copy a model's folder and change one value of a JSON file."""
    shutil.copytree(folder, out)
    content = json.loads((out / file).read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    (out / file).write_text(json.dumps(content))
    return out


def test_the_digest_of_a_judge_depends_on_config_and_processor(clip_folder, tmp_path):
    """Models with equal weights compute different vectors for another activation or mean colour."""
    changes = (
        ("config.json", "text_config", "hidden_act", "gelu"),
        ("processor_config.json", "image_processor", "image_mean", [0.5, 0.5, 0.5]),
    )
    shutil.copytree(clip_folder, tmp_path / "same")
    found = [open_judge(str(clip_folder)).digest, open_judge(str(tmp_path / "same")).digest]
    for number, (file, *keys, value) in enumerate(changes):
        copy = copy_with_change(clip_folder, tmp_path / f"{number}", file, *keys, value=value)
        found.append(open_judge(str(copy)).digest)
    assert found[0] == found[1]
    assert len(set(found)) == 3


@pytest.mark.parametrize(
    ("file", "keys", "value"),
    [
        ("config.json", ("dtype",), []),
        ("config.json", ("initializer_factor",), []),
        ("config.json", ("logit_scale_init_value",), 0),
        ("config.json", ("text_config", "num_attention_heads"), 0),
        ("config.json", ("vision_config", "patch_size"), "a\nb"),
        ("processor_config.json", ("image_processor", "crop_size"), {"height": [], "width": 32}),
        ("processor_config.json", ("image_processor", "crop_size"), {"height": 64, "width": 64}),
        ("processor_config.json", ("image_processor", "image_mean"), ["x", 0, 0]),
        ("tokenizer.json", ("version",), 0),
        ("tokenizer.json", ("model",), {}),
    ],
)
def test_bad_values_in_a_judge_s_files_are_reported_in_one_line(clip_folder, tmp_path, photos, file, keys, value):
    folder = copy_with_change(clip_folder, tmp_path / "judge", file, *keys, value=value)
    with pytest.raises(UserError, match=r"^--judge .*take the model from its publisher") as error:
        open_judge(str(folder)).encode_photos([open_judge(str(folder)).prepare(photos[0])])
    assert "\n" not in error.value.args[0]


@pytest.mark.parametrize(
    ("file", "keys", "value", "line"),
    [
        ("config.json", ("text_config", "num_hidden_layers"), 10**5, "num_hidden_layers 100,000"),
        ("config.json", ("vision_config", "image_size"), 10**5, "image_size 100,000"),
        ("processor_config.json", ("image_processor", "crop_size"), {"height": 10**5, "width": 9}, "height 100,000"),
        ("processor_config.json", ("image_processor", "size"), {"shortest_edge": 10**5}, "shortest_edge 100,000"),
        ("tokenizer.json", ("model", "vocab", "a</w>"), 10**9, "the number 1000000000"),
        ("tokenizer.json", ("padding",), {"strategy": {"Fixed": 10**9}}, "the number 1000000000"),
    ],
)
def test_sizes_that_no_model_has_are_refused_before_anything_is_built(clip_folder, tmp_path, file, keys, value, line):
    folder = copy_with_change(clip_folder, tmp_path / "judge", file, *keys, value=value)
    with pytest.raises(UserError, match=rf"{file}: has {line}, expected .*[\d,]+; take the model from"):
        open_judge(str(folder))


def test_another_kind_of_model_is_no_judge(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(UserError, match=r"expected a dual encoder \(clip, siglip, siglip2\), found the kind bert"):
        open_judge(str(tmp_path))


@pytest.fixture(scope="module")
def clip_file(tmp_path_factory):
    """Write a small CLIP of open_clip; return the file of weights, the model and the transform."""
    declare_operators()
    import open_clip

    torch.manual_seed(0)
    model, _, transform = open_clip.create_model_and_transforms("ViT-S-32-alt", **SMALL)
    path = tmp_path_factory.mktemp("clip") / "clip.safetensors"
    save_file(model.state_dict(), path)
    return path, model.eval(), transform


def test_an_open_clip_judge_has_the_embeddings_of_open_clip(clip_file, photos):
    import open_clip

    path, model, transform = clip_file
    judge = OpenClipJudge(CLIP, str(path), SMALL, 64)
    images = torch.stack([transform(Image.open(photo).convert("RGB")) for photo in photos])
    tokens = open_clip.get_tokenizer("ViT-S-32-alt", context_length=16)([*SHORT, LONG])
    with torch.inference_mode():
        expected = normalize(model.encode_image(images), dim=1), normalize(model.encode_text(tokens), dim=1)
    assert_close(judge.encode_photos([judge.prepare(photo) for photo in photos]), expected[0])
    assert_close(judge.encode_texts([*SHORT, LONG]), expected[1])
    assert judge.find_unknown([*LATIN, *OTHER_SCRIPTS]) == OTHER_SCRIPTS
    # 14 words, BOS and EOS fit
    assert judge.find_truncated(["a dog", LONG, 40 * "dog ", "dog " * 14]) == [40 * "dog "]
    assert judge.metric == CLIP_SCORE
    assert judge.temperature == pytest.approx(1 / model.logit_scale.exp().item())


def test_truncated_captions_are_found_though_the_tokenizer_pads_with_eos(clip_file, tmp_path):
    """SigLIP's tokenizer ends and pads texts with the same token."""
    declare_operators()
    from open_clip.tokenizer import HFTokenizer
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({"</s>": 0, "dog": 1}, unk_token="dog"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    options = {"tokenizer_object": tokenizer, "eos_token": "</s>", "pad_token": "</s>", "unk_token": "dog"}
    import_transformers().PreTrainedTokenizerFast(**options).save_pretrained(tmp_path)
    judge = OpenClipJudge(CLIP, str(clip_file[0]), SMALL, 64)
    judge._network.tokenizer = HFTokenizer(str(tmp_path), context_length=16)
    texts = ["dog " * times for times in (14, 15, 16, 17, 200)]  # 15 words and EOS fit
    assert judge.find_truncated(texts) == texts[2:]


def test_pac_s_is_twice_the_cosine_and_ref_pac_s_averages_it_with_the_nearest_reference(clip_file, photos, tmp_path):
    path, model, transform = clip_file
    weights = load_file(path)
    weights["text_projection"] *= -1  # the random weights give negative cosines
    save_file(weights, tmp_path / "pac_s.safetensors")
    judge = OpenClipJudge(CLIP, str(tmp_path / "pac_s.safetensors"), SMALL, 64, PAC_SCORE)
    captions, references = [[text] for text in SHORT], [["a red dog", "a box"], [], ["the blue box"]]
    images = torch.from_numpy(judge.encode_photos([judge.prepare(photo) for photo in photos]))
    scores, _ = judge_row(judge, "pac", captions, references, images, torch.empty(3, 0, dtype=torch.int64))
    import open_clip

    tokenise = open_clip.get_tokenizer("ViT-S-32-alt", context_length=16)

    def embed(*texts):
        with torch.inference_mode():
            found = model.encode_text(tokenise([f"A photo depicts {text}" for text in texts]))
            return -normalize(found, dim=1).double()

    with torch.inference_mode():
        pixels = torch.stack([transform(Image.open(photo).convert("RGB")) for photo in photos])
        image_vectors = normalize(model.encode_image(pixels), dim=1).double()
    cosines = (embed(*SHORT) * image_vectors).sum(1)
    assert (cosines > 0).all()
    assert scores["pac", "PAC-S"].value == pytest.approx(2 * float(cosines.mean()), abs=1e-6)
    nearest = [max(float(embed(SHORT[row])[0] @ other) for other in embed(*references[row])) for row in (0, 2)]
    means = [2 / (1 / (2 * own) + 1 / near) for own, near in zip(cosines[[0, 2]].tolist(), nearest, strict=True)]
    assert scores["pac", "RefPAC-S"].value == pytest.approx(sum(means) / 2, abs=1e-6)
    assert ("pac", "CLIPScore") not in scores
    pairs = torch.tensor([[0.6, 0.8], [-0.6, 0.8]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert PAC_SCORE.score(*pairs).tolist() == pytest.approx([1.2, 0.0])
    assert average_with_reference(torch.tensor([1.2]), torch.tensor([-0.6])).tolist() == [0]


def test_pac_s_needs_a_file_of_weights_that_fit_its_network(clip_file):
    with pytest.raises(UserError, match=r"give pac_s/ViT-B-32=FILE.safetensors or pac_s/ViT-L-14=FILE"):
        open_judge("pac_s/ViT-B-32")
    with pytest.raises(
        UserError,
        match=r"--judge pac_s/ViT-B-32=.*clip\.safetensors, .*: has the shape .*give weights of open_clip/ViT-B",
    ):
        open_judge(f"pac_s/ViT-B-32={clip_file[0]}")


def test_missing_weights_are_reported_in_one_line(monkeypatch, caplog):
    import huggingface_hub

    def fail(*arguments, **options):
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)  # this function also returns cached weights
    with pytest.raises(UserError) as error:
        open_judge("open_clip/ViT-B-32.openai")
    assert str(error.value) == (
        "--judge open_clip/ViT-B-32.openai: its weights are not on this machine and cannot be fetched; where there is "
        "a network, run `hf download timm/vit_base_patch32_clip_224.openai open_clip_model.safetensors --local-dir "
        "FOLDER` and give --judge open_clip/ViT-B-32.openai=FOLDER/open_clip_model.safetensors; an exported model "
        "works offline: --judge DIR"
    )
    with pytest.raises(UserError, match=r"give --neighbours mobilenetv2_100=FILE.safetensors$"):
        open_encoder("mobilenetv2_100")
    with pytest.raises(UserError, match=r"^--neighbours open_clip/ViT-B-32\.openai: its weights are not on this"):
        open_encoder("open_clip/ViT-B-32.openai")
    assert caplog.messages == []
    with pytest.raises(UserError, match="--judge nothing: no such judge; give a folder that saywhich"):
        open_judge("nothing")
