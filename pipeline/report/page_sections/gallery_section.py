"""Gallery of test images with the captions of every method."""

from __future__ import annotations

from pipeline.report.pictures import gallery_png
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent


def build_gallery(content: ReportContent) -> SectionContent:
    """Return the gallery's sheet of pictures, and the control's captions by the row of the picture."""
    pictures = content.pictures
    return SectionContent(
        files={"gallery.png": gallery_png(pictures, content.results.first)},
        values={"control_captions": {picture.row: content.control_caption(picture) for picture in pictures}},
        shown=True,
    )


GALLERY = ReportSection(
    "gallery", "Example captions", build_gallery, label="Gallery", template=TEMPLATE / "gallery.html"
)
