"""Every profile loads and has the parameters of every stage; comparisons differ only in the compared settings."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from every_method import IN_DIALOGS, METHODS
from whole_profiles import NAMES, PROFILES, load_profile, read_profile_text

from pipeline.config import overlays
from pipeline.config.load import load, resolve_method_settings
from pipeline.config.reading import parse_yaml

ROOT = Path(__file__).parents[1]


def compose_base(data: str) -> dict:
    """Compose the parameters of a data set without a method set, the base of all comparisons on it."""
    return parse_yaml(PROFILES.compose(overlays.Composition(data)), data)


def test_the_default_profile_has_the_comparisons_training_and_no_grid():
    default, scenes = load_profile("scenes"), compose_base("scenes")
    assert {key for key in scenes if scenes[key] != default[key]} == {"methods", "sweep"}
    assert (default["sweep"]["grid"], default["methods"].keys()) == ({}, scenes["methods"].keys())


def test_methods_of_one_name_have_one_setting_in_comparisons_of_scenes():
    default, paper, beyond = (load_profile(f"scenes{suffix}")["methods"] for suffix in ("", "_paper", "_beyond"))
    assert load_profile("scenes_mixing")["methods"]["psst_multinomial"] == default["psst_multinomial"]
    for methods in (paper, beyond):
        assert {name: methods[name] for name in default} == default
    assert load_profile("scenes_results")["methods"] == paper
    assert load_profile("scenes_paper")["sweep"]["grid"] == load_profile("scenes_rewards")["sweep"]["grid"] == {}


QUICK_PROFILES = ("scenes", "flickr8k_results", "dialog_results")  # run by `make test`; all profiles together are slow


@pytest.mark.parametrize(
    "name", [name if name in QUICK_PROFILES else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_every_profile_loads_with_the_real_methods_and_serves_every_stage(name, tmp_path):
    (tmp_path / "params.yaml").write_text(read_profile_text(name), encoding="utf-8")
    loaded = load(tmp_path / "params.yaml")
    tree = loaded.model_dump(mode="json")
    for stage, block in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].items():
        foreach = block.get("foreach")
        instances = tree[foreach.strip("${}")] if isinstance(foreach, str) else foreach
        for instance in [None] if foreach is None else instances:
            view = loaded.select_for_stage(stage, instance, dvc_yaml=ROOT / "dvc.yaml")
            assert view.flatten() or stage == "validate"  # validate reads the whole file
    for method in loaded.methods:
        resolve_method_settings(loaded, method)  # the call must not raise


@pytest.mark.parametrize("methods", ["exploration", "pragmatic", "rerank", "wtf"])
@pytest.mark.parametrize("data", ["films", "flickr30k"])
def test_methods_for_any_data_load_with_data_that_have_no_such_set(data, methods, tmp_path):
    (tmp_path / "params.yaml").write_text(PROFILES.compose(overlays.Composition(data, methods)), encoding="utf-8")
    assert load(tmp_path / "params.yaml").methods


@pytest.mark.parametrize(("name", "repeated"), [("scenes", ["judge", "main"]), ("flickr8k", [])])
def test_another_start_repeats_the_features_of_trained_detectors_alone(name, repeated):
    workflow = parse_yaml((ROOT / "dvc.yaml").read_text(), "dvc.yaml")
    assert workflow["stages"]["features"]["do"]["params"] == ["features.${key}", "prepare.root", "prepare.images"]
    one, two = (parse_yaml(overlays.set_start(read_profile_text(name), start), name) for start in (1, 2))
    assert (one["seed"], two["seed"], one["prepare"]) == (1, 2, two["prepare"])
    assert sorted(key for key in one["features"] if one["features"][key] != two["features"][key]) == repeated


@pytest.mark.parametrize("data", ["scenes", "flickr8k"])
def test_the_whole_comparison_differs_from_its_base_in_methods_and_sweep_alone(data):
    small, whole = compose_base(data), load_profile(f"{data}_results")
    assert small.keys() == whole.keys()
    assert {key for key in small if small[key] != whole[key]} == {"methods", "sweep"}
    assert set(whole["methods"]) == set(whole["sweep"]["grid"])


def test_every_method_is_in_a_comparison_on_scenes_or_in_folder_blip():
    small = compose_base("scenes")
    paper, beyond, rewarded = map(load_profile, ("scenes_results", "scenes_beyond", "scenes_wtf"))
    assert {key for key in small if small[key] != beyond[key]} == {"methods", "sweep", "evaluate"}
    changed = {key for key in small if small[key] != rewarded[key]}
    assert changed == {"pretrain", "retriever", "methods", "sweep", "evaluate"}
    assert set(beyond["methods"]) == set(beyond["sweep"]["grid"])
    tuned = load_profile("folder_blip")["methods"]  # methods of the pretrained captioner
    compared = paper["methods"] | beyond["methods"] | rewarded["methods"] | tuned
    assert {block.get("method", name) for name, block in compared.items()} == set(METHODS)


def test_re_ranked_models_are_those_of_the_rewarded_methods_on_scenes():
    rewarded, similarity = load_profile("scenes_wtf"), load_profile("scenes_similarity")
    for section in ("pretrain", "retriever", "train", "adapt"):
        assert rewarded[section] == similarity[section]
    trained = {name: block for name, block in similarity["methods"].items() if "rerank" not in block}
    assert trained == {name: rewarded["methods"][name] for name in trained}
    ranked = {name.replace("psst_sim", "psst_multinomial_sim"): block for name, block in similarity["methods"].items()}
    for name, block in trained.items():
        block = {"method": name, **block, "rerank": ranked[f"{name}_similarity"]["rerank"]}
        assert ranked[f"{name}_similarity"] == block


def test_the_speaker_without_attention_has_the_settings_of_scenes():
    scenes, lstm = compose_base("scenes"), load_profile("scenes_lstm")
    assert {key for key in scenes if scenes[key] != lstm[key]} == {"pretrain", "methods", "evaluate", "report", "sweep"}
    methods = load_profile("scenes")["methods"]
    assert {name: lstm["methods"][name] for name in methods} == methods
    roles = [{name: block for name, block in p["pretrain"].items() if name != "speaker"} for p in (scenes, lstm)]
    assert roles[0] == roles[1]
    speakers = [scenes["pretrain"]["speaker"], lstm["pretrain"]["speaker"]]
    assert {key for key in speakers[0] if speakers[0][key] != speakers[1][key]} == {"architecture", "attention_dim"}


@pytest.mark.parametrize("name", ["scenes_gumbel", "scenes_lstm", "scenes_mixer", "scenes_rewards", "scenes_settings"])
def test_swept_profiles_share_data_features_and_training_settings_with_scenes(name):
    scenes, swept = compose_base("scenes"), load_profile(name)
    assert name != "scenes_settings" or set(swept["methods"]) == set(swept["sweep"]["grid"])
    assert {key for key in scenes if scenes[key] != swept[key]} - {"pretrain", "report"} == {
        "methods",
        "evaluate",
        "sweep",
    }
    assert (scenes["pretrain"] == swept["pretrain"]) == (name != "scenes_lstm")


def test_commented_methods_of_scenes_rewards_are_valid(tmp_path):
    """The commented lines at the head of scenes_rewards are valid without edits."""
    head = read_profile_text("scenes_rewards").partition("seed:")[0]
    commented = dict(re.findall(r"(pg_\w+): ({from.*})", head))
    assert set(commented) == {"pg_bcmr", "pg_spice", "pg_spider"}
    (tmp_path / "params.yaml").write_text(read_profile_text("scenes_rewards"), encoding="utf-8")
    overrides = [f"methods.{name}={block}" for name, block in commented.items()]
    loaded = load(tmp_path / "params.yaml", [*overrides, "evaluate.metrics=[BLEU, METEOR, ROUGE-L, CIDEr, SPICE]"])
    for name, reward in {"pg_bcmr": "bcmr", "pg_spice": "spice", "pg_spider": "spider"}.items():
        assert resolve_method_settings(loaded, name).arguments["reward"] == reward


def test_every_method_is_in_a_comparison_of_dialogs():
    small, whole = map(load_profile, ("dialog", "dialog_results"))
    assert {key for key in small if small[key] != whole[key]} == {"pretrain", "methods", "report", "sweep"}
    assert {block.get("method", name) for name, block in whole["methods"].items()} == set(IN_DIALOGS)
    assert small["pretrain"].items() <= whole["pretrain"].items()


def test_comparisons_on_photos_share_all_earlier_stages():
    photos, beyond = map(load_profile, ("flickr8k_results", "flickr8k_beyond"))
    assert {key for key in photos if photos[key] != beyond[key]} == {"methods", "sweep", "evaluate", "report"}
    assert set(beyond["methods"]) == set(beyond["sweep"]["grid"])


def test_coco_has_the_published_learning_rates(tmp_path):
    """The epoch counter begins at 200: the learning rate starts at 5e-3 · .75^13, and that of Luo at 5e-4 · .8^13."""
    (tmp_path / "params.yaml").write_text(read_profile_text("coco"), encoding="utf-8")
    loaded = load(tmp_path / "params.yaml")
    luo_optimisation = resolve_method_settings(loaded, "luo").optimisation
    for settings in (loaded.train.optimisation, loaded.adapt.optimisation):
        rates = [settings.rate(epoch, 1) for epoch in (0, 10, 149)]
        assert rates == pytest.approx([1.187863e-4, 8.908974e-5, 6.689275e-6], rel=1e-5)
    assert [luo_optimisation.rate(epoch, 1) for epoch in (0, 10, 99)] == pytest.approx(
        [2.748779e-5, 2.199023e-5, 7.20576e-6]
    )


def test_levels_of_the_papers_stay_with_their_corpora():
    """The levels come from tables 1, 2, 3 and 6 and figure 4 of PSST; profiles that extend COCO's have none."""
    levels = {
        name: (found.get("cider_levels"), found.get("score_levels"))
        for name in NAMES
        if (found := load_profile(name)["report"])
    }
    paper_levels = {name: found for name, found in levels.items() if found != (None, None)}
    assert paper_levels == {"coco": ([1.22, 1.2, 1.13], [80.0]), "flickr30k": (None, [90.0])}
    assert {name: load_profile(name)["report"]["score"] for name in paper_levels} == {"coco": "R@5", "flickr30k": "R@5"}


