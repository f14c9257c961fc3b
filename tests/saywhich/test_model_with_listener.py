"""A trained speaker whose captions a pretrained CLIP ranks, in place of the model's own listener."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tiny_judges import write_judge

import saywhich
from pipeline.channels.hard import BanToken, Beam
from pipeline.errors import UserError
from pipeline.models.retrieval_pragmatics import RetrievalPragmaticDecoder
from pipeline.models.unroll import generate
from saywhich.cli import main
from saywhich.judging.judge_sources import open_judge
from saywhich.model import make_batch

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="listeners need saywhich[hub]")
ALPHA = 4.0


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("listener") / "clip"
    write_judge("clip", folder)
    return str(folder)


@pytest.fixture
def folder(repository) -> str:
    return str(repository / "models/psst_multinomial")


@pytest.fixture
def paths(photos) -> list[str]:
    return [str(photos / f"{name}.jpg") for name in "abc"]


def embed(judge, paths):
    return torch.from_numpy(judge.encode_photos([judge.prepare(path) for path in paths]))


def test_the_command_writes_the_caption_with_the_largest_margin_by_the_given_listener(folder, clip, paths, capsys):
    options = ["--model", folder, "--among", ".", "--listener", clip, "--samples", "4", "--jsonl", "captions.jsonl"]
    for _ in range(2):  # embeddings are computed, then read from the cache
        assert main(["caption", *paths, *options]) == 0
        rows = [json.loads(line) for line in Path("captions.jsonl").read_text().splitlines()]
        judge = open_judge(clip)
        image_embeddings = embed(judge, paths)
        for i, row in enumerate(rows):
            scores = judge.encode_texts(row["candidates"]) @ image_embeddings.T
            margins = scores[:, i] - torch.cat([scores[:, :i], scores[:, i + 1 :]], 1).amax(1)
            assert margins[0] == pytest.approx(row["margin"], abs=1e-5)
            assert margins[0] >= margins.max() - 1e-6
            assert row["of"] == len(paths)
    own = saywhich.load(folder).caption(paths, samples=4, among=paths)
    assert [row["margin"] for row in rows] != pytest.approx([each.margin for each in own], abs=1e-3)


@pytest.mark.parametrize("among", [(), ("--among", ".")])
def test_the_command_writes_the_caption_that_is_most_similar_by_the_given_listener(folder, clip, paths, capsys, among):
    options = ["--model", folder, "--listener", clip, "--samples", "6", "--jsonl", "captions.jsonl", *among]
    assert main(["caption", *paths, "--score", "similarity", *options]) == 0
    judge = open_judge(clip)
    for vector, line in zip(embed(judge, paths), Path("captions.jsonl").read_text().splitlines(), strict=True):
        row = json.loads(line)
        scores = judge.encode_texts(row["candidates"]) @ vector
        assert scores[0] >= scores.max() - 1e-6
        assert len(row["candidates"]) == 6
        assert (row["caption"], row.get("of")) == (row["candidates"][0], 3 if among else None)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--temperature", "0.3"], "--temperature 0.3: goes with samples, not a beam; give --samples 20"),
        (
            ["--score", "similarity", "--beam", "3", "--temperature", "0.3"],
            "--temperature 0.3: goes with samples, not a beam; give --samples 20",
        ),
        (["--score", "margin"], "--score margin: needs photos to compare with; give --among FOLDER"),
        (
            ["--score", "similarity", "--among", ".", "--pragmatic", "1"],
            "--score similarity: cannot be combined with --pragmatic; leave one out",
        ),
    ],
)
def test_an_option_without_an_effect_is_refused(folder, paths, capsys, options, line):
    assert main(["caption", paths[0], "--model", folder, *options]) == 2
    assert capsys.readouterr().err == f"{line}\n"


def test_both_posteriors_use_the_given_listener(folder, clip, paths):
    ranked, judge = saywhich.load(folder, listener=clip), open_judge(clip)
    model = ranked.model
    with torch.no_grad():  # with larger weights, captions depend on the image
        model.speaker.logit.weight *= 8
        model.speaker.region.weight *= 8
    ranked.listener.temperature = judge.temperature = 0.02  # unlike the temperature of the trained listeners
    image_embeddings = embed(judge, paths)
    nearest = (image_embeddings @ image_embeddings.T).fill_diagonal_(-torch.inf).argmax(1).tolist()
    features = model.extract_features(paths)

    def generate_expected(photo: int) -> str:
        images = image_embeddings[[photo, nearest[photo]]].unsqueeze(0)
        speaker = RetrievalPragmaticDecoder(
            model.speaker.eval(),
            ALPHA,
            lambda _: images,
            lambda tokens: judge.encode_texts([model.vocabulary.decode(row) for row in tokens.tolist()]),
            judge.temperature,
        )
        channel = BanToken(Beam(5), model.vocabulary.unk)
        tokens = generate(speaker, make_batch(features.select([photo])), channel, torch.Generator()).tokens
        return model.vocabulary.decode(tokens[0].tolist())

    options = {"among": paths, "pragmatic": ALPHA, "distractors": 1}
    by_listener = [str(each) for each in ranked.caption(paths, **options, posterior="listener")]
    assert by_listener == [generate_expected(photo) for photo in range(3)]
    plain = [str(each) for each in ranked.caption(paths)]
    assert by_listener != plain
    assert [str(each) for each in ranked.caption(paths, **options | {"pragmatic": 0.0})] == plain
    by_speaker = [str(ranked.caption(paths[photo], **options)[0]) for photo in range(3)]
    expected = [
        str(model.caption(paths[photo], among=[paths[nearest[photo]]], pragmatic=ALPHA)[0]) for photo in range(3)
    ]
    assert by_speaker == expected


def test_scores_and_search_are_those_of_the_given_listener(folder, clip, paths):
    ranked, judge = saywhich.load(folder, listener=clip), open_judge(clip)
    scores = judge.encode_texts(["a red ball"]) @ embed(judge, paths).T
    torch.testing.assert_close(torch.from_numpy(ranked.score(["a red ball"], paths)), scores)
    assert [each.index for each in ranked.find("a red ball", paths)] == scores[0].argsort(descending=True).tolist()
    assert ranked.caption([]) == []
    assert ranked.score([], paths).shape == (0, len(paths))


def test_a_photo_unlike_the_training_images_is_a_copy_of_itself(folder, clip, paths, monkeypatch):
    ranked = saywhich.load(folder, listener=clip)
    known = ranked.extract_features(paths)
    monkeypatch.setattr(type(ranked.model.feature_extractor), "is_out_of_distribution", lambda *_: True)
    unlike = ranked.extract_features(paths)
    assert all(unlike.unlike)
    assert not any(known.unlike)
    assert unlike.find_copies(known.contents).tolist() == torch.eye(3, dtype=torch.bool).tolist()


def test_a_listener_without_photos_to_compare_with_is_refused(folder, clip, paths, capsys):
    assert main(["caption", paths[0], "--model", folder, "--listener", clip]) == 2
    assert capsys.readouterr().err == f"--listener {clip}: ranks captions; give --among FOLDER or --score similarity\n"
    assert main(["caption", paths[0], "--model", folder, "--among", ".", "--listener", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("--listener nowhere: no such judge; give")
    assert main(["serve", "--model", folder, "--listener", clip, "--port", "0"]) == 2
    assert capsys.readouterr().err.startswith(f"--listener {clip}: goes with --speaker or --preset; give one of them")
    with pytest.raises(UserError, match="no such judge"):
        saywhich.load(folder, listener="nowhere")
