"""What methods of joint training share, as settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.ranges import Count, NonNegative

Expecting = Literal["greedy", "leave_one_out", "group", "ground_truth", "none"]


@dataclass(frozen=True)
class Objective:
    """What all methods of one comparison share; the defaults are the papers' (PAPERS.md has the evidence)."""

    margin: NonNegative = 0.2
    """Of the hinge: 0.2 in the code of all compared systems; PSST's Eq. 4 prints 1."""
    hinge: Literal["hardest", "all"] = "hardest"
    """Negatives: the hardest of the batch, or the mean over all of it."""
    reduction: Literal["sum", "mean"] = "sum"
    """Of a differentiable score over the batch; the sum is why the paper's λ are tiny."""
    listener_reduction: Literal["mean", "sum"] = "mean"
    """Of the hinge over the batch, in steps in which the listener alone learns (REINFORCE)."""
    eos_in_reward: bool = True
    """Whether CIDEr-D as a reward counts the end of a caption as a word."""
    document_frequencies: Literal["train", "batch"] = "train"
    """What its n-grams are weighted by: the training split, or the current batch."""
    cider_sample: Literal["own", "shared"] = "own"
    """Captions that CIDEr-D scores in straight-through methods: samples of its own, or those that the listener hears,
    read again without dropout (the published code has one pass for both). PSST always draws its own."""
    greedy_dropout: bool = False
    """Whether the greedy baseline keeps its dropout, as the published code does."""
    centre: bool = False
    """Whether advantages are centred over the batch."""
    anchor: NonNegative = 0.0
    """Weight, times 1 − λ, of the cross-entropy of a human caption; none of the papers has it."""
    ending: Literal["constant", "soft"] = "constant"
    """How a listener hears the EOS that ends a caption: without a gradient, or like any word."""
    normalise: bool = False
    """Whether each term's gradient is scaled to norm 1, agent by agent, before it is weighted: one λ scale for all."""
    samples: Count = 1
    """Captions per image that score-function terms draw; to compare with each other they need two or more."""
    baseline: Expecting = "greedy"
    """What such terms expect of a caption: the score of the greedy one, the mean over the image's other samples or over
    all of them, the score of the human caption, nothing."""
    scaling: Literal["none", "group", "batch"] = "none"
    """What their advantages are divided by: the standard deviation over the image's samples (GRPO), or over the batch,
    term by term, so that λ weighs terms of one scale."""
    control: Literal["none", "relax"] = "none"
    """Whether each such term has a control variate that is learned beside (RELAX)."""
