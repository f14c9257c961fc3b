"""Construction of prepared data, agents, methods, trainings and evaluations from the right files."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image
from whole_profiles import load_profile, read_profile_text

from pipeline.channels.hard import Beam
from pipeline.channels.scheduled_sampling import ScheduledSampling
from pipeline.channels.search import NoRepeatNgram
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition import reward_files
from pipeline.composition.joint import Agents, Objective, build_text_scorer, pair_agents
from pipeline.composition.pretraining import build_listener_matching
from pipeline.composition.pretraining_settings import MatchingSettings, RecoverySettings
from pipeline.composition.reference_cider import build_reference_cider
from pipeline.composition.reward_settings import RetrieverSettings
from pipeline.config.load import load
from pipeline.config.schema import ListenerBlock, SpeakerBlock
from pipeline.data.batches import Batches
from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.evaluation.evaluation_settings import RerankSettings
from pipeline.evaluation.judges import JUDGES, JudgeSources, build_judges, make_judge
from pipeline.gradients.trained import load_trained_world
from pipeline.methods.guidance import guidance
from pipeline.methods.luo import luo
from pipeline.metrics.cider import pack_ngrams
from pipeline.models.agent_files import load_agent, save_agents
from pipeline.models.att2in import Att2in
from pipeline.models.critic import Critic
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.listener import Listener
from pipeline.models.lstm import PooledLstm
from pipeline.runtime import matmul_precision
from pipeline.runtime.checksums import write_checksums
from pipeline.scores.discriminability import CollapseRecovery, Hinge, InfoNCE, InputDropout
from pipeline.slices.slice_agents import load_speaker
from pipeline.training.optimisation import Optimisation
from pipeline.workflow import stage as stage_runner
from pipeline.workflow.training import build_training
from stages import prepare
from stages.adapt import build_adaptation
from stages.evaluate import build_evaluation, flatten_numbers
from stages.pretrain import build_pretraining
from stages.train import build_method

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
TRAINING = [["a red ball", "red ball"], ["a blue ball"], ["a red dog"], ["a ball", "the ball"]]
HELD_OUT = [["a red dog on grass"], ["a dog"]]
OTHER_HELD_OUT = [["a ball"], ["the dog"], ["red red ball"], ["a blue blue dog"]]


def prepare_data(folder: Path, held_out: list[list[str]], **options: object) -> PreparedData:
    """Prepare a data set of images with the captions TRAINING and `held_out`."""
    captions, raw = [*held_out, *TRAINING], folder / "raw"
    (raw / "images").mkdir(parents=True)
    images = []
    for i, texts in enumerate(captions):
        Image.new("RGB", (8, 8)).save(raw / "images" / f"{i}.png")
        split = "train" if i >= len(held_out) else ("val", "test")[i % 2]
        sentences = [{"raw": text, "tokens": text.split()} for text in texts]
        images.append({"filename": f"{i}.png", "imgid": i, "split": split, "sentences": sentences})
    (raw / "dataset.json").write_text(json.dumps({"images": images}))
    params = load_profile("scenes")
    params["prepare"] |= {"root": str(raw), "annotations": "dataset.json", "min_count": 0, "max_words": 4} | options
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SAYWHICH_TRACKING", "off")
        assert stage_runner.main("prepare", prepare.run, ["--out", "prepared"]) == 0
    return PreparedData.load(folder / "prepared")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> PreparedData:
    return prepare_data(tmp_path_factory.mktemp("data"), HELD_OUT)


def test_document_frequencies_are_counted_over_training_images_alone(data):
    table = pq.read_table(data.folder / "document_frequencies.parquet").to_pydict()
    found = dict(zip(table["key"], table["count"], strict=True))
    words = {word: found.get(data.vocabulary.encode([word])[0]) for word in ("a", "red", "ball", "blue", "dog", "the")}
    assert words == {"a": 4, "red": 2, "ball": 3, "blue": 1, "dog": 1, "the": 1}  # a unigram's key is its word's id
    assert found[0] == 4  # each image has a caption with EOS


@pytest.mark.parametrize(("counted", "expected"), [("clipped", (2, 0, None)), ("whole", (3, 1, 4))])
def test_document_frequencies_count_clipped_or_whole_references(tmp_path, counted, expected):
    """With max_words 2, the counts are of a third word, of the bigram that it ends, and of the EOS after it."""
    found = prepare_data(tmp_path, HELD_OUT, max_words=2, count_ngrams=counted)
    table = pq.read_table(found.folder / "document_frequencies.parquet").to_pydict()
    frequencies = dict(zip(table["key"], table["count"], strict=True))
    ball, blue = (found.vocabulary.encode([word])[0] for word in ("ball", "blue"))
    (pair,) = pack_ngrams(np.array([[blue, ball]])).tolist()
    assert (frequencies[ball], frequencies.get(pair, 0), frequencies.get(0)) == expected
    assert found.tokens.shape[1] == 2


def test_rewards_of_training_captions_do_not_depend_on_held_out_images(data, tmp_path):
    more = prepare_data(tmp_path, OTHER_HELD_OUT)
    assert more.vocabulary == data.vocabulary
    captions = ["red ball", "a blue ball", "red red dog", "the ball"]
    found = []
    for one in (data, more):
        scorer, tokens = build_reference_cider(one), torch.zeros(4, 4, dtype=torch.int64)
        assert scorer.log_images == pytest.approx(math.log(4))
        for row, text in zip(tokens, captions, strict=True):
            words = one.vocabulary.encode(text.split())
            row[: len(words)] = torch.tensor(words)
        found.append(scorer(tokens, torch.from_numpy(one.rows("train"))))
    assert torch.equal(*found)
    assert (found[0] > 1).all()


def make_speaker(seed: int) -> Att2in:
    torch.manual_seed(seed)
    return Att2in(9, 7, words=4, hidden=4, attention=4, max_words=4)


def make_listener(seed: int, features: str = "main") -> Listener:
    torch.manual_seed(seed)
    return Listener(9, 5, words=4, hidden=4, features=features)


@pytest.fixture
def models(tmp_path) -> Path:
    """Return a root folder where every agent has different weights; the evaluated model is in `models/luo`."""
    agents = {
        "pretrained/listener": {"listener": make_listener(1)},
        "pretrained/speaker": {"speaker": make_speaker(2)},
        "pretrained/judge": {"listener": make_listener(3, "judge")},
        "models/luo": {"speaker": make_speaker(4), "listener": make_listener(5)},
        "models/luo/adapted": {"listener": make_listener(6)},
    }
    for name, each in agents.items():
        save_agents(tmp_path / name / "weights.safetensors", each)
    for features, first in (("main", 0), ("judge", 10)):
        (tmp_path / "features" / features).mkdir(parents=True)
        rows = np.arange(6 if features == "main" else 12)
        with FeatureWriter(tmp_path / "features" / features, 6, 5, (1, 7), mirrored=len(rows) > 6) as writer:
            writer.write(rows, np.full((len(rows), 5), first + rows[:, None]), np.zeros((len(rows), 1, 7)))
    return tmp_path


def has_weights(agent: torch.nn.Module, folder: Path, role: str) -> bool:
    """Return whether the weights in `folder` are those of `agent`."""
    kept = load_agent(folder / "weights.safetensors", role).state_dict()
    return all(torch.equal(value, kept[name]) for name, value in agent.state_dict().items())


def test_the_pretrained_listener_is_adapted_to_a_methods_speaker(models, data):
    settings = MatchingSettings(objective="hinge", margin=0.2, temperature=0.1, negatives="hardest", reduction="sum")
    method, _ = build_adaptation(settings, models / "models/luo", models, data, CPU)
    agents = method.agents
    assert [term.estimator.reduction for term in method.terms] == ["sum"]
    assert has_weights(agents["listener"], models / "pretrained/listener", "listener")
    assert has_weights(agents["speaker"], models / "models/luo", "speaker")


def test_a_speaker_without_attention_and_a_summed_hinge_are_built_from_params(models, data, tmp_path):
    """The stage builds both networks from params.yaml."""
    (tmp_path / "params.yaml").write_text(read_profile_text("scenes_lstm"))
    parameters = load(tmp_path / "params.yaml", ["pretrain.speaker.hidden_dim=6", "pretrain.listener.reduction=sum"])
    store = FeatureStore(models / "features/main")
    method, scorer = build_pretraining(parameters.pretrain["speaker"], data, store, CPU)
    found = method.agents["speaker"]
    assert isinstance(found, PooledLstm)
    assert found.arguments == {
        "vocabulary": len(data.vocabulary),
        "region_size": 7,
        "words": 128,
        "hidden": 6,
        "dropout": 0.1,
        "max_words": 4,
    }
    assert scorer is not None
    method, _ = build_pretraining(parameters.pretrain["listener"], data, store, CPU)
    assert [term.estimator.reduction for term in method.terms] == ["sum"]


def test_each_judge_has_its_weights_and_the_features_of_its_training(models, data):
    assert has_weights(load_speaker(models / "models/luo"), models / "models/luo", "speaker")
    judge_names = {"own": "own", "adapted listener": "adapted", "pretrained": "listener", "other": "judge"}
    judges = build_judges(judge_names, JUDGES, JudgeSources(models / "models/luo", models, data, CPU))
    folders = ("models/luo", "models/luo/adapted", "pretrained/listener", "pretrained/judge")
    assert list(judges) == list(judge_names)
    assert all(has_weights(j.listener, models / p, "listener") for j, p in zip(judges.values(), folders, strict=True))
    rows = torch.tensor([3, 0])
    assert [judge.pooled(rows)[:, 0].tolist() for judge in judges.values()] == [[3, 0]] * 3 + [[13, 10]]
    assert [judge.mirrored is None for judge in judges.values()] == [True] * 3 + [False]
    assert judges["other"].mirrored(rows)[:, 0].tolist() == [19, 16]


def test_agents_that_are_no_judges_are_reported_in_one_line(models, data):
    save_agents(models / "pretrained/critic/weights.safetensors", {"listener": Critic(4, 2)})
    with pytest.raises(UserError, match=r"pretrained/critic: expected a Listener or a DualEncoder as judge, found"):
        build_judges({"critic": "critic"}, JUDGES, JudgeSources(models, models, data, CPU))


@pytest.fixture
def agents(data) -> Agents:
    return Agents(make_speaker(1), make_listener(2), build_reference_cider(data), build_text_scorer(data))


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_the_speakers_temperature_divides_its_logits_alone(data, temperature):
    plain, divided = make_speaker(1), make_speaker(1)
    pair_agents(divided, make_listener(2), data, Objective(speaker_temperature=temperature), CPU)
    hidden = torch.randn(3, plain.hidden)
    torch.testing.assert_close(divided.logits(hidden), plain.logits(hidden) / temperature)
    weights, divided_weights = plain.state_dict(), divided.state_dict()
    changed = {name for name in weights if not torch.equal(weights[name], divided_weights[name])}
    assert changed == (set() if temperature == 1 else {"logit.weight", "logit.bias"})


@pytest.mark.parametrize(("eos", "frequencies"), [(True, "batch"), (False, "train")])
def test_the_cider_reward_follows_the_objective(data, eos, frequencies):
    objective = Objective(eos_in_reward=eos, document_frequencies=frequencies)
    scorer = pair_agents(make_speaker(1), make_listener(2), data, objective, CPU).cider
    assert (scorer.eos, scorer.frequencies) == (eos, frequencies)


def make_training(method, data, models, seed: int = 3, **settings):
    """Return the run that trains `method` on `data`, in batches of two images."""
    store = FeatureStore(models / "features" / "main")
    return build_training(method, build_reference_cider(data), Optimisation(1, 2, **settings), data, store, seed, CPU)


def test_training_uses_the_training_split_and_validation_the_validation_split(agents, models, data):
    training = make_training(luo(agents, Objective(), 0.5), data, models)
    train, held_out = (data.rows(split).tolist() for split in ("train", "val"))
    images = [batch.images.tolist() for batch in training.batches.epoch(0)]
    assert [len(each) for each in images] == [2, 2]
    assert sorted(chain.from_iterable(images)) == train
    assert [batch.images.tolist() for batch in training.validate.batches()] == [held_out]
    (batch,) = training.validate.batches()
    assert batch.pooled[:, 0].tolist() == held_out  # the image's own features
    assert data.rows("test").tolist() not in (train, held_out)


def test_validation_generates_with_the_methods_agents_and_never_unk(agents, models, data, monkeypatch):
    method = replace(luo(agents, Objective(), 0.5), validation_judges={"rewarded": agents.listener})
    found = make_training(method, data, models).validate
    assert (found.speaker, found.listener, found.unk) == (agents.speaker, agents.listener, data.vocabulary.unk)
    assert (found.dtype, found.validation_judges, found.device) == (None, method.validation_judges, CPU)
    scores = found.cider(torch.tensor([[1, 2, 3, 4]]), torch.from_numpy(data.rows("val")))
    assert torch.equal(scores, agents.cider(torch.tensor([[1, 2, 3, 4]]), torch.from_numpy(data.rows("val"))))
    listener_only = make_training(
        build_listener_matching(agents.listener, Hinge(agents.listener)), data, models
    ).validate
    assert (listener_only.speaker, listener_only.listener) == (None, agents.listener)
    monkeypatch.setenv("SAYWHICH_VALIDATION", "bfloat16")
    assert make_training(method, data, models).validate.dtype == torch.bfloat16
    monkeypatch.setenv("SAYWHICH_VALIDATION", "half")
    with pytest.raises(UserError, match="SAYWHICH_VALIDATION=half: expected float32 or bfloat16"):
        make_training(method, data, models)


@pytest.mark.parametrize("captions", ["one", "all"])
def test_the_order_of_batches_follows_the_seed_and_the_settings(agents, models, data, captions):
    method, store = luo(agents, Objective(), 0.5), FeatureStore(models / "features" / "main")

    def list_batches(batches) -> list:
        return [(b.images.tolist(), b.captions.tolist()) for epoch in range(3) for b in batches.epoch(epoch)]

    found = list_batches(make_training(method, data, models, captions=captions).batches)
    assert found == list_batches(Batches(data, store, data.rows("train"), 2, 3, captions=captions))
    assert found != list_batches(make_training(method, data, models, 4, captions=captions).batches)
    assert len(found) == {"one": 6, "all": 9}[captions]  # six captions of four images


def test_images_are_masked_with_the_methods_probability(agents, models, data):
    for share in (0.0, 0.9):
        batches = make_training(guidance(agents, Objective(), image_dropout=share), data, models).batches
        unmasked = torch.cat([batch.region_mask.any(1) for epoch in range(50) for batch in batches.epoch(epoch)])
        assert float((~unmasked).float().mean()) == pytest.approx(share, abs=0.08)


def test_a_speaker_is_trained_by_the_likelihood_of_its_section(data, models):
    sampling, sizes = ScheduledSampling(1, 2, 0.1, 0.3), {"word_dim": 4, "hidden_dim": 6}
    settings = SpeakerBlock(
        architecture="lstm", features="main", dropout=0.4, optimisation=Optimisation(1, 2), image_dropout=0.2,
        scheduled_sampling=sampling, **sizes,
    )  # fmt: skip
    method = build_pretraining(settings, data, FeatureStore(models / "features" / "main"), CPU)[0]
    (term,) = method.terms
    assert (term.estimator.channel, method.image_dropout) == (TeacherForcing(sampling), 0.2)
    speaker = method.agents["speaker"]
    assert isinstance(speaker, PooledLstm)
    found = (speaker.vocabulary, speaker.max_words, speaker.dropout, speaker.word.embedding_dim, speaker.hidden)
    assert found == (len(data.vocabulary), 4, 0.4, 4, 6)
    assert speaker.null is not None


def build_listener_method(data, models, captions="one", batch=2, **options):
    """Return the method that pretrains a listener with these options."""
    defaults = {"features": "main", "encoder": "gru", "word_dim": 4, "hidden_dim": 6, "warmup_epochs": 0, "seed": 0}
    defaults |= {"objective": "hinge", "margin": 0.3, "negatives": "hardest", "temperature": 0.2}
    optimisation = Optimisation(1, batch, captions)
    settings = ListenerBlock(**defaults | options, optimisation=optimisation)
    return build_pretraining(settings, data, FeatureStore(models / "features" / "main"), CPU)[0]


def test_a_listener_is_trained_by_the_objective_of_its_section(data, models):
    method = build_listener_method(data, models)
    listener = method.agents["listener"]
    (term,) = method.terms
    assert term.score == Hinge(listener, 0.3, "hardest")
    assert (listener.vocabulary, listener.image.in_features) == (len(data.vocabulary), 5)
    assert (listener.word.embedding_dim, listener.image.out_features, listener.features) == (4, 6, "main")
    (term,) = (made := build_listener_method(data, models, objective="infonce", encoder="pair")).terms
    assert term.score == InfoNCE(made.agents["listener"], 0.2)
    assert made.agents["listener"].parts == 2
    (term,) = (
        made := build_listener_method(
            data, models, negatives="all", collapse_recovery=RecoverySettings(patience=3, steps=2)
        )
    ).terms
    assert term.score == Hinge(made.agents["listener"], 0.3, "all")


@pytest.mark.parametrize(("captions", "batch", "steps"), [("one", 2, 2), ("all", 2, 3), ("one", 3, 1), ("one", 9, 1)])
def test_a_warm_up_lasts_as_many_steps_as_its_epochs_have(data, models, captions, batch, steps):
    """The training split has four images with six captions.

    Batches of two give two or three steps an epoch. Larger batches give one step.
    """
    recover = RecoverySettings(patience=7, steps=11)
    method = build_listener_method(data, models, captions, batch, collapse_recovery=recover, warmup_epochs=5)
    (term,) = method.terms
    score = term.score
    assert isinstance(score, CollapseRecovery)
    assert (int(score.easy), score.patience, score.steps) == (5 * steps, 7, 11)
    assert score.hardest == Hinge(method.agents["listener"], 0.3, "hardest")


def test_a_warm_up_needs_no_recovery(data, models):
    (term,) = build_listener_method(data, models, collapse_recovery=None, warmup_epochs=5).terms
    assert isinstance(term.score, CollapseRecovery)
    assert int(term.score.easy) == 5 * 2
    for _ in range(20):  # all cosines are equal
        term.score._count(torch.ones(()))
    assert int(term.score.easy) == int(term.score.recoveries) == 0


def test_input_dropout_follows_its_section(data, models):
    (term,) = (made := build_listener_method(data, models, vector_dropout=0.2, word_dropout=0.1)).terms
    assert isinstance(term.score, InputDropout)
    assert (term.score.vector, term.score.words, term.score.unk) == (0.2, 0.1, data.vocabulary.unk)
    assert term.score.score == Hinge(made.agents["listener"], 0.3, "hardest")


def make_evaluation(models, data, method: str, rerank: RerankSettings | None = None, *options: str):
    """Return the protocol of the scenes' params.yaml for the model in models/luo, as the method `method`."""
    (models / "params.yaml").write_text(read_profile_text("scenes"))
    judges = "evaluate.judges={own: own, used: adapted, pretrained: listener, other: judge}"
    common = [judges, "evaluate.metrics=[CIDEr]", *options]
    settings = load(models / "params.yaml", common).evaluate
    stage = SimpleNamespace(model=models / "models/luo", root=models, device=CPU, instance=method)
    store = FeatureStore(models / "features/main")
    with build_evaluation(settings, stage, make_speaker(0), data, store, rerank) as found:
        return found


