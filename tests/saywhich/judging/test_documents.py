"""The printed lines in README.md and docs/judge.md are what the commands print of the toy example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from colour_judge import ColourJudge, print_example

from saywhich.judging import judge_sources
from saywhich.judging.judge_sources import JudgeSource

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("document", ["README.md", "docs/judge.md"])
def test_printed_lines_are_those_of_the_commands(tmp_path, monkeypatch, capsys, document):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    colours = JudgeSource(lambda name: name == "colours", lambda name: ColourJudge())
    monkeypatch.setattr(judge_sources, "JUDGES", (colours, *judge_sources.JUDGES))
    print_example(tmp_path)
    printed = capsys.readouterr().out.splitlines()
    blocks = re.findall(r"^```text\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    shown = [line for block in blocks for line in block.splitlines()]
    assert len(shown) >= 3
    assert [line for line in shown if line not in printed] == []
