"""Contact sheet of bags: one HTML file with the photos inside, which needs no network."""

from __future__ import annotations

from pathlib import Path

from saywhich.bagging.bag_search import RULE, PhotoBags
from saywhich.offline_page import PLAIN, write_offline_page
from saywhich.search_page import thumbnail_url

SHOWN = 100  # bags on the page, the tightest
SIDE = 220  # pixels of a photo's longer side


def write_bag_page(out: Path, found: PhotoBags) -> None:
    """Write the tightest bags to `out`, a row each, with the cosines of the photos with the first."""
    bags = [
        [
            {"name": found.name(photo), "small": thumbnail_url(photo, SIDE), "cosine": cosine}
            for photo, cosine in zip(bag.photos, (None, *bag.cosines), strict=True)
        ]
        for bag in found.bags[:SHOWN]
    ]
    hidden = len(found.bags) - len(bags)
    write_offline_page(out, "bags.html", styles=[PLAIN], summary=found.summary, rule=RULE, bags=bags, hidden=hidden)
