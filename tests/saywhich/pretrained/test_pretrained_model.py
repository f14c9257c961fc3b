"""A pretrained speaker and listener in memory, and on the page of `saywhich serve`."""

import base64
import dataclasses
from pathlib import Path

import hostile_requests as hostile
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from saywhich_world import paint
from tiny_judges import write_judge
from tiny_pretrained import write_pretrained

import saywhich
from pipeline.errors import UserError
from pipeline.evaluation.rerank_scores import SIMILARITY
from saywhich.judging.judge_sources import open_judge
from saywhich.pretrained.pretrained_captioner import PretrainedCaptioner
from saywhich.pretrained.pretrained_model import PretrainedModel
from saywhich.pretrained.pretrained_speaker import MAX_PIXELS, GenerationSettings, PretrainedSpeaker
from saywhich.server import make_app


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    top = tmp_path_factory.mktemp("pretrained")
    write_judge("clip", top / "clip")
    speaker = PretrainedSpeaker(str(write_pretrained("blip", top / "blip")))
    return PretrainedModel(speaker, open_judge(str(top / "clip")), GenerationSettings(max_tokens=6))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    return [str(paint(folder / f"{seed}.png", seed)) for seed in range(3)]


def test_a_caption_is_the_candidate_with_the_largest_margin(model, photos):
    found = model.caption(photos, samples=4, among=photos)
    for row, caption in enumerate(found):
        scores = torch.from_numpy(model.score(caption.candidates, photos))
        margins = scores[:, row] - torch.cat([scores[:, :row], scores[:, row + 1 :]], 1).amax(1)
        assert margins[0] == pytest.approx(caption.margin, abs=1e-5)
        assert margins[0] >= margins.max() - 1e-6
        assert caption.of == 3
    single = model.caption(photos[2], samples=4)[0]
    assert sorted(single.candidates) == sorted(found[2].candidates)
    assert model.caption(photos[2], beam=2)[0].candidates == model.caption(photos, beam=2)[2].candidates
    hits = model.find(str(found[0]), photos, top=3)
    assert [hit.index for hit in hits].index(0) + 1 == found[0].rank
    with pytest.raises(UserError, match="no such photo"):
        model.caption("nowhere.png")


def test_no_captions_have_no_scores(model, photos):
    assert model.score([], photos).shape == (0, 3)


def test_without_a_listener_photos_are_captioned_and_not_ranked(model, photos):
    speaker_only = dataclasses.replace(model, listener=None)
    assert speaker_only.caption(photos, beam=2) == model.caption(photos, beam=2)
    assert speaker_only.caption([]) == []
    for use in (lambda: speaker_only.caption(photos, among=photos), lambda: speaker_only.find("a ball", photos)):
        with pytest.raises(UserError, match="ranking captions needs a listener"):
            use()


def test_the_page_has_pretrained_models(model, photos):
    content = [base64.b64encode(Path(photo).read_bytes()).decode() for photo in photos]
    with TestClient(make_app({"blip": model}), base_url="http://127.0.0.1") as client:
        answer = client.post("/caption", json={"photos": content, "among": True, "samples": 4}).json()
        expected = model.caption(photos, samples=4, among=photos)
        for row, (captions,) in enumerate(answer["photos"]):
            assert captions["caption"] == expected[row].text
            assert captions["rank"] == expected[row].rank
            assert (captions["retrieved"][0] == row) == (captions["rank"] == 1)
            assert captions["attention"] is captions["boxes"] is None
            assert captions["unlike"] is False
        plain = client.post("/caption", json={"photos": content, "beam": 2}).json()
        assert [each[0]["caption"] for each in plain["photos"]] == [str(each) for each in model.caption(photos, beam=2)]
        request = {"photos": content, "beam": 2, "among": True, "pragmatic": 1.0}
        pragmatic = client.post("/caption", json=request).json()
        expected = model.caption(photos, beam=2, among=photos, pragmatic=1.0)
        assert [each[0]["caption"] for each in pragmatic["photos"]] == [str(each) for each in expected]
        refused = client.post("/caption", json={**request, "among": False})
        assert (refused.status_code, refused.json()["detail"]) == (422, "pragmatic: goes with among; set among to true")
        hits = client.post("/find", json={"photos": content, "text": "a red ball"}).json()
    scores = model.score(["a red ball"], photos)[0]
    assert [hit["photo"] for hit in hits["found"]] == (-scores).argsort(kind="stable").tolist()
    assert hits["unknown"] == hits["unlike"] == []