def test_an_evaluation_follows_params_yaml(models, data):
    hard_gallery = "evaluate.hard_gallery={similarity: features, images: 2}"
    found = make_evaluation(models, data, "luo", None, hard_gallery, "evaluate.beam=3")
    folders = ("models/luo", "models/luo/adapted", "pretrained/listener", "pretrained/judge")
    assert list(found.judges) == ["own", "used", "pretrained", "other"]
    assert all(
        has_weights(j.listener, models / p, "listener") for j, p in zip(found.judges.values(), folders, strict=True)
    )
    assert (found.beam, found.hard_gallery_name, found.rerank, found.multi_sample) == (3, "features:2", None, None)
    assert (found.baselines, found.truth) == ({}, None)
    rows = np.array([0, 3, 4])
    assert found.hard_gallery(rows).shape == (3, 1)
    reranking = RerankSettings(samples=5, temperature=0.5, score="similarity")
    reranked = make_evaluation(
        models, data, "luo", reranking, hard_gallery, "evaluate.multi_sample={samples: 3, beams: 2}"
    )
    assert reranked.rerank.settings == reranking
    assert has_weights(reranked.rerank.judge.listener, models / "models/luo", "listener")
    assert (reranked.multi_sample.samples, reranked.multi_sample.beams) == (3, 2)


