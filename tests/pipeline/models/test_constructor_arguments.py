"""The stored arguments of a network are its constructor's arguments, in a form that JSON holds."""

import json
from inspect import signature

import pytest

from pipeline.models.att2in import Att2in
from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.guided import GuidedDecoder


def test_networks_and_sequences_are_stored_in_a_form_that_rebuilds_them():
    speaker = Att2in(5, 3, hidden=4, null_image=True)
    assert GuidedDecoder(speaker, 2.0).arguments == {
        "inner": {"kind": "Att2in", "arguments": speaker.arguments},
        "gamma": 2.0,
    }
    assert CaptionClassifier(3, (4, 2)).arguments == {"size": 3, "hidden": [4, 2], "with_images": True}


@pytest.mark.parametrize("kind", [Att2in, CaptionClassifier])
def test_no_local_name_but_the_arguments_is_stored(kind):
    network = Att2in(5, 3) if kind is Att2in else CaptionClassifier(3)
    assert network.arguments.keys() == signature(kind).parameters.keys() - {"null_image"}
    assert json.loads(json.dumps(network.arguments)) == network.arguments
