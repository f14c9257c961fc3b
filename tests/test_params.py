"""Errors in params.yaml are reported in one line, and valid parameters are loaded."""

import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, get_args, get_origin

import pytest
from pydantic import ValidationError
from whole_profiles import load_profile

from pipeline import methods
from pipeline.composition.method_modules import find_method_modules
from pipeline.composition.objective import Objective
from pipeline.config.load import load, resolve_method_settings
from pipeline.config.reading import UNIONS, list_keys
from pipeline.config.schema import Params
from pipeline.errors import UserError
from pipeline.evaluation.set_sizes import SetSizes
from pipeline.training.optimisation import Optimisation

ROOT = Path(__file__).parents[1]


OWN_METHODS = """
from __future__ import annotations

from typing import Literal

from pipeline.ranges import Share


def own(
    agents: object,
    objective: object,
    lam: Share,
    by: float = 1.0,
    samples: int = 2,
    centred: bool = False,
    mix: Literal["caption", "token"] = "caption",
) -> None: ...


def untyped(agents, objective, tau=1.0): ...


def taken(agents, objective, gamma: float = 2.0): ...


def unknown(agents, objective, speaker: Speaker): ...


def opaque(agents, objective, one: type(lambda: 0)): ...


def _hidden(agents, objective): ...
"""


@pytest.fixture
def user_methods(tmp_path, monkeypatch):
    """Yield a second folder of methods, searched like pipeline/methods: `own`, and two that cannot be imported."""
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "own.py").write_text(OWN_METHODS)
    (folder / "unfinished.py").write_text("def unfinished(agents, objective:\n")
    (folder / "elsewhere.py").write_text("import nothing_of_this_name\n")
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(folder)])
    yield folder
    for name in [name for name in sys.modules if name.startswith("pipeline.methods.")]:
        if not (ROOT / f"{name.replace('.', '/')}.py").exists():
            del sys.modules[name]
            vars(methods).pop(name.rpartition(".")[2], None)