def test_evaluation_metrics_are_named_by_their_path():
    nested = {"val": {"language": {"CIDEr": 0.5}, "images": 3}, "beam": 2}
    assert flatten_numbers(nested) == {"val/language/CIDEr": 0.5, "val/images": 3.0, "beam": 2.0}


def test_cider_counts_eos_unless_the_objective_excludes_it(data):
    assert [build_reference_cider(data).eos, build_reference_cider(data, eos=False).eos] == [True, False]


def test_small_models_train_on_one_thread_whatever_the_machine_has(agents, models, data, monkeypatch):
    threads = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    make_training(luo(agents, Objective(), 0.5), data, models)
    assert threads == [1]
    monkeypatch.setattr(matmul_precision, "is_small", lambda modules: False)
    monkeypatch.setattr(matmul_precision, "choose_precision", lambda modules, device: None)
    make_training(luo(agents, Objective(), 0.5), data, models)
    assert threads == [1]


def test_a_trained_world_has_the_pretrained_agents_and_the_first_validation_images(models, data):
    shutil.copytree(data.folder, models / "prepared")
    world, name = load_trained_world(models)
    assert has_weights(world.speaker, models / "pretrained/speaker", "speaker")
    assert has_weights(world.listener, models / "pretrained/listener", "listener")
    assert all(weight.requires_grad for weight in world.speaker.parameters())
    assert not any(weight.requires_grad for weight in world.listener.parameters())
    assert world.batch.images.tolist() == data.rows("val").tolist()
    assert name == "scenes"


