"""Trained models in Python: features, captions, scores and search, and one-line errors."""

import dataclasses
import doctest
import io
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from saywhich_world import WORDS, make_model, make_repository

import saywhich
import saywhich.captioning_model
from pipeline.data.feature_store import FeatureStore
from pipeline.errors import UserError
from pipeline.evaluation.judges import encode_judged_captions, make_judge
from pipeline.models.agent_files import load_agent
from pipeline.runtime.checksums import serialise_with_checksum

FILMS = {"pca_dim": 5, "vector": "times", "frames": 3}
FEATURE_OPTIONS = [
    {},
    {"pca_dim": 5, "vector": "mean_and_max", "horizontal_flip": True},
    FILMS,
    {"frames": 3, "frames_per_second": 4.0},
]


@pytest.mark.parametrize("options", FEATURE_OPTIONS)
def test_a_photo_has_the_features_of_the_features_stage(tmp_path, options):
    data = make_repository(tmp_path, **options)
    model = saywhich.load(data / "models/psst_multinomial")
    features = model.extract_features([data / "images" / f"{i}.png" for i in range(12)])
    store = FeatureStore(data / "features/main")
    pooled, regions, mask = store.read(np.arange(12))
    np.testing.assert_allclose(features.pooled.numpy(), pooled, atol=2e-3)
    np.testing.assert_allclose(features.regions.numpy(), regions, atol=2e-3)
    assert (features.mask.numpy() == mask).all()
    judge = make_judge(
        load_agent(data / "models/psst_multinomial/weights.safetensors", "listener"), store, model.device
    )
    torch.testing.assert_close(features.vectors, judge.encode_image(torch.arange(12)).cpu(), atol=2e-3, rtol=0)


def test_a_path_an_image_and_an_array_are_the_same_photo(model, photos):
    with Image.open("a.jpg") as image:
        forms = ["a.jpg", photos / "a.jpg", image.copy(), np.asarray(image)]
    texts = [caption.text for caption in model.caption(forms)]
    assert len(set(texts)) == 1
    assert texts[0].split()
    assert set(texts[0].split()) < set(WORDS) - {"UNK"}
    grey = np.asarray(Image.open("a.jpg").convert("L"))
    assert model.extract_features([grey]).contents != model.extract_features(["a.jpg"]).contents


@pytest.mark.parametrize(
    "wrong",
    [
        *(np.zeros((4, 4, 3)), np.zeros((4, 4, 2), np.uint8), np.zeros(4, np.uint8)),
        *(np.zeros((0, 5, 3), np.uint8), np.zeros((5, 0), np.uint8)),
    ],
)
def test_an_array_that_is_no_photo_is_reported_in_one_line(model, wrong):
    with pytest.raises(UserError, match="is no photo: give uint8"):
        model.caption([wrong])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Image.new("RGB", (0, 5)), r"a Pillow image \(RGB, 0 × 5 pixels\) is no photo: give one with pixels"),
        (Image.new("F", (5, 4)), r"a Pillow image \(F, 5 × 4 pixels\) cannot be read \(floating-point pixels"),
    ],
)
def test_a_pillow_image_that_is_no_photo_is_reported_in_one_line(model, wrong, message):
    with pytest.raises(UserError, match=message):
        model.caption([wrong])