def catch_error(path: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load(path, overrides)
    line = str(caught.value)
    assert "\n" not in line
    return line


# the override, then the key, the value and the permitted values that the line must name
STRICT = [
    ("nothing=1", "nothing", "1", "allowed: seed, draw, prepare"),
    ("sed=1", "sed", "1", "did you mean seed?"),
    ("seed=-1", "seed", "-1", "a whole number, at least 0"),
    ("seed=9223372036854775808", "seed", "9223372036854775808", "a number of at most 9223372036854775807"),
    ("seed=true", "seed", "true", "a whole number"),
    ("seed=1.0", "seed", "1.0", "a whole number"),
    ('seed="1"', "seed", '"1"', "a whole number"),
    ("seed=", "seed", "null", "a whole number"),
    ("draw.scene={images: 3}", "draw.scene", "unknown key", "scenes"),
    ("draw.scenes.val=9600", "draw.scenes", "9600", "no training images of 10000"),
    ("draw.scenes.val=404", "draw.scenes", "404", "multiples of 8"),
    ("draw.scenes.images=1000001", "draw.scenes.images", "1000001", "at most 1000000"),
    ("prepare.format=json", "prepare.format", "json", "allowed: karpathy, coco"),
    ("prepare.format=cocotalk", "prepare", "annotations", "{json: file, labels: file}, optionally with captions: file"),
    ("prepare.annotations={json: a, labels: b}", "prepare", "karpathy", "format karpathy takes annotations: file"),
    ("prepare.min_count=", "prepare", "min_count", "is needed where words are counted"),
    ("prepare.images=", "prepare.images", "null", "network = object_detector; name the folder of the images"),
    ("prepare.format=coco", "prepare", "annotations", "{train: file"),
    ("prepare.format=visdial", "prepare", "annotations", "format visdial takes dialogs: and annotations"),
    ("prepare.dialogs={}", "prepare", "karpathy", "format karpathy takes"),
    ("prepare.count_ngrams=all", "prepare.count_ngrams", '"all"', "clipped | whole"),
    ("prepare.format=flickr8k", "prepare", "flickr8k", "{captions: file"),
    ("prepare.annotations=[a.json, b.json]", "prepare", "karpathy", "annotations: file"),
    ("prepare.splits=s.json", "prepare", "karpathy", "neither splits nor shares"),
    ("prepare.shares={val: 0.6, test: 0.4, seed: 0}", "prepare.shares", "0.4", "no training images"),
    ("prepare.shares={val: 0, test: 0.4, seed: 0}", "prepare.shares.val", "0", "a number, above 0, below 1"),
    ("prepare.count_words=val", "prepare.count_words", '"val"', "train | all"),
    ("prepare.expected_counts={word: 9487}", "prepare.expected_counts.word", "9487", "did you mean words?"),
    ("prepare.known_corrupt=[a.jpg, a.jpg]", "prepare.known_corrupt", "a.jpg", "twice"),
    ("prepare.root=", "prepare.root", "null", "text"),
    ("prepare.annotations={tran: a}", "prepare", "karpathy", "annotations: file"),
    ("prepare.min_count=-1", "prepare.min_count", "-1", "at least 0"),
    ("prepare.max_words=0", "prepare.max_words", "0", "at least 1"),
    ("features.main.network=resnet18", "features.main", "resnet18", "weights: hub"),
    ("features.main.weights=hub", "features.main", "object_detector", "weights: null"),
    ("features.main.batch=", "features.main", "object_detector", "needs image_size and batch"),
    ("features.main.network=imported", "features.main", "imported", "an imported: block"),
    (
        "features.main={network: imported, imported: {format: tsv, regions: a, max_regions: 36}, grid_size: 3}",
        "features.main",
        "grid_size",
        "takes no grid_size",
    ),
    (
        "features.main={network: imported, imported: {format: detections, regions: [a, b], max_regions: 36}}",
        "features.main.imported",
        "regions",
        "format detections takes regions: an HDF5 file",
    ),
    ("features.main.mean=[a]", "features.main.mean", '"a"', "a number"),
    ("features.main.mean=0.5", "features.main.mean", "0.5", "a list, each a number"),
    ("features.main.boxes={fixed: 36}", "features.main", "object_detector", "set boxes to null"),
    ("features.main.boxes={fixed: 0}", "features.main.boxes.fixed", "0", "at least 1"),
    (
        "features.main.boxes={min_boxes: 5}",
        "features.main.boxes",
        "{fixed: 36}",
        "{min_boxes: 10, max_boxes: 100, threshold: 0.2}",
    ),
    (
        "features.main.boxes={min_boxes: 5, max_boxes: 3, threshold: 0.1}",
        "features.main.boxes",
        "min_boxes 5",
        "more than max_boxes 3",
    ),
    ("features.main.detector.widht=3", "features.main.detector.widht", "3", "did you mean width?"),
    ("features.main.detector.seed=-1", "features.main.detector.seed", "-1", "at least 0"),
    ("features={}", "features.main", "missing", "speakers need it"),
    ("features.judge={network: word_detector}", "features.judge", "word_detector", "needs image_size and batch"),
    ("pretrain.judge.features=mian", "pretrain.judge.features", "mian", "did you mean main?"),
    ("pretrain.speaker.features=judge", "pretrain.speaker.features", "judge", "speakers use main"),
    ("pretrain.listener.encoder=lstm", "pretrain.listener.encoder", '"lstm"', "gru | bag"),
    ("pretrain.listener.word_dropout=1", "pretrain.listener.word_dropout", "1", "below 1"),
    ("pretrain.listener.optimisation.captions=two", "pretrain.listener.optimisation.captions", '"two"', "one | all"),
    ("features.main.mean=[0, 0]", "features.main.mean", "[0, 0]", "3 of them"),
    ("features.main.std=[1, 1, 0]", "features.main.std.2", "0", "above 0"),
    ("features.main.detector.batch=1", "features.main.detector.batch", "1", "at least 2"),
    ("features.main.std=[1, 1, 2]", "features.main", "object_detector", "takes mean: null, std: null"),
    ("features.main.vector=mean_and_max", "features.main", "object_detector", "vector: mean_and_max"),
    ("features.main.vector=times", "features.main", "vector: times", "set frames"),
    ("features.main.frames_per_second=2.0", "features.main", "frames_per_second", "set frames"),
    ("features.main.frames=0", "features.main.frames", "0", "from 1 to 64"),
    ("features.main.frames=8", "features.main", "horizontal_flip", "directions of motion"),
    (
        "pretrain.listener.collapse_recovery=no",
        "pretrain.listener.collapse_recovery",
        '"no"',
        "patience, steps or null",
    ),
    (
        "pretrain.listener.collapse_recovery.patience=0",
        "pretrain.listener.collapse_recovery.patience",
        "0",
        "at least 1",
    ),
    ("pretrain.listener.temperature=0", "pretrain.listener.temperature", "0", "above 0"),
    ("pretrain.listener.optimisation.select=cider", "pretrain.listener.optimisation", "cider", "last | rsum"),
    ("pretrain.speaker.optimisation.select=rsum", "pretrain.speaker.optimisation", "rsum", "last | cider"),
    ("pretrain.speaker.image_dropout=1.0", "pretrain.speaker.image_dropout", "1.0", "at least 0, below 1"),
    ("methods.luo.gamma=-1", "methods.luo.gamma", "-1", "a number, at least 0"),
    ("methods.luo.rerank={samples: 0}", "methods.luo.rerank.samples", "0", "a whole number, at least 1"),
    ("train.objective.speaker_temperature=1e-40", "train.objective.speaker_temperature", "1e-40", "at least 1e-06"),
    ("methods.luo.rerank={samples: 2, temperature: 0}", "methods.luo.rerank.temperature", "0", "at least 1e-06"),
    ("methods.luo.rerank={samples: 2, score: cosine}", "methods.luo.rerank.score", "cosine", "margin | similarity"),
    ("methods.luo.rerank={samples: 2, listener: judg}", "methods.luo.rerank.listener", "judg", "did you mean judge?"),
    (
        "sweep.grid.luo.rerank=[{samples: 2, listener: speaker}]",
        "sweep.grid.luo.rerank.listener",
        "speaker",
        "is no listener",
    ),
    (
        "methods.luo.rerank=20",
        "methods.luo.rerank",
        "20",
        "a mapping with the keys samples, temperature, score, listener",
    ),
    ("methods.luo.pragmatic={alpha: -1}", "methods.luo.pragmatic.alpha", "-1", "a number, at least 0"),
    ("sweep.grid.luo.rerank=[{sample: 3}]", "rerank", "sample", "did you mean samples?"),
    ("methods.luo.gamma=1.5", "methods.luo.gamma", "1.5", "set pretrain.speaker.image_dropout, for example"),
    ("sweep.grid.luo.gamma=[1, 2]", "sweep.grid.luo.gamma", "2", "set pretrain.speaker.image_dropout, for example"),
    ("pretrain.speaker.dropout=1.0", "pretrain.speaker.dropout", "1.0", "at least 0, below 1"),
    (
        "pretrain.listener.collapse_recovery={patience: 3}",
        "pretrain.listener.collapse_recovery.steps",
        "missing",
        "a whole number",
    ),
    ("pretrain.speaker.scheduled_sampling={evry: 3}", "speaker.scheduled_sampling.evry", "3", "did you mean every?"),
    (
        "pretrain.speaker.scheduled_sampling={increment: 2}",
        "speaker.scheduled_sampling.increment",
        "2",
        "a number from 0 to 1",
    ),
    (
        "pretrain.speaker.scheduled_sampling=often",
        "pretrain.speaker.scheduled_sampling",
        '"often"',
        "keys start, every, increment, max_share or null",
    ),
    ("evaluate.multi_sample={samples: 5, beams: 1}", "evaluate.multi_sample.beams", "1", "at least 2"),
    ("evaluate.multi_sample={samples: 5}", "evaluate.multi_sample.beams", "missing", "a whole number, at least 2"),
    ("train.optimisation.epochs=-1", "train.optimisation.epochs", "-1", "at least 0"),
    ("train.optimisation.epochs=true", "train.optimisation.epochs", "true", "a whole number"),
    ("train.optimisation.epochs=1.5", "train.optimisation.epochs", "1.5", "a whole number"),
    ("train.optimisation.learning_rate=fast", "train.optimisation.learning_rate", '"fast"', "a number, above 0"),
    ("train.optimisation.learning_rate=1e999", "train.optimisation.learning_rate", "Infinity", "a number"),
    ("train.optimisation.learning_rate=.nan", "train.optimisation.learning_rate", "NaN", "a number"),
    ("train.optimisation.schedule=step", "train.optimisation", "step", "decay_every"),
    ("train.optimisation.start_epoch=200", "train.optimisation", "start_epoch 200", "schedule step"),
    ("train.objective.margin=true", "train.objective.margin", "true", "a number"),
    ("train.objective.marginn=0.2", "train.objective.marginn", "0.2", "did you mean margin?"),
    ("train.objective.centre_advantages=1", "train.objective.centre_advantages", "1", "true or false"),
    ("train.objective.samples=0", "train.objective.samples", "0", "at least 1"),
    ("train.objective.baseline=rloo", "train.objective.baseline", '"rloo"', "greedy | leave_one_out | group"),
    ("train.objective.advantage_scaling=std", "train.objective.advantage_scaling", '"std"', "none | group | batch"),
    ("train.objective.control_variate=rebar", "train.objective.control_variate", '"rebar"', "none | relax"),
    ("train.objective=3", "train.objective", "3", "a mapping with the keys margin"),
    ("train=", "train", "null", "a mapping"),
    ("methods.psst_multinomial.rho=1.5", "methods.psst_multinomial.rho", "1.5", "a number from 0 to 1"),
    ("methods.psst_multinomial.rho=-0.1", "methods.psst_multinomial.rho", "-0.1", "a number from 0 to 1"),
    ("methods.luo.lambda=1.01", "methods.luo.lambda", "1.01", "a number from 0 to 1"),
    ("methods.luo.rho=0.5", "methods.luo.rho", "0.5", "allowed: from, method, speaker, train, lambda"),
    ("methods.st_multinomial.lambda=1.5", "methods.st_multinomial.lambda", "1.5", "a number from 0 to 1"),
    ("methods.luo={from: luo, speaker: speaker}", "methods.luo.lambda", "missing", "a number from 0 to 1"),
    ("methods.psst_multinomial.mix=word", "methods.psst_multinomial.mix", '"word"', "caption | token"),
    ("methods.own={from: own, lambda: 1, samples: true}", "methods.own.samples", "true", "a whole number"),
    ("methods.own={from: own, lambda: 1, by: fast}", "methods.own.by", '"fast"', "a number"),
    ("methods.own={from: own, lambda: 1, centred: 1}", "methods.own.centred", "1", "true or false"),
    ("methods.psst_multinomial.roh=0.5", "methods.psst_multinomial.roh", "0.5", "did you mean rho?"),
    ("methods.psst={}", "methods.psst.from", "missing", "a module of pipeline/methods; allowed: di"),
    ("methods.psst={from: pssst}", "methods.psst.from", '"pssst"', "did you mean psst? allowed: di"),
    ("methods.psst={from: null}", "methods.psst.from", "null", "is no module of pipeline/methods; allowed: di"),
    ("methods.psst={from: psst}", "methods.psst", "pipeline/methods/psst.py", "allowed: psst_gumbel, psst_multinomial"),
    ("methods.own={from: luo, method: luuo}", "methods.own.method", "luuo", "did you mean luo?"),
    ("methods.own={from: own, method: _hidden}", "methods.own.method", '"_hidden"', "allowed: opaque, own, taken"),
    ("methods.own={from: own, method: untyped}", "pipeline/methods/own.py", "tau of untyped", "write for example tau"),
    ("methods.own={from: own, method: taken}", "pipeline/methods/own.py", "gamma of taken", "rename the option"),
    (
        "methods.own={from: own, method: unknown}",
        "pipeline/methods/own.py",
        "NameError",
        "'Speaker' is not defined; correct",
    ),
    ("methods.own={from: own, method: opaque}", "pipeline/methods/own.py", "PydanticSchemaG", "function"),
    ("methods.own={from: unfinished}", "methods/unfinished.py", "SyntaxError", "(unfinished.py, line 1)"),
    ("methods.own={from: elsewhere}", "methods/elsewhere.py", "ModuleNotFoundError", "nothing_of_this_name"),
    ("methods.luo.speaker=listener", "methods.luo.speaker", "listener", "allowed: speaker"),
    (
        "pretrain.other={features: main, architecture: gru}",
        "pretrain.other.architecture",
        '"gru"',
        "att2in | lstm | transformer",
    ),
    (
        "pretrain.speaker.architecture=lstm",
        "pretrain.speaker",
        "architecture lstm takes the sizes",
        "hidden_dim, word_dim, and no other",
    ),
    ("pretrain.speaker.heads=4", "pretrain.speaker", "architecture att2in takes the sizes", "attention_dim"),
    ("pretrain.clip={features: main, network: resnet, weights: hub}", "pretrain.clip", "resnet", "open_clip"),
    ("evaluate.judges.own=nobody", "evaluate.judges.own", "nobody", "allowed: own, adapted, listener, judge"),
    ("evaluate.judges.own=speaker", "evaluate.judges.own", "speaker", "is no judge; allowed: own"),
    ("evaluate.judges.luo=judge", "evaluate.judges.luo", "a method has this name, too", "rename the judge"),
    ("evaluate.baselines={lou: [oracle]}", "evaluate.baselines", "lou", "did you mean luo?"),
    ("evaluate.baselines={luo: [orakel]}", "evaluate.baselines.luo", "orakel", "did you mean oracle?"),
    ("evaluate.candidate_rankers={lou: [chance]}", "evaluate.candidate_rankers", "lou", "did you mean luo?"),
    ("evaluate.candidate_rankers={luo: [judge]}", "evaluate.candidate_rankers.luo", "judge", "is no discriminator"),
    ("methods.a-b={from: likelihood, method: mle}", "methods.a-b", "not allowed", "letters, digits"),
    (
        "methods.luo.train.objective.cross_entropy_wieght=1",
        "methods.luo.train.objective.cross_entropy_wieght",
        "1",
        "did you mean cross_entropy_weight?",
    ),
    (
        "methods.luo.train.objective.cross_entropy_weight=-1",
        "methods.luo.train.objective.cross_entropy_weight",
        "-1",
        "at least 0",
    ),
    ("methods.luo.train=3", "methods.luo.train", "3", "a mapping"),
    ("evaluate.metrics=[BLEU, CIDER]", "evaluate.metrics", '"CIDER"', "BLEU | METEOR | ROUGE-L | CIDEr | SPICE"),
    ("evaluate.splits=[]", "evaluate.splits", "[]", "not empty"),
    ("sweep.seeds=1", "sweep.seeds", "1", "a list"),
    ("sweep.seeds=[1, 1]", "sweep.seeds", "1", "twice"),
    ("sweep.grid.luo.lambda=[0.5, 2]", "sweep.grid.luo.lambda", "2", "a number from 0 to 1"),
    ("sweep.grid.luo.lambda=0.5", "sweep.grid.luo.lambda", "0.5", "a list, each a number from 0 to 1"),
    ("sweep.grid.luo.lambda=[0.5, 0.5]", "sweep.grid.luo.lambda", "0.5", "twice"),
    ("sweep.grid.luo.lambda=[]", "sweep.grid.luo.lambda", "[]", "not empty"),
    ("sweep.grid.luo=3", "sweep.grid.luo", "a list of such mappings", "{lambda: [0.1, 0.2]}"),
    ("sweep.grid.luo.seed=[1, -1]", "sweep.grid.luo.seed", "-1", "at least 0"),
    ("sweep.grid.luo=[{lambda: [0.5]}, 3]", "sweep.grid.luo", "a list of such mappings", "{lambda: [0.1, 0.2]}"),
    ("sweep.grid.luo.rho=[0.5]", "sweep.grid.luo.rho", "unknown key", "allowed: lambda"),
    ("sweep.grid.lou={}", "sweep.grid.lou", "unknown method", "did you mean luo?"),
    ("report.control=mlee", "report.control", "mlee", "did you mean mle?"),
    ("report.frozen_speakers=[mle, lou]", "report.frozen_speakers", "lou", "did you mean luo?"),
    ("report.cider_levels=[]", "report.cider_levels", "[]", "not empty"),
    ("train.optimisation.patience=2", "train.optimisation", "patience", "set select to a metric"),
    ("adapt.optimisation.select=rsum", "adapt.optimisation", "rsum", "last | cider | recall@1"),
]


@pytest.mark.parametrize(("override", "key", "value", "allowed"), STRICT, ids=[row[0] for row in STRICT])
def test_a_wrong_value_is_reported_in_one_line_with_key_value_and_allowed_values(
    params, user_methods, override, key, value, allowed
):
    line = catch_error(params, override)
    assert line.startswith(f"--set {override}: ")
    message = line.removeprefix(f"--set {override}: ")
    assert key in message
    assert value in message
    assert allowed in message


@pytest.mark.parametrize(("ranker", "judge"), [("prior", "listener"), ("prior", "prior"), ("d_lf", "listener")])
def test_a_candidate_ranker_named_like_another_judge_is_refused(params, ranker, judge):
    line = catch_error(params, f"evaluate.candidate_rankers={{luo: [{ranker}]}}", f"evaluate.judges.{ranker}={judge}")
    assert line.endswith(f"evaluate: candidate ranker {ranker} has the name of another judge; rename the judge")


def test_the_same_mistake_in_the_file_names_the_file(params):
    params.write_text(params.read_text().replace("rho: 0.75", "rho: 2.5"))
    assert catch_error(params) == f"{params}: methods.psst_multinomial.rho = 2.5 is not allowed: a number from 0 to 1"


@pytest.mark.parametrize("weights", ["hub", "photos/network.safetensors"])
def test_weights_of_a_network_may_stand_beside_a_detector(params, weights):
    """In a profile with a detector, one edit replaces `hub` by a file."""
    overrides = ["network=mobilenetv2_100", "mean=[0, 0, 0]", "std=[1, 1, 1]", f"weights={weights}"]
    section = load(params, [f"features.main.{each}" for each in overrides]).features["main"]
    assert section.weights == weights
    assert section.detector is not None


def test_concatenated_vectors_need_equally_many_frames_of_every_film(params):
    films = {"frames": 8, "frames_per_second": 2.0, "vector": "times"}
    overrides = [f"features.main.{key}={value}" for key, value in films.items()]
    load(
        params,
        [
            overrides[0],
            overrides[2],
            "features.main.horizontal_flip=false",
            "features.main.detector.horizontal_flip=false",
        ],
    )
    assert "needs equally many frames of every film: set frames_per_second to null" in catch_error(params, *overrides)


def test_labels_of_objects_are_of_evenly_spread_frames(params):
    films = ("frames=8", "frames_per_second=2.0", "horizontal_flip=false", "detector.horizontal_flip=false")
    overrides = [f"features.main.{each}" for each in films]
    load(params, [overrides[0], *overrides[2:]])
    assert "network object_detector takes evenly spread frames" in catch_error(params, *overrides)


def test_a_network_that_is_trained_here_takes_no_options_of_a_library(params):
    line = catch_error(params, "features.main.options={pad_type: same}")
    assert "takes mean: null, std: null and options: {}, since it is trained here" in line


def test_settings_that_need_facts_are_refused_for_photos(params):
    photos = re.sub(r"(?m)^draw:\n.*\n", "draw: {}\n", params.read_text())
    params.write_text(photos)
    assert "evaluate.judges.symbolic = symbolic is no judge; allowed: own, adapted, listener, judge" in catch_error(
        params
    )
    photos = photos.replace(", symbolic: symbolic", "")
    params.write_text(photos)
    assert (
        "evaluate.hard_gallery.similarity = facts is no similarity of images; did you mean features? allowed: features"
        in catch_error(params)
    )
    photos = photos.replace("{similarity: facts}", "{similarity: features, images: 10}")
    params.write_text(photos.replace("similarity: features", "similarity: judge"))
    assert "evaluate.hard_gallery.similarity = judge is no similarity of images" in catch_error(params)  # a judge
    params.write_text(photos.replace(", images: 10", ""))
    assert "similarity facts takes no images" in catch_error(params)
    params.write_text(photos)
    assert "evaluate.baselines.mle = template needs the facts of drawn scenes" in catch_error(params)


@pytest.mark.parametrize("model", ["retriever", "judge"])
def test_models_that_reward_or_validate_do_not_form_hard_galleries(tmp_path, model):
    settings = load_profile("scenes_wtf")
    settings["evaluate"]["judges"] = {"own": "own"}
    settings["evaluate"]["hard_gallery"] = {"similarity": model, "images": 10}
    path = tmp_path / "params.yaml"
    path.write_text(json.dumps(settings))
    assert f"evaluate.hard_gallery.similarity = {model} is no similarity of images" in catch_error(path)


def test_a_missing_key_is_reported_unless_it_has_a_default(params):
    text = params.read_text()
    params.write_text(re.sub(r"(train: .*\n  optimisation:\n)    epochs: .*\n", r"\1", text))
    assert "train.optimisation.epochs is missing: a whole number, at least 0" in catch_error(params)
    without_margin = text.replace("    margin: 0.2\n    negatives", "    negatives")
    assert without_margin != text
    params.write_text(without_margin)
    assert load(params).train.objective.margin == 0.2
    params.write_text(re.sub(r"    weights: null.*\n", "", text))
    assert "weights:" not in params.read_text()
    assert load(params).features["main"].weights is None


def test_a_format_whose_images_are_never_broken_takes_no_known_corrupt_images(tmp_path):
    settings = load_profile("dialog")
    settings["prepare"]["known_corrupt"] = ["a.jpg"]
    (tmp_path / "params.yaml").write_text(json.dumps(settings))
    line = catch_error(tmp_path / "params.yaml")
    assert "prepare: known_corrupt is not for format visdial: leave it out" in line


def test_imported_data_need_neither_images_nor_a_network(params):
    overrides = [
        "prepare={dataset: coco, format: cocotalk, root: a, annotations: {json: b, labels: c}, max_words: 16}",
        "features={main: {network: imported, imported: {format: tsv, regions: [d, e], max_regions: 36}}}",
        "pretrain.judge.features=main",
    ]
    loaded = load(params, overrides)
    assert (loaded.prepare.images, loaded.prepare.min_count, loaded.prepare.document_frequencies) == (None,) * 3
    imported = loaded.features["main"].imported
    assert imported is not None
    assert imported.regions == ("d", "e")
    line = catch_error(params, overrides[0], "prepare.min_count=5", *overrides[1:])
    assert "a tokenizer and the vocabulary of published annotations replace the count: set min_count to null" in line


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        *((override, "expected key=value, as in ") for override in ("novalue", "=3", "a..b=3")),
        ("seed.x=3", "seed = 1 has no keys; set seed itself"),
    ],
)
def test_malformed_overrides_are_reported(params, override, problem):
    assert catch_error(params, override).startswith(f"--set {override}: {problem}")


