"""What is built from files is built from the right ones."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image
from whole_profiles import profile

from pipeline.data.feature_store import FeatureWriter
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.models.att2in import Att2in
from pipeline.models.critic import Critic
from pipeline.models.listener import Listener
from pipeline.models.weights import load_agent, save_agents
from pipeline.workflow import stage as door
from pipeline.workflow.build_data import cider
from pipeline.workflow.build_evaluation import speaker_in
from pipeline.workflow.build_judges import judges_of
from pipeline.workflow.build_pretraining import adaptation
from stages import prepare

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
TRAINING = [["a red ball", "red ball"], ["a blue ball"], ["a red dog"], ["a ball", "the ball"]]
HELD_OUT = [["a red dog on grass"], ["a dog"]]
OTHERS = [["a ball"], ["the dog"], ["red red ball"], ["a blue blue dog"]]


def prepared(folder: Path, held_out: list[list[str]]) -> Prepared:
    """What the prepare stage makes of the training images, the same each time, and of those that are held out."""
    captions, raw = [*held_out, *TRAINING], folder / "raw"
    (raw / "images").mkdir(parents=True)
    images = []
    for i, texts in enumerate(captions):
        Image.new("RGB", (8, 8)).save(raw / "images" / f"{i}.png")
        split = "train" if i >= len(held_out) else ("val", "test")[i % 2]
        sentences = [{"raw": text, "tokens": text.split()} for text in texts]
        images.append({"filename": f"{i}.png", "imgid": i, "split": split, "sentences": sentences})
    (raw / "dataset.json").write_text(json.dumps({"images": images}))
    params = profile("scenes")
    params["prepare"] |= {"root": str(raw), "annotations": "dataset.json", "min_count": 0, "max_words": 4}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SAYWHICH_TRACKING", "off")
        assert door.main("prepare", prepare.run, ["--out", "prepared"]) == 0
    return Prepared.load(folder / "prepared")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Prepared:
    return prepared(tmp_path_factory.mktemp("data"), HELD_OUT)


def test_document_frequencies_are_counted_over_training_images_alone(data):
    table = pq.read_table(data.folder / "document_frequencies.parquet").to_pydict()
    found = dict(zip(table["key"], table["count"], strict=True))
    words = {word: found.get(data.vocabulary.encode([word])[0]) for word in ("a", "red", "ball", "blue", "dog", "the")}
    assert words == {"a": 4, "red": 2, "ball": 3, "blue": 1, "dog": 1, "the": 1}  # a word alone is its own key
    assert found[0] == 4  # each image has a caption that ends


def test_rewards_of_training_captions_do_not_depend_on_held_out_images(data, tmp_path):
    more = prepared(tmp_path, OTHERS)
    assert more.vocabulary == data.vocabulary
    said = ["red ball", "a blue ball", "red red dog", "the ball"]
    found = []
    for one in (data, more):
        scorer, tokens = cider(one), torch.zeros(4, 4, dtype=torch.int64)
        assert scorer.log_images == pytest.approx(math.log(4))
        for row, text in zip(tokens, said, strict=True):
            words = one.vocabulary.encode(text.split())
            row[: len(words)] = torch.tensor(words)
        found.append(scorer(tokens, torch.from_numpy(one.rows("train"))))
    assert torch.equal(*found)
    assert (found[0] > 1).all()


def speaker(seed: int) -> Att2in:
    torch.manual_seed(seed)
    return Att2in(9, 7, words=4, hidden=4, attention=4, max_words=4)


def listener(seed: int, features: str = "main") -> Listener:
    torch.manual_seed(seed)
    return Listener(9, 5, words=4, hidden=4, features=features)


@pytest.fixture
def models(tmp_path) -> Path:
    """A root below which all agents that there may be are others; the model that is looked at is in `models/luo`."""
    agents = {
        "pretrained/listener": {"listener": listener(1)},
        "pretrained/speaker": {"speaker": speaker(2)},
        "pretrained/judge": {"listener": listener(3, "eyes")},
        "models/luo": {"speaker": speaker(4), "listener": listener(5)},
        "models/luo/adapted": {"listener": listener(6)},
    }
    for name, each in agents.items():
        save_agents(tmp_path / name / "weights.safetensors", each)
    for features, first in (("main", 0), ("eyes", 10)):
        (tmp_path / "features" / features).mkdir(parents=True)
        rows = np.arange(6 if features == "main" else 12)
        with FeatureWriter(tmp_path / "features" / features, 6, 5, (1, 7), mirrored=len(rows) > 6) as store:
            store.write(rows, np.full((len(rows), 5), first + rows[:, None]), np.zeros((len(rows), 1, 7)))
    return tmp_path


def same(agent: torch.nn.Module, folder: Path, role: str) -> bool:
    """Whether `agent` is the one whose weights are in `folder`."""
    kept = load_agent(folder / "weights.safetensors", role).state_dict()
    return all(torch.equal(value, kept[name]) for name, value in agent.state_dict().items())


def test_the_pretrained_listener_gets_used_to_a_method_s_speaker(models, data):
    section = SimpleNamespace(objective="hinge", margin=0.2, negatives="hardest")
    agents = adaptation(section, models / "models/luo", models, data, CPU)[0].agents
    assert same(agents["listener"], models / "pretrained/listener", "listener")
    assert same(agents["speaker"], models / "models/luo", "speaker")


def test_each_judge_is_the_one_that_it_is_called_and_sees_the_features_that_it_learned_from(models, data):
    assert same(speaker_in(models / "models/luo"), models / "models/luo", "speaker")
    chosen = {"own": "own", "used to it": "adapted", "before": "listener", "other": "judge"}
    judges = judges_of(chosen, models / "models/luo", models, data, CPU)
    places = ("models/luo", "models/luo/adapted", "pretrained/listener", "pretrained/judge")
    assert list(judges) == list(chosen)
    assert all(same(j.listener, models / p, "listener") for j, p in zip(judges.values(), places, strict=True))
    rows = torch.tensor([3, 0])
    assert [judge.pooled(rows)[:, 0].tolist() for judge in judges.values()] == [[3, 0]] * 3 + [[13, 10]]
    assert [judge.mirrored is None for judge in judges.values()] == [True] * 3 + [False]
    assert judges["other"].mirrored(rows)[:, 0].tolist() == [19, 16]


def test_what_cannot_judge_is_told_in_one_line(models, data):
    save_agents(models / "pretrained/critic/weights.safetensors", {"listener": Critic(4, 2)})
    with pytest.raises(UserError, match=r"pretrained/critic: a Critic is no judge"):
        judges_of({"critic": "critic"}, models, models, data, CPU)
