"""Lines for the terminal and an HTML page about reward hacking."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import escape_line
from saywhich.offline_page import PLAIN_STYLE, write_offline_page
from saywhich.reward_hacking.gain_shares import MAX_DISAGREEMENTS, JudgeGain, RewardHacking
from saywhich.search_page import encode_thumbnail_url


def format_hacking_lines(hacking: RewardHacking) -> Iterator[str]:
    """Yield the counts, the gains, the n-grams whose share grew, and captions on which reward and judge disagree."""
    yield f"{hacking.images:,} images; gains in points, 95 % intervals over images, in brackets"
    for each in hacking.gains:
        role = "reward" if each.judge == hacking.reward else "judge"
        yield escape_line(f"{each.score} by the {role} {each.judge}: {format_gain(each)}")
    yield "captions with an n-gram, in %, before and after:"
    for growth in hacking.ngram_growth:
        yield f"  {growth.before:5.1f} {growth.after:5.1f}  {escape_line(' '.join(growth.words))}"
    rule = f"improved by the reward and worsened by {escape_line(hacking.judges[0])}"
    yield f"images whose rank {rule}, at most {MAX_DISAGREEMENTS}: {len(hacking.disagreements)}"
    for disagreement in hacking.disagreements:
        ranks = "; ".join("{} → {}".format(*pair) for pair in (disagreement.reward_ranks, disagreement.judge_ranks))
        yield escape_line(f"  {disagreement.photo.name} ({ranks}): {disagreement.before} → {disagreement.after}")


def format_gain(gain: JudgeGain) -> str:
    """Return a gain with its interval, and the share of the reward's gain where there is one."""
    text = "{:+.1f} [{:+.1f}, {:+.1f}]".format(gain.gain, *gain.interval)
    if gain.share is None or gain.share_interval is None:
        return text
    return text + ", {:.0f} % [{:.0f}, {:.0f}] of the reward's gain".format(gain.share, *gain.share_interval)


def write_reward_hacking_page(out: Path, hacking: RewardHacking) -> None:
    """Write one HTML file that needs no network: gains, n-grams, and photos with both captions."""
    photos = [encode_thumbnail_url(disagreement.photo) for disagreement in hacking.disagreements]
    disagreements = list(zip(hacking.disagreements, photos, strict=True))
    write_offline_page(
        out, "hacked.html", styles=[PLAIN_STYLE], hacking=hacking, disagreements=disagreements, show=format_gain
    )