def test_whole_numbers_and_exponents_are_numbers(params):
    loaded = load(params, ["train.objective.margin=1", "train.optimisation.learning_rate=1e-4"])
    assert loaded.train.objective.margin == 1
    assert loaded.train.optimisation.learning_rate == 1e-4


def test_overrides_replace_values_of_the_file_and_of_earlier_overrides(params):
    loaded = load(params, ["seed=2", "train.optimisation.epochs=3", "seed=4", "sweep.seeds=[5, 6]"])
    assert (loaded.seed, loaded.train.optimisation.epochs, loaded.sweep.seeds) == (4, 3, (5, 6))
    assert load(params).seed == 1


def test_a_block_holds_the_defaults_of_its_composition(params):
    overrides = [
        "methods.psst_multinomial.lambda=0.005",
        "methods.mine={from: psst, method: psst_multinomial, lambda: 1}",
    ]
    blocks = load(params, overrides).methods
    defaults = {"from": "psst", "method": "psst_multinomial", "speaker": "speaker", "mix": "token"}
    defaults |= {"feed": "distribution", "train": {}, "rerank": None, "pragmatic": None}
    assert blocks["psst_multinomial"] == {**defaults, "lambda": 0.005, "rho": 0.75, "gamma": 1.0}
    assert blocks["mine"] == {"lambda": 1.0, "rho": 0.75, "gamma": 1.0, **defaults}