class ShortTextEncoder(DualEncoder):
    """Text encoder that takes `max_tokens` tokens: a caption's words, BOS and EOS."""

    features = "main"
    max_tokens = 4

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)

    def count_tokens(self, captions):
        return torch.tensor([len(text.split()) + 2 for text in captions])


def test_a_retriever_that_would_truncate_captions_is_refused(models, data, monkeypatch):
    settings = RetrieverSettings(model="listener", speaker="speaker", temperature=0.1)
    monkeypatch.setattr(reward_files, "_load_encoder", lambda root, name: ShortTextEncoder())
    with pytest.raises(UserError, match="a caption has 6 tokens, and the text encoder takes 4: “"):
        reward_files.make_rewards(settings, 0.1, models, data, None, CPU)


def test_reward_models_are_read_as_they_were_written(models, data):
    settings = RetrieverSettings(
        model="listener", speaker="speaker", judge="judge", temperature=0.1, hard_negative_ranks=(1, 2),
        hidden_dims=(6,), beam=4, no_repeat_ngram_size=2,
    )  # fmt: skip

    def embed(agent, store):
        return make_judge(agent, store, CPU).encode_image(torch.arange(len(data)))

    torch.manual_seed(4)
    method, made, inputs = reward_files.make_rewards(settings, 0.02, models, data, embed, CPU)
    assert has_weights(method.agents["speaker"], models / "pretrained/speaker", "speaker")
    (models / "retriever").mkdir()
    reward_files.save_rewards(models / "retriever", made, inputs)
    heads = {"discriminator": made.discriminator, "grammar": made.grammar}
    save_agents(models / "retriever/weights.safetensors", heads)
    write_checksums(models / "retriever")
    read = reward_files.load_rewards(models, data, CPU)
    for rewards in (made, read):
        assert (rewards.search, rewards.learning_rate, rewards.retriever.temperature) == (
            NoRepeatNgram(Beam(4), 2),
            0.02,
            0.1,
        )
        assert (rewards.discriminator.with_images, rewards.grammar.with_images) == (True, False)
        assert has_weights(rewards.discriminator, models / "retriever", "discriminator")
        assert has_weights(rewards.grammar, models / "retriever", "grammar")
        assert rewards.retriever.neighbours.shape == (len(data), 2)
        assert set(rewards.retriever.neighbours.flatten().tolist()) <= set(data.rows("train").tolist())
        for retriever, name in ((rewards.retriever, "listener"), (rewards.judge, "judge")):
            assert has_weights(retriever.encoder, models / "pretrained" / name, "listener")
            features = FeatureStore(models / "features" / retriever.encoder.features)
            assert torch.equal(retriever.vectors, embed(retriever.encoder, features))
    assert torch.equal(read.retriever.neighbours, made.retriever.neighbours)


