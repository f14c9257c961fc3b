"""The feature extractor of an exported model is exported again from its folder alone."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from tiny_captioners import write_captioner

from pipeline.features.extract import open_network
from pipeline.features.extractor import NetworkSettings
from pipeline.features.projection import FittedTransforms
from saywhich.feature_extractor import FeatureExtractor


@pytest.mark.skipif(find_spec("transformers") is None, reason="captioners need the extra: pip install 'saywhich[hub]'")
def test_an_exported_captioner_is_exported_again_without_its_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_captioner("blip", Path("captioner"))
    network = open_network(NetworkSettings("hub/captioner"))
    FeatureExtractor(network, FittedTransforms(), network.description, Path()).save(Path("out"))
    Path("captioner").rename("elsewhere")
    FeatureExtractor.open(Path("out"), exported=True).save(Path("again"))
    Path("out").rename("moved")
    again = FeatureExtractor.open(Path("again"), exported=True)
    assert again.network.description["weights"]["sha256"] == network.description["weights"]["sha256"]