@pytest.mark.parametrize("by", [0.5, 3, -1.5])
def test_an_option_of_a_method_follows_its_annotation(params, user_methods, by):
    block = load(params, [f"methods.own={{from: own, lambda: 1, by: {by}}}"]).methods["own"]
    assert block["by"] == by
    assert isinstance(block["by"], float)


def test_a_new_method_is_a_file(params, user_methods):
    (user_methods / "mine.py").write_text("def mine(agents: object, objective: object, tau: float = 0.5) -> str: ...\n")
    loaded = load(params, ["methods.mine={from: mine}", "sweep.grid={mine: {tau: [1, 2]}}"])
    settings = resolve_method_settings(loaded, "mine")
    assert settings.composition.__module__ == "pipeline.methods.mine"
    assert settings.arguments == {"tau": 0.5}


def test_a_speaker_is_guided_where_a_null_image_is_learned(params):
    overrides = ["pretrain.speaker.image_dropout=0.1", "methods.luo.gamma=2"]
    loaded = load(params, overrides)
    assert loaded.pretrain["speaker"].image_dropout == 0.1
    assert resolve_method_settings(loaded, "luo").gamma == 2
    assert resolve_method_settings(loaded, "luo").arguments == {"lam": loaded.methods["luo"]["lambda"]}
    assert load(params).pretrain["speaker"].image_dropout == 0
    assert load(params, ["methods.guidance={from: guidance, gamma: 1.5}"]).methods["guidance"]["image_dropout"] == 0.1
    with pytest.raises(UserError, match=r"guidance\.gamma = 1\.5 needs a null image"):
        load(params, ["methods.guidance={from: guidance, gamma: 1.5, image_dropout: 0.0}"])
    without = "methods.guidance={from: guidance, gamma: 1, image_dropout: 0.0}"
    load(params, [without, "sweep.grid={guidance: {image_dropout: [0.1], gamma: [2]}}"])
    with pytest.raises(UserError, match=r"sweep\.grid\.guidance\.gamma = 2 needs a null image"):
        load(params, [without, "sweep.grid={guidance: {gamma: [2]}}"])
    with pytest.raises(UserError, match=r"sweep\.grid\.guidance\.gamma = 1\.5 needs a null image"):
        load(params, ["methods.guidance={from: guidance, gamma: 1.5}", "sweep.grid={guidance: {image_dropout: [0.0]}}"])


