"""Fine-tuning of pretrained captioners by a fixed CLIP, with small random models in folders."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from stage_runs import enter_copy, run_stage, run_stages
from test_own_photos import draw_photos
from tiny_captioners import KINDS, write_captioner
from tiny_judges import write_judge
from tiny_pretrained import PROMPT_KINDS, write_pretrained
from whole_profiles import load_profile

import saywhich
from pipeline.config.load import load, resolve_method_settings
from pipeline.data.feature_store import FeatureStore
from pipeline.errors import UserError
from pipeline.features.extract import open_network
from pipeline.features.extractor import NetworkSettings
from pipeline.runtime.torchvision_cpu import declare_operators
from pipeline.training.loop import Training
from pipeline.workflow import stage as stage_module
from pipeline.workflow.training import build_training, load_training_data
from saywhich.exporting import export_model
from stages import adapt, evaluate, train

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None or find_spec("peft") is None,
    reason="captioners need the extra: pip install 'saywhich[hub]'",
)
ROOT = Path(__file__).parents[1]
CLIP = {
    "vision_cfg": {"image_size": 64, "layers": 1, "width": 64, "patch_size": 32},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
PHOTO = "data/external/photos/0.jpg"
TUNED = ("mle", "psst_multinomial", "wtf_rl", "rloo", "grpo", "discritune")
FAST = ("mle", "psst_multinomial", "grpo")  # `make test-all` tries the other methods, too


def shrink_profile(retriever: str = "open_clip") -> dict[str, Any]:
    """Return the profile folder_blip with local models in place of those of the hub, and with one epoch per training.

    `retriever` is 'open_clip' or a family of tiny_judges.
    """
    params = load_profile("folder_blip")
    assert tuple(params["methods"]) == TUNED
    params["prepare"]["shares"]["seed"] = 4  # gives six photos to train, two to val and two to test
    params["prepare"] |= {"tokenizer": "captioner", "max_words": 8}
    clip = {"network": "open_clip/ViT-S-32-alt", "weights": "clip.safetensors", "options": CLIP}
    size: int | None = 64
    if retriever != "open_clip":
        clip, size = {"network": "hub/retriever", "weights": "hub"}, None
    params["features"]["main"] |= {"network": "hub/captioner", "batch": 4}
    params["features"]["clip"] |= clip | {"image_size": size, "batch": 4}
    params["pretrain"]["clip"] |= clip
    params["pretrain"]["speaker"] |= {"model": "captioner", "lora": {"rank": 2, "alpha": 4}}
    one_epoch = {"epochs": 1, "validate_every": 1, "min_steps": 0, "batch": 2}
    for role in ("listener", "judge"):
        params["pretrain"][role] |= {"word_dim": 8, "hidden_dim": 8}
        params["pretrain"][role]["optimisation"] |= one_epoch
    for section in ("train", "adapt"):
        params[section]["optimisation"] |= one_epoch
    params["train"]["optimisation"] |= {"group_size": 2, "learning_rate": 0.01}
    params["retriever"] |= {
        "hidden_dims": [8],
        "beam": 2,
        "optimisation": {"epochs": 1, "batch": 2, "learning_rate": 0.01},
    }
    params["evaluate"]["metrics"] = ["CIDEr"]
    return params


def write_family(kind: str, folder: Path) -> None:
    (write_captioner if kind in KINDS else write_pretrained)(kind, folder)


def prepare_run(kind: str, folder: Path, retriever: str = "open_clip") -> Path:
    """Run all stages that precede joint training, on ten drawn photos in `folder`."""
    declare_operators()
    import open_clip

    draw_photos(folder / "data/external/photos")
    write_family(kind, folder / "captioner")
    torch.manual_seed(0)
    if retriever == "open_clip":
        save_file(open_clip.create_model("ViT-S-32-alt", **CLIP).state_dict(), folder / "clip.safetensors")
    else:
        write_judge(retriever, folder / "retriever", longest=64)
    run_stages(
        folder,
        shrink_profile(retriever),
        ("prepare",),
        *(("features", "--features", name) for name in ("main", "clip")),
        *(("pretrain", "--role", role) for role in ("listener", "speaker", "judge", "clip")),
        ("retriever",),
    )
    shutil.rmtree(folder / "captioner")  # the pretrained speaker needs no other file
    return folder


@pytest.fixture(scope="module")
def blip(tmp_path_factory) -> Path:
    return prepare_run("blip", tmp_path_factory.mktemp("blip"))


@pytest.fixture
def folder(blip, tmp_path, monkeypatch) -> Path:
    """Copy the prepared run for the test to change, and make the copy the working folder."""
    return enter_copy(blip, tmp_path, monkeypatch)


def build_run(name: str) -> Training:
    """Build the run of a method, before its first step."""
    settings = resolve_method_settings(load(Path("params.yaml")), name)
    prepared, store = load_training_data(Path("data"))
    method, cider = train.build_method(settings, Path("data"), prepared, torch.device("cpu"))
    return build_training(method, cider, settings.optimisation, prepared, store, 1, torch.device("cpu"))


def assert_only_adapters_change(weights: Path) -> None:
    pretrained, trained = load_file("data/pretrained/speaker/weights.safetensors"), load_file(weights)
    names = [name for name in pretrained if name.startswith("speaker.")]
    changed = {name for name in names if not torch.equal(pretrained[name], trained[name])}
    assert changed
    assert all("lora_" in name for name in changed)


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in TUNED]
)
def test_every_method_trains_the_adapters_alone_and_two_resume_to_the_same_bits(folder, name, monkeypatch):
    monkeypatch.setenv("SAYWHICH_CHECKPOINT_SECONDS", "0")
    assert run_stage("train", "--method", name, "--out", "out") == 0
    assert_only_adapters_change(Path("out/weights.safetensors"))
    logged = json.loads(Path("out/metrics.json").read_text())
    assert all(value == value for value in logged.values())  # no NaN
    assert ("kl/score" in logged) == (name in ("rloo", "grpo"))
    if name in ("rloo", "grpo", "discritune", "wtf_rl"):
        assert {"val/rewarded_recall@1", "val/judged_recall@1"} <= logged.keys()
    if name in ("rloo", "discritune"):
        assert_resumed_run_has_equal_bits(name, monkeypatch)


def assert_resumed_run_has_equal_bits(name: str, monkeypatch) -> None:
    """Compare the method's weights in the folder `out` with those of a run that was interrupted and resumed."""
    train_step, steps = Training.train_step, []

    def record_step(self, batch) -> None:
        steps.append(self.step)
        train_step(self, batch)

    def interrupt_third_step(self, batch) -> None:
        if len(steps) == 2:
            raise KeyboardInterrupt
        record_step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "train_step", interrupt_third_step)
        assert run_stage("train", "--method", name, "--out", "resumed") == 130
        assert list(Path("data/checkpoints").glob("*/step-*"))
        patch.setattr(Training, "train_step", record_step)
        assert run_stage("train", "--method", name, "--out", "resumed") == 0
    assert steps[:3] == [0, 1, 2], "the resumed run must begin with the third step"
    whole, resumed = (Path(out, "weights.safetensors").read_bytes() for out in ("out", "resumed"))
    assert whole == resumed