def test_a_pretrained_model_is_loaded_by_its_names(model, photos):
    speaker = Path(model.speaker.name)
    loaded = saywhich.load(speaker, listener=str(speaker.with_name("clip")))
    short = dataclasses.replace(loaded, settings=model.settings)
    assert short.caption(photos, samples=2, among=photos) == model.caption(photos, samples=2, among=photos)


def test_files_are_captioned_by_similarity_without_other_photos(model, photos):
    sampling = dataclasses.replace(model, settings=dataclasses.replace(model.settings, samples=4))
    captioner = PretrainedCaptioner(sampling, score=SIMILARITY)
    found = [caption for _, captions in captioner.stream([Path(photo) for photo in photos]) for caption in captions]
    for row, caption in enumerate(found):
        scores = torch.from_numpy(model.score(caption.candidates, photos))[:, row]
        assert scores[0] >= scores.max() - 1e-6
        assert (caption.text, caption.rank) == (caption.candidates[0], None)
    assert found == model.caption(photos, samples=4, score=SIMILARITY)
    assert [str(each) for each in found] != [str(each) for each in model.caption(photos, samples=4)]


def test_settings_are_the_models_own(model, photos):
    short = dataclasses.replace(model, settings=GenerationSettings(max_tokens=1))
    assert all(len(str(caption).split()) <= 1 for caption in short.caption(photos, samples=3))


def test_large_photos_are_reduced_in_memory_and_keep_their_shape(model):
    large = model.speaker.prepare(Image.new("RGB", (6000, 3000))).image
    assert MAX_PIXELS * 0.99 < large.width * large.height <= MAX_PIXELS
    assert large.width / large.height == pytest.approx(2, abs=0.01)
    assert model.speaker.prepare(Image.new("RGB", (20_000, 1))).image.size == (20_000, 1)
    assert model.speaker.prepare(Image.new("RGB", (2 * MAX_PIXELS, 1))).image.size == (MAX_PIXELS, 1)


def test_captions_of_one_batch_are_bounded(model, photos, monkeypatch):
    """At most 40 captions are generated at once, because each takes memory. A beam of 20 allows two photos."""
    numbers, own = [], PretrainedSpeaker.generate_candidates

    def count_captions(self, inputs, settings, *more):
        numbers.append(len(inputs) * (settings.samples or settings.beam))
        return own(self, inputs, settings, *more)

    monkeypatch.setattr(PretrainedSpeaker, "generate_candidates", count_captions)
    content = [base64.b64encode(Path(photo).read_bytes()).decode() for photo in photos]
    with TestClient(make_app({"blip": model}), base_url="http://127.0.0.1") as client:
        assert client.post("/caption", json={"photos": content, "beam": 20}).status_code == 200
        assert numbers == [40, 20]
        assert client.post("/caption", json={"photos": content, "among": True, "samples": 40}).status_code == 200
        assert numbers[2:] == [40, 40, 40]
        for more in ({"samples": 41}, {"beam": 6, "pragmatic": 1.0}):
            refused = client.post("/caption", json={"photos": content, "among": True, **more})
            number = more.get("samples", 8 * 6)
            line = f"{number} candidates of a photo; the pretrained model blip generates at most 40; ask for fewer"
            assert (refused.status_code, refused.json()["detail"]) == (422, line)


@pytest.mark.slow
def test_large_photos_for_pretrained_models_take_bounded_memory(model):
    """A request of 1.2 MB holds twelve photos of 25 megapixels."""
    speaker = Path(model.speaker.name)
    pretrained = ["--speaker", str(speaker), "--listener", str(speaker.with_name("clip")), "--max-tokens", "6"]
    with hostile.run_server(options=pretrained) as served:
        body = hostile.make_caption_body([hostile.make_flat_png(5000, 5000, 8, 2)] * 12, beam=1)
        assert served.post("/caption", body)[0] == 200
        assert served.memory("VmHWM") < hostile.MAX_MEMORY
