"""Lines and page about reward hacking."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import one_line
from saywhich.offline_page import PLAIN, write_offline_page
from saywhich.reward_hacking.gain_shares import SHOWN, JudgeGain, RewardHacking
from saywhich.search_page import thumbnail_url


def hacking_lines(found: RewardHacking) -> Iterator[str]:
    """Yield the counts, a line per gain, the n-grams that grew, and the captions on which reward and judge disagree."""
    yield f"{found.images:,} images; gains in points, 95 % intervals over images, in brackets"
    for each in found.gains:
        role = "reward" if each.judge == found.reward else "judge"
        yield one_line(f"{each.score} by the {role} {each.judge}: {show_gain(each)}")
    yield "captions with an n-gram, in %, before and after:"
    for grown in found.grown:
        yield f"  {grown.before:5.1f} {grown.after:5.1f}  {one_line(' '.join(grown.words))}"
    rule = f"improved by the reward and worsened by {one_line(found.judges[0])}"
    yield f"images whose rank {rule}, at most {SHOWN}: {len(found.disagreements)}"
    for part in found.disagreements:
        ranks = "; ".join("{} → {}".format(*pair) for pair in (part.reward_ranks, part.judge_ranks))
        yield one_line(f"  {part.photo.name} ({ranks}): {part.before} → {part.after}")


def show_gain(each: JudgeGain) -> str:
    """Return a gain with its interval, and the share of the reward's gain where there is one."""
    text = "{:+.1f} [{:+.1f}, {:+.1f}]".format(each.gain, *each.interval)
    if each.share is None or each.share_interval is None:
        return text
    return text + ", {:.0f} % [{:.0f}, {:.0f}] of the reward's".format(each.share, *each.share_interval)


def write_hacked_page(out: Path, found: RewardHacking) -> None:
    """Write one HTML file that needs no network: gains, n-grams, and photos with both captions."""
    photos = [thumbnail_url(part.photo) for part in found.disagreements]
    disagreements = list(zip(found.disagreements, photos, strict=True))
    write_offline_page(out, "hacked.html", styles=[PLAIN], found=found, disagreements=disagreements, show=show_gain)
