"""Construction of dialog generators and discriminators from their settings, and the splits that they use."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from expected_losses import compute_losses
from small_dialogs import REGION, REGIONS, make_dialogs, write_dialog_corpus

from pipeline.composition.objective import Objective
from pipeline.composition.pretraining_settings import MatchingSettings
from pipeline.dialog.composition.answer_preference import NPairScore, PairwiseScore
from pipeline.dialog.construction import DialogTraining
from pipeline.dialog.data.prepared_dialogs import DialogLengths, PreparedDialogs
from pipeline.dialog.evaluation.answer_ranking import RankingValidation
from pipeline.dialog.methods.visual_dialog import gan1
from pipeline.dialog.models.dialog_decoder import DialogDecoder
from pipeline.dialog.models.dialog_encoders import Hciae, Hierarchical, LateFusion
from pipeline.dialog.models.dialog_lstm import DialogLstm
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.dialog.settings import DiscriminatorSettings, GeneratorSettings
from pipeline.models.agent_files import save_agents
from pipeline.models.transformer import Transformer
from pipeline.slices.slice_agents import find_owner
from pipeline.slices.slice_training import TRAINING
from pipeline.training.optimisation import Optimisation
from pipeline.workflow.training import build_training
from stages.adapt import build_adaptation
from stages.pretrain import build_pretraining
from stages.train import build_method

make_method = DialogTraining().build_pretraining
CPU = torch.device("cpu")
LISTENER = {"answer": "last", "encode_eos": True, "sampled_options": 2, "batch_negatives": 3, "norm_penalty": 0.125}
SPEAKER = {"decoder": "lstm"}


def make_settings(**options: Any) -> GeneratorSettings | DiscriminatorSettings:
    shared = {"word_dim": 6, "hidden_dim": 8, "dropout": 0.25, "features": "main", "encoder": "hciae"}
    kind = GeneratorSettings if "decoder" in options else DiscriminatorSettings
    return kind(**shared | options, optimisation=Optimisation(1))


@pytest.fixture(scope="module")
def dialog_data(tmp_path_factory):
    return write_dialog_corpus(tmp_path_factory.mktemp("dialogs"), make_dialogs(images=18), DialogLengths(4, 3, 3))


@pytest.mark.parametrize(("name", "kind"), [("hciae", Hciae), ("lf", LateFusion), ("hre", Hierarchical)])
@pytest.mark.parametrize(
    "settings", [{}, {"history": False}, {"image": False}, {"layer_norm": False}, {"region_positions": True}], ids=str
)
def test_a_discriminator_has_the_settings_of_its_section(dialog_data, name, kind, settings):
    method = make_method(make_settings(encoder=name, **settings, **LISTENER), *dialog_data)
    assert list(method.agents) == ["listener"]
    model = method.agents["listener"]
    assert isinstance(model, Discriminator)
    assert type(model.encoder) is kind
    assert (model.vocabulary, model.encode_eos, model.inner, model.drop.p) == (9, True, None, 0.25)
    encoder = model.encoder.arguments
    expected = {"words": 6, "region_size": REGION, "hidden": 8, "dropout": 0.25}
    expected |= {"history": True, "image": True, "layer_norm": True}
    expected |= {"num_positions": REGIONS if settings.get("region_positions") else 0}
    expected |= {key: value for key, value in settings.items() if key != "region_positions"}
    assert {key: encoder[key] for key in expected} == expected
    (term,) = method.terms
    assert term.score == NPairScore(model, 2, 3, norm_penalty=0.125)
    assert method.schedule.all_roles == {"listener"}


def test_attention_over_answers_and_round_positions_are_optional(dialog_data):
    model = make_method(
        make_settings(**LISTENER | {"answer": "attention", "encode_eos": False}, round_positions=True), *dialog_data
    )
    listener = model.agents["listener"]
    assert listener.inner is not None
    assert listener.encode_eos is False
    assert listener.encoder.distance is not None
    plain = make_method(make_settings(**LISTENER, round_positions=False), *dialog_data).agents["listener"]
    assert plain.encoder.distance is None


@pytest.mark.parametrize(("decoder", "kind"), [("lstm", DialogLstm), ("transformer", Transformer)])
def test_a_generator_has_the_settings_of_its_section_and_the_longest_answer_of_the_data(dialog_data, decoder, kind):
    sizes = {"layers": 2, "heads": 2} if decoder == "transformer" else {}
    word_dim = 8 if decoder == "transformer" else 6
    method = make_method(make_settings(decoder=decoder, **sizes, word_dim=word_dim), *dialog_data)
    speaker = method.agents["speaker"]
    assert isinstance(speaker, DialogDecoder)
    assert isinstance(speaker.inner, kind)
    longest = PreparedDialogs.load(dialog_data[0].folder).answers.shape[1]
    assert (speaker.vocabulary, speaker.max_words, speaker.dropout, speaker.hidden) == (9, longest, 0.25, 8)
    assert speaker.word.weight.shape == (11, word_dim)
    assert [term.name for term in method.terms] == ["likelihood"]
    assert method.image_dropout == 0
    if kind is Transformer:
        assert (speaker.inner.arguments["encoder_layers"], speaker.inner.arguments["layers"]) == (0, 2)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"heads": 3, "word_dim": 8}, "hidden_dim 8 is not a multiple of heads 3"),
        ({"heads": 2, "word_dim": 6}, "decoder transformer needs equal word_dim and hidden_dim, got 6 and 8"),
        ({"word_dim": 8}, "decoder transformer needs layers and heads, decoder lstm takes neither"),
    ],
)
def test_mismatched_sizes_of_a_transformer_are_reported(sizes, message):
    with pytest.raises(ValueError, match=message):
        make_settings(decoder="transformer", layers=2, **sizes)


def test_dialogs_train_on_the_training_split_and_rank_the_validation_split(dialog_data):
    prepared, store = dialog_data
    method = build_pretraining(make_settings(**SPEAKER), prepared, store, CPU)[0]
    training = build_training(method, None, Optimisation(1, 2), prepared, store, 3, CPU)
    train, held_out = (prepared.rows(split).tolist() for split in ("train", "val"))
    assert sorted({int(i) for batch in training.batches.epoch(0) for i in batch.images}) == train
    assert training.seed == 3
    validate = training.validate
    assert isinstance(validate, RankingValidation)
    assert [int(i) for batch in validate.batches() for i in batch.images[::3]] == held_out
    assert (validate.speaker, validate.listener) == (method.agents["speaker"], None)
    order = [[batch.images[::3].tolist() for batch in training.batches.epoch(0)] for _ in range(2)]
    assert order[0] == order[1]
    other = build_training(method, None, Optimisation(1, 2), prepared, store, 4, CPU)
    assert [batch.images[::3].tolist() for batch in other.batches.epoch(0)] != order[0]
    metrics = validate()
    assert {"MRR", "R@1", "R@5", "R@10", "mean_rank"} <= set(metrics)
    listener_method = build_pretraining(make_settings(**LISTENER), prepared, store, CPU)[0]
    validate = build_training(listener_method, None, Optimisation(1, 2), prepared, store, 3, CPU).validate
    assert (validate.speaker, validate.listener) == (None, listener_method.agents["listener"])


def test_agents_of_dialogs_belong_to_the_slice(dialog_data, toy):
    speaker = make_method(make_settings(**SPEAKER), *dialog_data).agents["speaker"]
    listener = make_method(make_settings(**LISTENER), *dialog_data).agents["listener"]
    agents = toy.agents()
    assert isinstance(find_owner(TRAINING, [speaker]), DialogTraining)
    assert isinstance(find_owner(TRAINING, [agents.speaker, listener]), DialogTraining)
    assert find_owner(TRAINING, [agents.speaker, agents.listener]) is None


def test_joint_training_begins_from_pretrained_agents_and_adaptation_from_the_pretrained_listener(
    dialog_data, tmp_path
):
    prepared, store = dialog_data
    torch.manual_seed(5)
    agents = {
        "pretrained/speaker": {"speaker": make_method(make_settings(**SPEAKER), prepared, store).agents["speaker"]},
        "pretrained/other": {"speaker": make_method(make_settings(**SPEAKER), prepared, store).agents["speaker"]},
        "pretrained/listener": {"listener": make_method(make_settings(**LISTENER), prepared, store).agents["listener"]},
        "models/g": {"speaker": make_method(make_settings(**SPEAKER), prepared, store).agents["speaker"]},
    }
    for name, each in agents.items():
        save_agents(tmp_path / name / "weights.safetensors", each)

    def has_weights_of(agent, name: str, role: str) -> bool:
        kept = agents[name][role].state_dict()
        return all(torch.equal(value, kept[n]) for n, value in agent.state_dict().items())

    settings = SimpleNamespace(
        objective=Objective(),
        speaker="other",
        composition=gan1,
        takes_rewards=False,
        arguments={"alpha": 0.25},
        gamma=1.0,
    )
    method, scorer = build_method(settings, tmp_path, prepared, CPU)
    assert scorer is None
    assert has_weights_of(method.agents["speaker"], "pretrained/other", "speaker")
    assert has_weights_of(method.agents["listener"], "pretrained/listener", "listener")
    assert {term.name: term.weight for term in method.terms} == {
        "discriminability": 1.0, "likelihood": 0.25, "matching": 1.0
    }  # fmt: skip
    matching = MatchingSettings(objective="infonce", margin=0.2, temperature=0.1, negatives="all")
    adapted, scorer = build_adaptation(matching, tmp_path / "models/g", tmp_path, prepared, CPU)
    assert scorer is None
    assert has_weights_of(adapted.agents["speaker"], "models/g", "speaker")
    assert has_weights_of(adapted.agents["listener"], "pretrained/listener", "listener")
    (term,) = adapted.terms
    assert term.score == PairwiseScore(adapted.agents["listener"], reverse=True)
    training = build_training(adapted, None, Optimisation(1, 2), prepared, store, 3, CPU)
    batch = next(iter(training.batches.epoch(0)))
    assert set(compute_losses(adapted, batch)) == {"matching"}
    assert adapted.schedule.all_roles == {"listener"}