def test_a_truncated_file_that_pillow_opened_is_reported_in_one_line(model):
    content = io.BytesIO()
    Image.effect_noise((200, 200), 50).save(content, "JPEG")
    content.truncate(len(content.getvalue()) // 2)
    with (
        Image.open(content) as image,
        pytest.raises(UserError, match=r"cannot be read \(image file is truncated"),
    ):
        model.caption([image])


def test_scores_are_the_listeners_and_find_sorts_by_them(model, photos):
    names = ["a.jpg", "b.jpg", "c.jpg"]
    scores = model.score(["a dog", "the red boat on the beach"], names)
    judge = model._make_judge()
    text_embeddings = judge.encode_text(
        encode_judged_captions(["a dog", "the red boat on the beach"], model.vocabulary, 6)
    )
    np.testing.assert_allclose(scores, (text_embeddings @ model.extract_features(names).vectors.T).numpy(), atol=1e-6)
    found = model.find("A dog!", names, top=2)
    assert [each.index for each in found] == (-scores[0]).argsort()[:2].tolist()
    assert found[0].score == pytest.approx(scores[0].max())
    assert len(model.find("a dog", names, top=None)) == 3
    with pytest.raises(UserError, match="top -1: give 1 or more"):
        model.find("a dog", names, top=-1)


def test_the_candidate_with_the_largest_margin_is_chosen_with_among(model, photos):
    names = ["a.jpg", "b.jpg", "c.jpg"]
    captions = model.caption(names, samples=8, among=names, seed=3)
    plain = model.caption(names, samples=8, seed=3, temperature=0.3)
    for i, (caption, sampled) in enumerate(zip(captions, plain, strict=True)):
        assert sorted(caption.candidates) == sorted(sampled.candidates)
        scores = model.score(list(sampled.candidates), names)
        margins = scores[:, i] - np.delete(scores, i, 1).max(1)
        assert caption.margin == pytest.approx(margins.max(), abs=1e-6)
        assert caption.text == caption.candidates[0] == sampled.candidates[margins.argmax()]
        assert caption.of == 3, "expected the photo itself among the three photos"
        assert (caption.rank == 1) == (caption.margin > 0)
    assert model.caption(["a.jpg"], samples=4, among=["b.jpg"])[0].of == 2


def test_the_caption_most_similar_to_the_photo_is_chosen_where_no_distractor_is_left(model, photos):
    similar = model.caption(["a.jpg"], samples=8, score="similarity", seed=3)[0]
    plain = model.caption(["a.jpg"], samples=8, seed=3, temperature=0.3)[0]
    assert similar.text != plain.text
    for among in (["a.jpg", np.asarray(Image.open("a.jpg"))], ["a.jpg"]):
        caption = model.caption(["a.jpg"], samples=8, among=among, seed=3)[0]
        assert (caption.text, caption.rank, caption.of) == (similar.text, 1, 1)
    caption, _ = model.caption(["a.jpg", "b.jpg"], samples=8, among=["a.jpg"], seed=3)
    assert (caption.text, caption.of) == (similar.text, 1), "expected another photo of the call not to count"


def test_the_score_similarity_chooses_the_caption_most_similar_to_the_photo(model, photos):
    names = ["a.jpg", "b.jpg", "c.jpg"]
    captions = model.caption(names, samples=8, score="similarity", seed=3)
    ranked = model.caption(names, samples=8, score="similarity", among=names, seed=3)
    for i, (caption, ranked_caption) in enumerate(zip(captions, ranked, strict=True)):
        scores = model.score(list(caption.candidates), names)
        assert scores[:, i].argmax() == 0
        assert (caption.text, caption.rank, caption.of, caption.margin) == (caption.candidates[0], None, None, None)
        assert ranked_caption.candidates == caption.candidates
        assert ranked_caption.rank == 1 + (np.delete(scores[0], i) >= scores[0, i]).sum()
        assert ranked_caption.margin == pytest.approx(scores[0, i] - np.delete(scores[0], i).max(), abs=1e-6)
    plain = model.caption(names, samples=8, seed=3, temperature=0.3)
    assert [sorted(each.candidates) for each in captions] == [sorted(each.candidates) for each in plain]
    assert [str(each) for each in captions] != [str(each) for each in plain]
    with pytest.raises(UserError, match="score 'cosine': give margin or similarity"):
        model.caption(names, samples=8, score="cosine")


def test_a_temperature_divides_the_logits_of_samples(model, photos):
    def sample_texts(temperature):
        found = model.caption(["a.jpg", "b.jpg"], samples=8, temperature=temperature)
        return [caption.candidates for caption in found]

    greedy = [caption.text for caption in model.caption(["a.jpg", "b.jpg"], beam=1)]
    assert sample_texts(1e-4) == [(text,) * 8 for text in greedy]
    assert sample_texts(1.0) != sample_texts(1e-4)
    assert sample_texts(None) == sample_texts(1.0)
    for wrong in (0, 1e-40, float("nan"), float("inf")):
        with pytest.raises(UserError, match=f"temperature {wrong:g}: give a finite number of 0.000001 or more"):
            sample_texts(wrong)


def test_samples_depend_on_the_seed(model, photos):
    def draw_candidates(seed):
        return [caption.candidates for caption in model.caption(["a.jpg", "b.jpg"], samples=6, seed=seed)]

    assert draw_candidates(1) == draw_candidates(1)
    assert draw_candidates(1)[1:] == [caption.candidates for caption in model.caption(["b.jpg"], samples=6, seed=1)]
    assert draw_candidates(1) != draw_candidates(2)


def test_one_photo_or_text_counts_as_a_list_of_one(model, photos):
    expected = model.caption("a.jpg")
    assert expected == model.caption(["a.jpg"])
    assert model.caption(Path("a.jpg")) == expected
    with Image.open("a.jpg") as image:
        array = np.asarray(image.convert("RGB"))
    assert model.caption(array) == model.caption([array]) == model.caption(array[None])
    assert (model.score("a dog", "a.jpg") == model.score(["a dog"], ["a.jpg"])).all()
    assert model.find("a dog", "a.jpg") == model.find("a dog", ["a.jpg"])


def test_a_model_is_shown_in_one_line(model):
    assert repr(model) == f"<Model of {model.files.folder}: Att2in, Listener, {len(model.vocabulary)} words, on cpu>"


def test_no_text_gives_no_embedding_and_no_score(model, photos):
    assert model.encode_text([]).shape == (0, model.encode_text(["a dog"]).shape[1])
    assert model.score([], ["a.jpg", "b.jpg"]).shape == (0, 2)


def test_no_image_gives_no_caption(model):
    assert model.caption([]) == []
    assert model.score(["a dog"], []).shape == (1, 0)


def test_the_examples_in_docstrings_are_correct(repository, photos, model):
    (photos / "data").symlink_to(repository)
    for module in (saywhich, saywhich.captioning_model):
        tests = doctest.DocTestFinder().find(module, globs={"model": model, "saywhich": saywhich})
        results = [doctest.DocTestRunner().run(test) for test in tests]
        assert sum(result.attempted for result in results) > 1
        assert not any(result.failed for result in results)


def test_an_unloadable_model_is_reported_in_one_line(repository, tmp_path):
    with pytest.raises(UserError, match="no trained model; train one"):
        saywhich.load(tmp_path / "nowhere")
    weights = (repository / "models/psst_multinomial/weights.safetensors").read_bytes()
    (tmp_path / "weights.safetensors").write_bytes(weights)
    with pytest.raises(UserError, match="neither an exported model"):
        saywhich.load(tmp_path)


def test_a_replaced_file_of_a_network_is_reported(tmp_path):
    data = make_repository(tmp_path)
    file = data / "features/main/detector.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"detector.safetensors: the SHA-256 is .* as written"):
        saywhich.load(data / "models/psst_multinomial")


@pytest.mark.parametrize("features", ["3", "{main: resnet18}"])
def test_a_params_yaml_of_another_form_names_no_weights(tmp_path, features):
    data = make_repository(tmp_path)
    (data.parent / "params.yaml").write_text(f"features: {features}\n")
    assert saywhich.load(data / "models/psst_multinomial").files.root == data.resolve()


def test_a_model_on_imported_features_is_refused(tmp_path):
    data = make_repository(tmp_path)
    (data / "features/main/manifest.json").write_text(serialise_with_checksum({"imported": "x", "shape": {"P": 3}}))
    with pytest.raises(UserError, match="these features were imported"):
        saywhich.load(data / "models/psst_multinomial")


@pytest.mark.parametrize("encoder", ["gru", "bag", "pair"])
def test_the_numpy_text_encoder_equals_the_listener(tmp_path, encoder):
    from saywhich.model_files import locate_model
    from saywhich.text_encoder import TextEncoder

    data = make_repository(tmp_path)
    folder = make_model(data, encoder, 3, encoder)
    model, text_encoder = saywhich.load(folder), TextEncoder.from_files(locate_model(folder))
    texts = ["a dog", "", "Red boat, on THE beach", "zebra", "a a a a a a", "a a a a a a a a dog"]
    np.testing.assert_allclose(
        np.stack([text_encoder(text) for text in texts]), model.encode_text(texts).numpy(), atol=1e-6
    )
    assert text_encoder.find_unknown("a Zebra on the moon") == ["zebra", "moon"]
    big = dataclasses.replace(text_encoder, weights={name: 1e4 * each for name, each in text_encoder.weights.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # gates far from 0 overflow in exp
        assert np.isfinite(big("a dog")).all()
