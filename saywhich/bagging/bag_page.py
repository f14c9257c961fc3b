"""Contact sheet of bags: one HTML file with the photos inside, which needs no network."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.features.animated_thumbnail import first_frame
from saywhich.bagging.bag_search import RULE, PhotoBags
from saywhich.outputs import open_output
from saywhich.search_page import thumbnail_url

SHOWN = 100  # bags on the page, the tightest
SIDE = 220  # pixels of a photo's longer side


def write_bag_page(out: Path, found: PhotoBags) -> None:
    """Write the tightest bags to `out`, a row each, with the cosines of the photos with the first."""
    pages = Environment(loader=PackageLoader("saywhich", "pages"), autoescape=True, undefined=StrictUndefined)
    bags = [
        [
            {"name": found.name(photo), "small": _small(photo), "cosine": cosine}
            for photo, cosine in zip(bag.photos, (None, *bag.cosines), strict=True)
        ]
        for bag in found.bags[:SHOWN]
    ]
    with open_output(out) as page:
        page.write(
            pages.get_template("bags.html").render(
                summary=found.summary, rule=RULE, bags=bags, hidden=len(found.bags) - len(bags)
            )
        )


def _small(photo: Path) -> str:
    image = first_frame(photo)
    image.thumbnail((SIDE, SIDE))
    return thumbnail_url(image)
