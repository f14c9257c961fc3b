"""Fetch a corpus of the papers: no stage of DVC's, because what it brings is not made here.

python -m stages.fetch --dataset coco → data/external/coco; without --dataset it says what there is.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pipeline.corpora import cards
from pipeline.corpora.fetch import fetch, summary
from pipeline.runtime.command import finish
from pipeline.workflow.stage import DATA


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 complete; 2 something is missing or wrong, in one line; 128 + signal where asked to end."""
    parser = argparse.ArgumentParser(prog="python -m stages.fetch", allow_abbrev=False)
    parser.add_argument("--dataset", metavar="NAME", help="which one; without it they are listed")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"default: {DATA / 'external' / 'NAME'}")
    parser.add_argument("--downloads", type=Path, metavar="DIR", help=f"default: {DATA / 'downloads' / 'NAME'}")
    options = parser.parse_args(arguments)

    def work() -> None:
        if options.dataset is None:
            print("\n".join(summary(cards.load(name)) for name in cards.names()))
            print("\nmake data DATASET=NAME fetches what may be fetched and says where the rest is")
            return
        card = cards.load(options.dataset)
        out = options.out or DATA / "external" / card.name
        say = partial(print, flush=True)  # a log shows what is being fetched while it is
        fetch(card, out, options.downloads or DATA / "downloads" / card.name, say)

    return finish("fetch", work)


if __name__ == "__main__":
    sys.exit(main())
