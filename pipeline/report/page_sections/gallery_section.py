"""Gallery of test images with the captions of every method."""

from __future__ import annotations

from pipeline.report.pictures import draw_gallery_png
from pipeline.report.report_content import ReportContent
from pipeline.report.report_section import TEMPLATE, ReportSection, SectionContent


def build_gallery(content: ReportContent) -> SectionContent:
    """Return the gallery as a PNG file, and the control's caption of each image by the image's row in the data set."""
    pictures = content.pictures
    return SectionContent(
        files={"gallery.png": draw_gallery_png(pictures, content.results.first_judge)},
        values={"control_captions": {picture.row: content.get_control_caption(picture) for picture in pictures}},
        shown=True,
    )


GALLERY = ReportSection(
    "gallery", "Example captions", build_gallery, label="Gallery", template=TEMPLATE / "gallery.html"
)
