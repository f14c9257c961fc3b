"""Captions a second at the papers' size: greedy, sampling, beams of 2 and 5.

    python benchmarks/decoding.py [--trained data]

Speakers are optimised for inference, as in evaluations. The column `floor` is the rate of an unroll that takes only the
time of its operations, at this machine's measured rate of matrix products. The last column is the share of captions
that the plain unroll (benchmarks/plain.py) also generates.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import plain
import torch
from paper_size import BATCH, make_agents, measure_fastest, measure_matmul_rate
from printing import begin_table
from torch.utils.flop_counter import FlopCounterMode

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.composition.reference_cider import build_reference_cider
from pipeline.data.batches import iterate_sequentially
from pipeline.data.image_features import load_data
from pipeline.evaluation.generate import generate_captions
from pipeline.models import unroll
from pipeline.models.decoder import Decoder
from pipeline.models.inference import optimise_for_decoding
from pipeline.protocols import Channel
from pipeline.runtime.memory import keep_freed
from pipeline.slices.slice_agents import load_speaker
from pipeline.types import Batch, Message

CPU = torch.device("cpu")
CHANNELS: dict[str, Channel] = {"greedy": Greedy(), "sampling": Multinomial(), "beam 2": Beam(2), "beam 5": Beam(5)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--trained", type=Path, help="data/ of a run; compare its speaker's captions in bfloat16 and float32"
    )
    parser.add_argument(
        "--times",
        type=int,
        default=4,
        help="repetitions of each decoding, and half as many of the plain unroll; the fastest counts",
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed()
    if options.trained:
        return compare_bfloat16(options.trained, options.times)
    rate = measure_matmul_rate(options.device)
    print_row = begin_table(
        "Decoding", *("decoding", "words", "images/s", "floor", "of floor", "plain", "ratio", "same captions")
    )
    for name, channel in CHANNELS.items():
        for length in (16, 10) if name == "sampling" else (16,):
            agents, batch = make_agents(length, options.device)
            speaker = agents.speaker.eval()
            with FlopCounterMode(display=False) as counter:
                generate(speaker, batch, channel)
            fast = optimise_for_decoding(speaker)
            message = generate(fast, batch, channel)
            same = (message.tokens == generate_plain(speaker, batch, channel).tokens).all(1).float().mean()
            floor = BATCH * rate / counter.get_total_flops()
            fast_rate = BATCH / measure_fastest(partial(generate, fast, batch, channel), options.device, options.times)
            plain_rate = BATCH / measure_fastest(
                partial(generate_plain, speaker, batch, channel), options.device, max(1, options.times // 2)
            )
            words = float(message.mask.sum(1).float().mean())
            rates = f"{fast_rate:.0f}", f"{floor:.0f}", f"{fast_rate / floor:.0%}", f"{plain_rate:.0f}"
            print_row(name, f"{words:.1f}", *rates, f"{fast_rate / plain_rate:.2f}", f"{same:.1%}")


def compare_bfloat16(root: Path, times: int) -> None:
    """Compare a trained speaker's greedy and beam-search captions of the validation split in bfloat16 and float32."""
    prepared, store = load_data(root)
    speaker, rows = load_speaker(root / "pretrained" / "speaker"), prepared.rows("val")
    score = build_reference_cider(prepared)
    batches = list(iterate_sequentially(prepared, store, rows, BATCH))
    print_row = begin_table(
        "Matrix products in bfloat16", *("decoding", "images", "same captions", "CIDEr", "of float32", "times as fast")
    )
    for name, channel in CHANNELS.items():
        if not channel.requires_grad:
            calls = [
                partial(generate_captions, speaker, batches, channel, CPU, prepared.vocabulary.unk, dtype)
                for dtype in (None, torch.bfloat16)
            ]
            float32, bfloat16 = (call() for call in calls)
            same = (float32.tokens == bfloat16.tokens).flatten(1).all(1).float().mean()
            means = [float(score(message.tokens[:, 0], message.images).mean()) for message in (bfloat16, float32)]
            seconds = [measure_fastest(call, "cpu", times) for call in calls]
            print_row(
                name, len(rows), f"{same:.1%}", *(f"{mean:.3f}" for mean in means), f"{seconds[0] / seconds[1]:.2f}"
            )


@torch.no_grad()
def generate(speaker: Decoder, batch: Batch, channel: Channel) -> Message:
    return unroll.generate(speaker, batch, channel, torch.Generator(batch.device).manual_seed(0))


@torch.no_grad()
def generate_plain(speaker: Decoder, batch: Batch, channel: Channel) -> Message:
    return plain.plain_generate(speaker, batch, channel, torch.Generator(batch.device).manual_seed(0))


if __name__ == "__main__":
    main()
