"""The registry of the report's sections, including those of slices."""

import pytest

from pipeline.report.report_section import ReportSection, SectionContent, insert_sections
from pipeline.slices.slice_reports import REPORT


def make_section(name: str) -> ReportSection:
    return ReportSection(name, name, lambda content: SectionContent())


def test_a_section_of_a_slice_follows_the_named_one():
    core = (make_section("a"), make_section("b"))
    found = insert_sections(core, after={"b": make_section("d"), "a": make_section("c")})
    assert [each.name for each in found] == ["a", "c", "b", "d"]
    with pytest.raises(ValueError, match="no section e in the report: name one of a, b"):
        insert_sections(core, after={"e": make_section("c")})


def test_every_section_has_a_unique_name_a_template_and_a_heading_or_an_outer_section():
    names = [each.name for each in REPORT.sections]
    assert len(names) == len(set(names))
    for each in REPORT.sections:
        assert each.template_file.is_file()
        assert each.parent in ("", *names)
        assert each.heading or each.parent
    files = [each.template_file for each in REPORT.sections]
    assert len({file.name for file in files}) == len(set(files)), "templates are included by their file names"
