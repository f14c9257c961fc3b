"""Every method has a card with a unique name and title, and PAPERS.md has every cited paper."""

import re
from pathlib import Path

from every_method import ALL, MODULES

from pipeline import methods
from pipeline.report import method_names
from pipeline.report.method_names import (
    assign_method_colours,
    cite_papers,
    collect_method_cards,
    replace_method_names,
)
from pipeline.report.plot_elements import COLOURS

ROOT = Path(__file__).parents[3]


def test_every_method_has_a_card_and_no_two_share_a_name_or_title():
    listed = [name for module in MODULES for name in module.CARDS]
    assert len(listed) == len(set(listed)) == len({card.title for card in collect_method_cards().values()})
    assert ALL.keys() <= collect_method_cards().keys()
    assert {card.colour for card in collect_method_cards().values()} <= set(range(len(COLOURS)))


def test_papers_md_has_every_cited_paper():
    rows = (ROOT / "PAPERS.md").read_text(encoding="utf-8").splitlines()
    cited = {paper for card in collect_method_cards().values() for paper in card.citation.split("; ") if paper}
    assert len(cited) > 10
    for paper in cited:
        authors, words = re.findall(r"[A-Z]\w+", paper.rpartition(", ")[0]), paper.rpartition(", ")[2].split()
        assert any(all(word in row for word in (*authors, *words)) for row in rows), paper


def test_names_that_are_ordinary_words_are_replaced_only_at_the_beginning_of_a_text():
    for name in ("cider", "guidance", "pretrained", "psst", "rl", "wtf"):
        title = collect_method_cards()[name].title
        assert replace_method_names(f"{name} has it") == f"{title} has it"
        assert replace_method_names(f"frozen_{name} has it") == f"{title} (frozen) has it"
        assert replace_method_names(f"more {name} has it") == f"more {name} has it"
    assert replace_method_names("more wtf_rl has it") == "more WTF-RL has it"


def test_the_report_cites_the_papers_of_its_methods_in_their_order():
    cited = cite_papers(["luo_rloo", "mine", "mle"])
    assert cited == "RLOO (Luo et al., CVPR 2018; Kool et al., 2019), MLE (Rennie et al., CVPR 2017)"
    assert replace_method_names(cited) == cited
    assert cite_papers(["mine"]) == ""


def test_a_module_that_cannot_be_imported_leaves_the_others_their_cards(tmp_path, monkeypatch):
    cards = collect_method_cards()
    (tmp_path / "unfinished.py").write_text("import nothing_of_this_name\n")
    monkeypatch.setattr(methods, "__path__", [str(tmp_path), *methods.__path__])
    assert collect_method_cards.__wrapped__() == cards


def test_methods_without_any_card_keep_their_names_and_share_a_colour(monkeypatch):
    monkeypatch.setattr(method_names, "collect_method_cards", dict)
    assert assign_method_colours(["luo", "mine"]) == {"luo": 1, "mine": 1}
    assert replace_method_names("luo and frozen_luo") == "luo and frozen_luo"
