"""SVG content of a matplotlib figure, with colours and points that the page can address."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from markupsafe import Markup

from pipeline.report.plot_elements import VARIABLES, PlotSeries

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE_PROPERTIES = {
    "fill",
    "fill-opacity",
    "opacity",
    "stroke",
    "stroke-width",
    "stroke-dasharray",
    "font-size",
    "text-anchor",
}


def extract_svg_content(figure: Figure, name: str, series: Sequence[PlotSeries] = ()) -> Markup:
    """Return the content of the figure's <svg>, in a form that the page allows.

    The page's policy forbids style attributes. The page's ids must be unique, so those of the figure begin with `name`.
    Colours become the page's variables. `series` gives the labels of the points.
    """
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "saywhich"}):
        figure.savefig(out, format="svg")
    content = next(e for e in ElementTree.fromstring(out.getvalue()) if e.get("id") == "figure_1")
    return Markup(ElementTree.tostring(_clean(content, name, series), encoding="unicode"))


def _clean(element: Element, name: str, series: Sequence[PlotSeries]) -> Element:
    result = Element(element.tag.rpartition("}")[2])
    result.text = (element.text or "").strip()
    for key, value in element.attrib.items():
        if key == "style":
            for style_property, _, setting in (declaration.partition(": ") for declaration in value.split("; ")):
                # a <use> takes the stroke of its <path>
                if style_property in STYLE_PROPERTIES and not (
                    result.tag == "use" and style_property.startswith("stroke")
                ):
                    result.set(style_property, f"var(--{VARIABLES[setting]})" if setting in VARIABLES else setting)
        elif key.endswith("href"):
            result.set("href", f"#{name}-{value[1:]}")
        elif key == "id" and result.tag == "path":
            result.set("id", f"{name}-{value}")
        elif key in ("d", "x", "y") or (key == "transform" and "(-0 " not in value):
            result.set(key, " ".join(re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.4g}", value).split()))
    for inner in element:
        child = _clean(inner, name, series)
        if len(child) or child.tag != "g":  # empty groups are omitted
            result.append(child)
    kind, _, n = element.get("id", "").partition("-")
    if kind == "axis":
        result.set("aria-hidden", "true")
    elif kind in ("line", "points"):
        result.set("data-line", n)
    if kind == "points" and len(result):
        markers = result[-1]
        result.remove(markers)
        for marker, point in zip(markers, series[int(n)].points, strict=True):
            group = SubElement(result, "g", {"class": "point", "role": "img", "tabindex": "-1"})
            group.set("aria-label", point.label)
            SubElement(group, "title").text = point.label
            centre = {"cx": marker.attrib["x"], "cy": marker.attrib["y"]}
            SubElement(group, "circle", {"class": "reach", "r": "9", **centre})
            group.append(marker)
    return result