@pytest.mark.slow
def test_a_listener_of_clip_vectors_is_trained_evaluated_and_exported(folder):
    prepared, store = load_training_data(Path("data"))
    clip, tower = (FeatureStore(Path("data/features") / name) for name in ("clip", "main"))
    rows = prepared.rows("train")
    assert store.pooled(rows).tolist() == clip.pooled(rows).tolist()
    assert store.regions_shape == tower.regions_shape
    assert run_stage("train", "--method", "psst_multinomial") == 0
    pretrained, trained = (load_file(f"data/{name}") for name in (
        "pretrained/listener/weights.safetensors", "models/psst_multinomial/weights.safetensors"))  # fmt: skip
    assert pretrained["listener.image.weight"].shape[1] == clip.pooled_size != tower.pooled_size
    assert not torch.equal(pretrained["listener.image.weight"], trained["listener.image.weight"])
    for name, run in (("adapt", adapt.run), ("evaluate", evaluate.run)):
        assert stage_module.main(name, run, ["--method", "psst_multinomial"]) == 0
    judges = json.loads(Path("data/evaluation/psst_multinomial/metrics.json").read_text())["test"]["judges"]
    assert list(judges) == ["own", "adapted", "pretrained", "clip", "judge"]
    write_captioner("blip", Path("captioner"))  # its vision tower encodes new photos
    model, photo = saywhich.load("data/models/psst_multinomial"), PHOTO
    photos = sorted(map(str, Path("data/external/photos").rglob("*.jpg")))
    results = model.caption(photos, samples=3)
    export_model(Path("data/models/psst_multinomial"), Path("exported"))
    for folder_name in ("captioner", "data/models", "data/features", "data/prepared"):
        shutil.rmtree(folder_name)
    exported = saywhich.load("exported")
    assert exported.caption(photos, samples=3) == results
    assert any(each.candidates[0] for each in results)
    write_judge("clip", Path("listener"))
    ranked = saywhich.load("exported", listener="listener").caption(photos, samples=3, among=photos)
    assert all(1 <= each.rank <= each.of == len(photos) for each in ranked)
    Path("exported/features/captioner/vocab.txt").write_text("more")
    with pytest.raises(UserError, match=r"saywhich.json: has no digest of features/captioner/vocab.txt"):
        saywhich.load("exported")
    Path("exported/features/captioner/vocab.txt").unlink()
    Path("exported/features/captioner/config.json").write_text("{}")
    with pytest.raises(UserError, match=r"config.json: the SHA-256 is"):
        saywhich.load("exported")
    for use_listener in (lambda: model.find("a ball", [photo]), lambda: model.caption(photo, among=[photo])):
        with pytest.raises(UserError, match=r"encodes the features 'clip', and photos are encoded as 'main' alone"):
            use_listener()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in (*KINDS, *PROMPT_KINDS) if kind != "blip"])
