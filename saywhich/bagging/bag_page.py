"""Contact sheet of bags: one HTML file that contains the photos and needs no network."""

from __future__ import annotations

from pathlib import Path

from pipeline.errors import escape_line
from saywhich.bagging.bag_search import RULE, PhotoBags
from saywhich.offline_page import PLAIN_STYLE, write_offline_page
from saywhich.search_page import encode_thumbnail_url

MAX_BAGS = 100  # bags on the page, the tightest
SIDE = 220  # pixels of a photo's longer side


def write_bag_page(out: Path, bags: PhotoBags) -> None:
    """Write the 100 tightest bags to `out`, one row per bag, with each photo's cosine with the first photo."""
    rows = [
        [
            {"name": escape_line(bags.name(photo)), "small": encode_thumbnail_url(photo, SIDE), "cosine": cosine}
            for photo, cosine in zip(bag.photos, (None, *bag.cosines), strict=True)
        ]
        for bag in bags.bags[:MAX_BAGS]
    ]
    hidden = len(bags.bags) - len(rows)
    write_offline_page(
        out, "bags.html", styles=[PLAIN_STYLE], summary=bags.summary, rule=RULE, bags=rows, hidden=hidden
    )
