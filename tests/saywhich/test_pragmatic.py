"""Pragmatic captions of a trained model: the distractors of each photo, and the command."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from pipeline.channels.hard import BanToken, Beam
from pipeline.errors import UserError
from pipeline.evaluation.pragmatic_captions import find_nearest_among
from pipeline.models.pragmatic_decoder import DistractorBatches, PragmaticDecoder
from pipeline.models.retrieval_pragmatics import RetrievalPragmaticDecoder
from pipeline.models.unroll import generate
from pipeline.types import Message, make_caption_mask
from saywhich.cli import main
from saywhich.model import make_batch

ALPHA = 40.0


def test_copies_of_an_image_are_no_distractors_of_it():
    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    gallery = torch.tensor([[0.9, 0.1], [1.0, 0.0], [0.0, 1.0], [0.9, 0.1]])
    same = torch.tensor([[False, True, False, False], [True, True, True, False]])
    assert find_nearest_among(vectors, gallery, same, 2).tolist() == [[0, 3], [3, -1]]
    assert find_nearest_among(vectors, gallery[:0], same[:, :0], 2).tolist() == [[-1, -1], [-1, -1]]


@pytest.fixture
def sharp_model(model):
    """Return the model with larger weights, so that captions depend on the image."""
    with torch.no_grad():
        model.speaker.logit.weight *= 8
        model.speaker.region.weight *= 8
    return model


def generate_pragmatic(model, features, photo, distractors):
    """Return the best caption of a beam for the photo `photo`, with the photos `distractors` as distractors."""
    batches = [make_batch(features.select([distractor])) for distractor in distractors]
    gallery = DistractorBatches(batches, torch.ones(1, len(distractors), dtype=torch.bool))
    speaker = PragmaticDecoder(model.speaker.eval(), ALPHA, lambda _: gallery)
    tokens = generate(
        speaker, make_batch(features.select([photo])), BanToken(Beam(5), model.vocabulary.unk), torch.Generator()
    ).tokens
    return model.vocabulary.decode(tokens[0].tolist())


def generate_by_listener(model, features, photo, distractor):
    """Return the best caption of a beam by the listener's posterior, with the photo `distractor` as distractor."""
    images = features.vectors[[photo, distractor]].unsqueeze(0)

    def encode(tokens):
        return (
            model.listener.eval()
            .encode_text(Message(tokens, make_caption_mask(tokens), torch.arange(len(tokens)), 1))
            .detach()
        )

    speaker = RetrievalPragmaticDecoder(model.speaker.eval(), ALPHA, lambda _: images, encode)
    channel = BanToken(Beam(5), model.vocabulary.unk)
    tokens = generate(speaker, make_batch(features.select([photo])), channel, torch.Generator()).tokens
    return model.vocabulary.decode(tokens[0].tolist())


def test_pragmatic_captions_use_the_nearest_photos(sharp_model, photos):
    paths = [str(photos / f"{name}.jpg") for name in "abc"]
    features = sharp_model.extract_features(paths)
    scores = (features.vectors @ features.vectors.T).fill_diagonal_(-torch.inf)
    found = sharp_model.caption(paths, among=paths, pragmatic=ALPHA, distractors=1)
    nearest = scores.argmax(1).tolist()
    expected = [generate_pragmatic(sharp_model, features, photo, [nearest[photo]]) for photo in range(3)]
    assert [str(each) for each in found] == expected
    plain = [str(each) for each in sharp_model.caption(paths)]
    assert [str(each) for each in sharp_model.caption(paths, among=paths, pragmatic=0.0)] == plain
    assert [str(each) for each in found] != plain
    by_listener = sharp_model.caption(paths, among=paths, pragmatic=ALPHA, distractors=1, posterior="listener")
    assert [str(each) for each in by_listener] == [
        generate_by_listener(sharp_model, features, photo, nearest[photo]) for photo in range(3)
    ]
    assert [str(each) for each in by_listener] not in (plain, expected)
    both = sharp_model.caption(paths[0], among=paths, pragmatic=ALPHA)
    assert str(both[0]) == generate_pragmatic(sharp_model, features, 0, scores[0].argsort(descending=True)[:2].tolist())
    assert both[0].of == 3
    with pytest.raises(UserError, match="give among"):
        sharp_model.caption(paths, pragmatic=1.0)


def test_the_command_writes_pragmatic_captions(repository, model, photos):
    paths = [str(photos / f"{name}.jpg") for name in "abc"]
    options = ["--model", str(repository / "models/psst_multinomial"), "--among", ".", "--csv", "captions.csv"]
    assert main(["caption", *paths, *options, "--pragmatic", str(ALPHA), "--distractors", "2"]) == 0
    with open("captions.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = model.caption(paths, among=paths, pragmatic=ALPHA, distractors=2)
    assert [(row["caption"], int(row["rank"]), int(row["of"])) for row in rows] == [
        (each.text, each.rank, each.of) for each in found
    ]
    more = ["--pragmatic", str(ALPHA), "--distractors", "2", "--posterior", "listener"]
    assert main(["caption", *paths, *options, *more]) == 0
    with open("captions.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = model.caption(paths, among=paths, pragmatic=ALPHA, distractors=2, posterior="listener")
    assert [row["caption"] for row in rows] == [each.text for each in found]
    assert main(["caption", *paths, *options, "--samples", "3", "--pragmatic", "1"]) == 0
    assert Path("captions.csv").read_text().count("\n") == 4
