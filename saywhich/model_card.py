"""The model card of an exported model: YAML front matter and a text with all values escaped."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from ruamel.yaml import YAML

from pipeline.errors import escape_line
from pipeline.runtime.escaping import escape_markdown_text, format_markdown_code


def make_model_card(description: Mapping[str, Any]) -> str:
    """Return the model card: front matter in the form of model hubs, then the text."""
    content = {"settings": {}, "signature": "", "metrics": [], "samples": [], "images": 0, **description}
    environment = Environment(
        loader=PackageLoader("saywhich", "pages"),
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else escape_markdown_text(value),
    )
    environment.filters["code"] = lambda value: Markup(format_markdown_code(value))
    return f"---\n{_dump_yaml(_make_front_matter(content))}---\n\n{environment.get_template('card.md').render(content)}"


def _make_front_matter(content: Mapping[str, Any]) -> dict[str, Any]:
    data = content["data"]
    front_matter: dict[str, Any] = {"library_name": "saywhich", "pipeline_tag": "image-to-text", "language": "en"}
    front_matter["license"] = escape_line(data["weights"])
    if data["weights"] == "other":
        front_matter["license_name"] = escape_line(data["licence"])
    front_matter["datasets"] = [escape_line(data["dataset"])]
    front_matter["tags"] = ["image-captioning", "image-retrieval", "discriminative-captioning"]
    if content["metrics"]:
        metrics = [
            {
                "type": escape_line(each["type"]),
                "name": escape_line(each["name"]),
                "value": float(f"{each['value']:.4g}"),
            }
            for each in content["metrics"]
        ]
        result = {
            "task": {"type": "image-to-text", "name": "Image captioning"},
            "dataset": {"type": escape_line(data["dataset"]), "name": escape_line(data["title"]), "split": "test"},
            "metrics": metrics,
        }
        front_matter["model-index"] = [{"name": escape_line(content["name"]), "results": [result]}]
    return front_matter


def _dump_yaml(content: Mapping[str, Any]) -> str:
    writer, out = YAML(), io.StringIO()
    writer.width = 1_000_000  # no line breaks within a text
    writer.dump(content, out)
    return out.getvalue()