def test_every_profile_is_listed_here():
    assert NAMES == [
        "coco",
        "coco_blip",
        "coco_sle",
        "coco_spider",
        "coco_wtf",
        "dialog",
        "dialog_facts",
        "dialog_results",
        "films",
        "films_lambda",
        "flickr30k",
        "flickr8k",
        "flickr8k_beyond",
        "flickr8k_fine",
        "flickr8k_lambda",
        "flickr8k_official",
        "flickr8k_pragmatic",
        "flickr8k_pragmatic_alpha",
        "flickr8k_results",
        "flickr8k_wide",
        "flickr8k_wtf",
        "folder",
        "folder_blip",
        "scenes",
        "scenes_beyond",
        "scenes_clipping",
        "scenes_gumbel",
        "scenes_lambda",
        "scenes_lstm",
        "scenes_mixer",
        "scenes_mixing",
        "scenes_paper",
        "scenes_pragmatic",
        "scenes_pragmatic_alpha",
        "scenes_rerank",
        "scenes_results",
        "scenes_rewards",
        "scenes_seeds",
        "scenes_settings",
        "scenes_similarity",
        "scenes_temperature",
        "scenes_transformer",
        "scenes_wtf",
        "tgif",
        "visdial",
    ]
    assert load_profile("scenes")["prepare"]["dataset"] == "scenes"


def test_the_params_that_git_keeps_are_the_profile_scenes(tmp_path):
    """The test compares the files in the index of Git, since a user may edit params.yaml."""

    def read_staged_file(path: str) -> str:
        result = subprocess.run(["git", "show", f":{path}"], cwd=ROOT, capture_output=True, text=True, check=False)
        if result.returncode:
            pytest.skip(f"git does not keep {path} here")
        return result.stdout

    for name in ("base", "scenes"):
        (tmp_path / f"{name}.yaml").write_text(read_staged_file(f"profiles/{name}.yaml"), encoding="utf-8")
    assert read_staged_file("params.yaml") == overlays.compose_profile_text("scenes", tmp_path)