def test_reranking_at_evaluation_is_a_setting(params):
    overrides = ["methods.luo.rerank={samples: 20}", "sweep.grid={luo: {rerank: [{samples: 1}, {samples: 5}]}}"]
    loaded = load(params, overrides)
    settings = resolve_method_settings(loaded, "luo")
    assert (settings.rerank.samples, settings.rerank.temperature) == (20, 1.0)
    assert settings.named_arguments["rerank"] == {"samples": 20}
    assert "rerank" not in settings.arguments
    with_temperature = resolve_method_settings(
        load(params, ["methods.luo.rerank={samples: 20, temperature: 0.3}"]), "luo"
    )
    assert with_temperature.named_arguments["rerank"] == {"samples": 20, "temperature": 0.3}
    with_judge = resolve_method_settings(load(params, ["methods.luo.rerank={samples: 20, listener: judge}"]), "luo")
    assert with_judge.named_arguments["rerank"] == {"samples": 20, "listener": "judge"}
    plain = resolve_method_settings(load(params), "luo")
    assert plain.rerank is None
    assert "rerank" not in plain.named_arguments


def test_pragmatic_decoding_at_evaluation_is_a_setting(params):
    loaded = load(params, ["methods.luo.pragmatic={alpha: 2}", "sweep.grid={luo: {pragmatic: [{alpha: 0.5}]}}"])
    settings = resolve_method_settings(loaded, "luo")
    assert (settings.pragmatic.alpha, settings.pragmatic.distractors) == (2, 7)
    assert settings.named_arguments["pragmatic"] == {"alpha": 2, "distractors": 7, "posterior": "speaker"}
    assert "pragmatic" not in settings.arguments
    assert resolve_method_settings(load(params), "luo").pragmatic is None
    with pytest.raises(UserError, match=r"methods\.luo\.pragmatic.*rerank"):
        load(params, ["methods.luo.pragmatic={alpha: 2}", "methods.luo.rerank={samples: 5}"])
    decodings = "rerank: [null, {samples: 5}]", "pragmatic: [null, {alpha: 2}]"
    with pytest.raises(UserError, match=r"sweep\.grid\.luo: .*, or list two grids, one for each$"):
        load(params, [f"sweep.grid={{luo: {{{', '.join(decodings)}}}}}"])
    load(params, [f"sweep.grid={{luo: [{{{decodings[0]}}}, {{{decodings[1]}}}]}}"])
    with pytest.raises(UserError, match=r"sweep\.grid\.luo.*rerank"):
        load(params, ["methods.luo.rerank={samples: 5}", "sweep.grid={luo: {pragmatic: [{alpha: 0.5}]}}"])
    # no cell has both decodings
    load(params, ["sweep.grid={luo: [{rerank: [{samples: 5}]}, {pragmatic: [{alpha: 0.5}]}]}"])
    load(params, ["methods.luo.rerank={samples: 5}", "sweep.grid={luo: {rerank: [null], pragmatic: [{alpha: 1}]}}"])


