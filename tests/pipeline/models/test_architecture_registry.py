"""The registry of architectures."""

import inspect
import subprocess
import sys

import pytest

from pipeline.models.architectures import ARCHITECTURES, SIZES
from pipeline.models.decoder import Decoder


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_lists_all_sizes_that_its_constructor_takes(name):
    kind = ARCHITECTURES[name].load()
    assert issubclass(kind, Decoder)
    sizes = {SIZES[key].argument for key in ARCHITECTURES[name].sizes}
    common = {"vocabulary", "region_size", "dropout", "max_words", "null_image"}
    assert sizes == set(inspect.signature(kind).parameters) - common


def test_the_schema_imports_no_torch():
    program = "import sys; import pipeline.config.schema; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
