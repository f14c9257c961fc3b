"""A small trained model in a repository, and three photos that it has never seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from saywhich_world import make_repository, paint


@pytest.fixture(scope="session")
def repository(tmp_path_factory) -> Path:
    """Features with a projection and a scale, seen from both sides; not to be changed."""
    return make_repository(tmp_path_factory.mktemp("repository"), project=5, vector="mean_and_max", mirrored=True)


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """Three photos a, b and c in a working folder, whose cache is its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed, name in enumerate("abc", start=100):
        paint(folder / f"{name}.jpg", seed)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def model(repository):
    import saywhich

    return saywhich.load(repository / "models/psst_multinomial")