@pytest.mark.parametrize("module", ["[luo]", "{luo: 1}"])
def test_a_method_module_that_is_no_name_is_reported_in_one_line(params, module):
    with pytest.raises(UserError, match=r"methods\.luo\.from = .* is no module of"):
        load(params, [f"methods.luo.from={module}"])


REWARDS = [
    ("reward: bcmr", "bcmr"),
    ("reward: {CIDEr: 1, METEOR: 0.5}", {"CIDEr": 1.0, "METEOR": 0.5}),
]


@pytest.mark.parametrize(("option", "value"), REWARDS)
def test_a_reward_is_a_name_or_a_mapping_of_weights(params, option, value):
    loaded = load(params, [f"methods.mine={{from: spider, method: pg_spider, {option}}}"])
    assert loaded.methods["mine"]["reward"] == value
    settings = resolve_method_settings(loaded, "mine")
    assert settings.arguments["reward"] == value
    assert settings.arguments["rollouts"] == 3


@pytest.mark.parametrize("wrong", ["blue", "{BLUE: 1}", "{CIDEr: much}", "[CIDEr]"])
def test_an_invalid_reward_is_reported_in_one_line(params, wrong):
    with pytest.raises(UserError) as caught:
        load(params, [f"methods.mixer={{from: mixer, reward: {wrong}}}"])
    line = str(caught.value)
    assert "\n" not in line
    assert "methods.mixer.reward" in line
    assert "cider | bcmr | spice | spider or" in line


