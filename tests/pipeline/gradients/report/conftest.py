"""A file of measured gradients, for the tests of its tables and figures."""

import json
from pathlib import Path

import pytest


def make_row(name, samples, bias, variance, score="hinge", exact=True, seconds=0.01, **settings):
    """Return the row of an estimator in two worlds; bias and variance are doubled in the second."""
    worlds = [
        {"bias": k * bias, "bias_error": 0.0 if exact else 0.05, "cosine": 0.9, "length": 0.8, "variance": k * variance}
        for k in (1, 2)
    ]
    found = {"score": score, "name": name, "settings": settings, "samples": samples, "exact": exact, "worlds": worlds}
    return found if seconds is None else found | {"seconds": seconds}


def make_rows():
    yield make_row("REINFORCE, greedy, centred", 4, 0.1, 2.0, exact=False)
    yield make_row("REINFORCE, greedy, centred", 16, 0.1, 0.5, exact=False, seconds=0.04)
    for samples in (1, 4, 16):
        seconds = 0.01 * samples
        yield make_row("ST-Gumbel", samples, 0.5, 4.0 / samples, exact=False, seconds=seconds, temperature=0.5)
        for rho, bias, variance in ((0.0, 0.5, 4.0), (0.5, 0.6, 2.0), (1.0, 1.0, 0.4)):
            yield make_row("PSST-Multinomial", samples, bias, variance / samples, seconds=seconds, rho=rho)
            yield make_row("PSST-Multinomial", samples, bias / 2, 1.0, "hinge among images", seconds=None, rho=rho)


@pytest.fixture
def gradients_file(tmp_path) -> Path:
    """Write a file of measured gradients with round numbers, and return its path."""
    content = {
        "effort": {"worlds": 2, "epochs": 40, "samples": [1, 4, 16], "rounds": 200, "repeats": 3},
        "margin": 1.0,
        "large": {"images": 8, "vocabulary": 300, "max_words": 12, "size": 128},
        "rows": list(make_rows()),
    }
    path = tmp_path / "gradients.json"
    path.write_text(json.dumps(content))
    return path