def test_other_families_are_tuned_by_the_same_code(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("SAYWHICH_CHECKPOINT_SECONDS", "0")
    prepare_run(kind, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    training = build_run("rloo")
    _, report = training.method.step(next(iter(training.batches.epoch(0))), seed=1)
    assert abs(float(report["kl/score"])) < 1e-4
    for name, out in (("rloo", "out"), ("psst_multinomial", "data/models/psst_multinomial")):
        assert run_stage("train", "--method", name, "--out", out) == 0
        assert_only_adapters_change(Path(out, "weights.safetensors"))
    assert_resumed_run_has_equal_bits("rloo", monkeypatch)
    write_family(kind, Path("captioner"))  # its vision tower encodes new photos
    results = export_model(Path("data/models/psst_multinomial"), Path("exported")).caption(PHOTO)
    for folder_name in ("captioner", "data/models", "data/features", "data/prepared"):
        shutil.rmtree(folder_name)
    assert saywhich.load("exported").caption(PHOTO) == results


@pytest.mark.slow
@pytest.mark.parametrize("retriever", ["siglip", "siglip2_fixed"])
def test_siglip_gives_the_reward_and_judges(retriever, tmp_path, monkeypatch):
    prepare_run("blip", tmp_path, retriever)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    stored = load_file("data/retriever/images.safetensors")["vectors"]
    network = open_network(NetworkSettings("hub/retriever"))
    with Image.open(PHOTO) as photo:
        pooled = network([network.prepare(photo.convert("RGB"))]).pooled[0]
    prepared, _ = load_training_data(Path("data"))
    row = [prepared.file(image) for image in range(10)].index("0.jpg")
    # vectors are stored in half precision
    torch.testing.assert_close(stored[row], torch.nn.functional.normalize(pooled, dim=0), atol=2e-3, rtol=0)
    for name in ("wtf_rl", "grpo", "discritune", "psst_multinomial"):
        assert run_stage("train", "--method", name) == 0
        assert_only_adapters_change(Path("data/models", name, "weights.safetensors"))
    for name, run in (("adapt", adapt.run), ("evaluate", evaluate.run)):
        assert stage_module.main(name, run, ["--method", "discritune"]) == 0
    judges = json.loads(Path("data/evaluation/discritune/metrics.json").read_text())["test"]["judges"]
    assert "clip" in judges


def test_the_divergence_is_initially_0_and_grows(folder):
    training = build_run("rloo")
    batch = next(iter(training.batches.epoch(0)))
    training.method.speaker.train()
    losses, report = training.method.step(batch, seed=1)
    assert abs(float(report["kl/score"])) < 1e-4
    weights = [weight for weight in training.method.speaker.parameters() if weight.requires_grad]
    gradients = torch.autograd.grad(losses["kl"], weights, allow_unused=True)
    assert max(float(gradient.abs().max()) for gradient in gradients if gradient is not None) < 1e-4
    training.run()
    _, report = training.method.step(batch, seed=1)
    assert float(report["kl/score"]) < -1e-3
