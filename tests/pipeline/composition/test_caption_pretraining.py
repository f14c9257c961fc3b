"""Pretraining from settings: the length of the listener's warm-up."""

import numpy as np
import pytest

from pipeline.composition.caption_pretraining import build_listener_pretraining
from pipeline.composition.pretraining_settings import ListenerSettings, RecoverySettings
from pipeline.data.batches import Batches
from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.data.prepared import PreparedData, write_prepared
from pipeline.readers import read_karpathy


@pytest.mark.parametrize("captions", ["one", "all"])
@pytest.mark.parametrize("batch", [6, 64])
def test_the_warm_up_lasts_whole_epochs_also_where_no_split_fills_a_batch(karpathy, tmp_path, captions, batch):
    def repeat_first_caption(data):  # each image gets its first caption three times
        for image in data["images"]:
            image["sentences"] = [{**image["sentences"][0], "sentid": 3 * image["imgid"] + k} for k in range(3)]

    write_prepared(
        read_karpathy(karpathy(40, repeat_first_caption)[0]), tmp_path / "prepared", min_count=0, max_words=16
    )
    with FeatureWriter(tmp_path / "features", 40, 2, (3, 2)) as features:
        features.write(np.arange(40), np.ones((40, 2)), np.ones((40, 3, 2)))
    prepared, store = PreparedData.load(tmp_path / "prepared"), FeatureStore(tmp_path / "features")
    settings = ListenerSettings(
        objective="hinge",
        temperature=0.07,
        margin=0.2,
        negatives="hardest",
        features="main",
        encoder="gru",
        word_dim=4,
        hidden_dim=4,
        warmup_epochs=3,
        collapse_recovery=RecoverySettings(patience=2, steps=5),
    )
    method = build_listener_pretraining(settings, batch, captions, prepared, store)
    batches = Batches(prepared, store, prepared.rows("train"), batch, 1, captions=captions)
    [term] = method.terms
    assert int(term.score.easy) == 3 * len(batches)