def test_numbers_of_rollouts_and_forced_tokens_have_a_lower_bound(params):
    with pytest.raises(UserError, match=r"methods.pg_spider.rollouts = 0 is not allowed: .* at least 1"):
        load(params, ["methods.pg_spider={from: spider, rollouts: 0}"])
    with pytest.raises(UserError, match=r"methods.mixer.forced_tokens = -1 is not allowed"):
        load(params, ["methods.mixer={from: mixer, forced_tokens: -1}"])


def test_parameters_are_frozen(params):
    loaded = load(params)
    with pytest.raises(ValidationError, match="frozen"):
        loaded.seed = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.train.optimisation.epochs = 3


def test_settings_are_instances_of_the_librarys_classes(params):
    overrides = ["pretrain.speaker.scheduled_sampling={start: 2}", "evaluate.multi_sample={samples: 3, beams: 2}"]
    loaded = load(params, [*overrides, "train.optimisation={epochs: 3}", "train.objective={}"])
    assert loaded.train.optimisation == Optimisation(epochs=3)
    assert loaded.train.objective == Objective()
    assert loaded.pretrain["speaker"].scheduled_sampling.start == 2
    assert loaded.evaluate.multi_sample == SetSizes(samples=3, beams=2)
    settings = resolve_method_settings(loaded, "luo")
    assert (settings.optimisation, settings.objective) == (Optimisation(epochs=3), Objective())


