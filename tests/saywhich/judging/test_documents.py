"""The documents name the choices of the commands, and show lines that the commands print for the toy example."""

import re
from pathlib import Path

from colour_judge import ColourJudge, print_example

from saywhich.judging import judge_sources
from saywhich.judging.judge_sources import PAC_S, JudgeSource
from saywhich.judging.judging_choices import DEFAULT_JUDGE, GALLERY_IMAGES, JUDGE_NAMES, NETWORK_NAMES, THUMBNAIL
from saywhich.judging.metric_choices import METRIC_CHOICES
from saywhich.rewarding.caption_reward import SCORES

ROOT = Path(__file__).parents[3]


def test_printed_lines_are_those_of_the_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    colours = JudgeSource(lambda name: name == "colours", lambda name: ColourJudge())
    monkeypatch.setattr(judge_sources, "JUDGES", (colours, *judge_sources.JUDGES))
    print_example(tmp_path)
    printed = capsys.readouterr().out.splitlines()
    blocks = re.findall(r"^```text\n(.*?)^```$", (ROOT / "docs/judge.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 3
    assert [line for line in lines if line not in printed] == []


def test_the_documents_name_every_judge_encoder_metric_and_reward():
    judging, tools = ((ROOT / "docs" / name).read_text() for name in ("judge.md", "judging_tools.md"))
    rows = re.search(r"^\| name \| judge \|.*?\n\n", judging, re.MULTILINE | re.DOTALL)[0]
    assert re.findall(r"^\| `([^`]+)`", rows, re.MULTILINE) == list(JUDGE_NAMES)
    assert all(f"`{name.removeprefix('pac_s/')}`" in rows for name in PAC_S)
    assert f"`--judge {DEFAULT_JUDGE}`" in judging
    assert f"`--hard {GALLERY_IMAGES}`" in judging
    assert f"`{THUMBNAIL}`" in judging
    assert f"`{NETWORK_NAMES[1]}`" in judging
    scores = re.search(r"^- \*\*BLEU.*?(?=^- )", judging, re.MULTILINE | re.DOTALL)[0]
    assert all(name in scores for name in METRIC_CHOICES)
    assert re.findall(r"^\| `(\w+)` \|", tools, re.MULTILINE) == ["score", *SCORES]
    assert all(f"`{name}`" in tools for name in JUDGE_NAMES)