def test_reward_models_of_another_version_are_refused_in_one_line(tmp_path):
    (tmp_path / "retriever").mkdir()
    (tmp_path / "retriever/settings.json").write_text('{"model": "listener", "temperature": 0.1}')
    write_checksums(tmp_path / "retriever")
    with pytest.raises(UserError, match=r"settings.json: made by another version of this program; run the retriever"):
        reward_files.list_reward_files(tmp_path)


def test_a_method_is_built_with_its_objective(models, data):
    objective = Objective(eos_in_reward=False, speaker_temperature=0.5, margin=0.3)
    settings = SimpleNamespace(
        objective=objective, speaker="speaker", composition=luo, takes_rewards=False, arguments={"lam": 0.25}, gamma=1.0
    )
    method, scorer = build_method(settings, models, data, CPU)
    plain = load_agent(models / "pretrained/speaker/weights.safetensors", "speaker")
    assert torch.equal(method.speaker.logit.weight, plain.logit.weight * 2)
    assert not scorer.eos
    assert {term.name: term.weight for term in method.terms} == {"discriminability": 0.25, "naturalness": 0.75}
    assert method.terms[0].score == Hinge(method.agents["listener"], 0.3)


def test_the_longest_of_many_captions_is_checked():
    tokens = np.zeros((1200, 8), np.int64)
    tokens[:, 0] = np.arange(1, 1201)
    tokens[7, 1:5] = 1
    vocabulary = SimpleNamespace(decode=lambda row: " ".join(str(word) for word in row if word))
    with pytest.raises(UserError, match="a caption has 7 tokens, and the text encoder takes 4: “8 1 1 1 1”"):
        reward_files._check_lengths(
            ShortTextEncoder(), SimpleNamespace(tokens=tokens, folder=Path("a"), vocabulary=vocabulary)
        )


def test_text_rewards_compare_with_whole_references(data):
    """Training clips captions to max_words; a text reward counts all words of human captions, as evaluation does."""
    whole = SimpleNamespace(
        vocabulary=data.vocabulary, max_words=2, words=lambda image: [["a", "red", "ball", "today"]]
    )
    assert build_text_scorer(whole)._references(0) == ["a red ball today"]