@pytest.mark.parametrize(
    "overrides",
    [
        ["prepare.format=coco", "prepare.annotations={train: a, val: b, test: c}"],
        [
            "prepare.format=visdial",
            "prepare.annotations={train: a, test: b, test_relevance: c}",
            "prepare.dialogs={options: null}",
        ],
        ["prepare.format=coco", "prepare.annotations=[a, b]", "prepare.splits=s"],
        ["prepare.format=coco", "prepare.annotations=a", "prepare.splits=s"],
        ["prepare.format=flickr8k", "prepare.annotations={captions: a, train: b, val: c, test: d}"],
        ["prepare.format=folder", "prepare.annotations=a"],
        ["prepare.format=folder", "prepare.annotations=a", "prepare.shares={val: 0.1, test: 0.1, seed: 0}"],
    ],
)
def test_annotations_follow_their_format(params, overrides):
    form = load(params, overrides).prepare.format
    other = "coco" if form == "flickr8k" else "flickr8k"
    with pytest.raises(UserError, match=f": prepare: format {other} takes annotations "):
        load(params, [*overrides, f"prepare.format={other}"])


def find_numbers(annotation, place: str, bounds=()) -> Iterator[tuple[str, bool]]:
    """Yield the key of each number in a section or an annotation, and whether the number has an upper bound."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from find_numbers(arguments[0], place, (*bounds, *arguments[1:]))
    elif annotation in (int, float):
        limits = [part for bound in bounds for part in getattr(bound, "metadata", None) or [bound]]
        yield place, any(getattr(limit, name, None) is not None for limit in limits for name in ("le", "lt"))
    elif keys := list_keys(annotation):
        for key, inner in keys.items():
            yield from find_numbers(inner, f"{place}.{key}")
    else:
        for inner in arguments:
            yield from find_numbers(inner, place, bounds if origin in UNIONS else ())


def test_every_number_has_an_upper_bound():
    found = dict(find_numbers(Params, "params"))
    for module in find_method_modules().values():
        for name, composition in inspect.getmembers(import_module(module), inspect.isfunction):
            if composition.__module__ == module and not name.startswith("_"):
                for option in inspect.signature(composition, eval_str=True).parameters.values():
                    if option.name not in ("agents", "objective", "rewards"):
                        found |= find_numbers(option.annotation, f"{name}.{option.name}")
    assert len(found) > 100
    assert [place for place, bounded in found.items() if not bounded] == []


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        ("1000000000", "a number of at most 1000"),
        ("1e9", "a whole number, at least 1"),
        ("10000000000000000000", "a number of at most 1000"),
    ],
)
def test_a_number_that_needs_gigabytes_is_reported_in_one_line(value, allowed):
    with pytest.raises(UserError, match=rf": prepare\.max_words = [\d.]+ is not allowed: {allowed}$") as error:
        load(ROOT / "params.yaml", [f"prepare.max_words={value}"])
    assert "\n" not in error.value.args[0]


def test_a_line_break_in_a_name_is_reported_in_one_line():
    with pytest.raises(UserError) as error:
        load(ROOT / "params.yaml", ['features.main.network="resnet18\\n\\e[31m"'])
    assert len(str(error.value).splitlines()) == 1
    assert "\x1b" not in str(error.value)
