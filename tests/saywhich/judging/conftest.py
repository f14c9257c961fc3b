"""A judge whose numbers can be computed by hand, and three photos."""

from pathlib import Path

import pytest
from colour_judge import ColourJudge, paint_colours

from saywhich.judging import judge_sources
from saywhich.judging.judge_sources import JudgeSource


@pytest.fixture
def colours(tmp_path, monkeypatch) -> Path:
    """Return a working folder with photos a (red), b (green) and c (both); register judges named `colours…`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paint_colours(tmp_path / "photos")
    source = JudgeSource(lambda name: name.startswith("colours"), ColourJudge)
    monkeypatch.setattr(judge_sources, "JUDGES", (source, *judge_sources.JUDGES))
    monkeypatch.chdir(tmp_path)
    return tmp_path
