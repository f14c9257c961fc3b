"""Download of a corpus of the papers. It is no DVC stage, because the corpus's files are inputs of the workflow.

python -m stages.fetch --dataset coco → data/external/coco; without --dataset it lists the corpora.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pipeline.corpora import cards
from pipeline.corpora.fetching import fetch_corpus, summarise_card
from pipeline.runtime.command import run_command
from pipeline.workflow.stage import DATA


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch a corpus, or list the corpora, and return the exit status.

    The status is 0 for success, 2 for an error (one line on stderr), and 128 + signal after a request to end.
    """
    parser = argparse.ArgumentParser(prog="python -m stages.fetch", allow_abbrev=False)
    parser.add_argument("--dataset", metavar="NAME", help="the corpus to fetch; without it, all corpora are listed")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"default: {DATA / 'external' / 'NAME'}")
    parser.add_argument("--downloads", type=Path, metavar="DIR", help=f"default: {DATA / 'downloads' / 'NAME'}")
    options = parser.parse_args(arguments)

    def work() -> None:
        if options.dataset is None:
            print("\n".join(summarise_card(cards.load_card(name)) for name in cards.list_card_names()))
            print("\nmake data DATASET=NAME downloads all permitted files, and lists the sources of other files")
            return
        card = cards.load_card(options.dataset)
        out = options.out or DATA / "external" / card.name
        print_line = partial(print, flush=True)  # a log shows progress while files are fetched
        fetch_corpus(card, out, options.downloads or DATA / "downloads" / card.name, print_line)

    return run_command("fetch", work)


if __name__ == "__main__":
    sys.exit(main())
