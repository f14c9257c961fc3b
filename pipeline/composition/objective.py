"""Settings of the objective that joint-training methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.ranges import Count, NonNegative, Temperature

BaselineName = Literal["greedy", "leave_one_out", "group", "running_mean", "ground_truth", "none"]


@dataclass(frozen=True)
class Objective:
    """Settings that methods of one comparison share by default; PAPERS.md compares them with the papers' settings."""

    margin: NonNegative = 0.2
    """Margin of the hinge: 0.2 in the code of all compared systems; PSST's Eq. 4 prints 1."""
    negatives: Literal["hardest", "all"] = "hardest"
    """Negatives of the hinge: the hardest of the batch, or the mean over all."""
    reduction: Literal["sum", "mean"] = "sum"
    """Reduction of a differentiable score over the batch; a sum needs a smaller λ than a mean, as in PSST."""
    listener_reduction: Literal["mean", "sum"] = "mean"
    """Reduction of the hinge over the batch in steps that update only the listener (REINFORCE)."""
    eos_in_reward: bool = True
    """Whether the CIDEr-D reward counts EOS as a word."""
    document_frequencies: Literal["train", "batch"] = "train"
    """Source of the reward's document frequencies: the prepared data (by default the training split), or the batch."""
    cider_sample: Literal["own", "shared"] = "own"
    """Captions that CIDEr-D scores in straight-through methods: separate samples (own), or the listener's samples.

    The listener's samples are teacher-forced without dropout (the published code has one pass for both). In PSST,
    CIDEr-D always scores separate samples.
    """
    greedy_dropout: bool = False
    """Whether the greedy baseline keeps its dropout, as the published code does."""
    centre_advantages: bool = False
    """Whether advantages are centred over the batch."""
    speaker_temperature: Temperature = 1.0
    """Divisor of the pretrained speaker's logits before joint training; no paper has it.

    Below 1, sampled captions are nearer to the most likely one. Greedy captions stay the same.
    """
    cross_entropy_weight: NonNegative = 0.0
    """Weight, times 1 − λ, of the cross-entropy of a human caption; no paper has this term."""
    eos_gradient: Literal["constant", "soft"] = "constant"
    """Gradient of a caption's EOS for the listener: none (constant), or as for any token (soft)."""
    normalise_gradients: bool = False
    """Whether each term's gradient is scaled to norm 1 per agent before weighting: one λ scale for all methods."""
    samples: Count = 1
    """Captions per image that score-function terms draw; baselines over samples need two or more."""
    baseline: BaselineName = "greedy"
    """Baseline of score-function terms.

    The first three are the greedy caption's score, the mean of the image's other samples, and the mean of all its
    samples. The last three are the mean over all earlier batches, the human caption's score, and none.
    """
    advantage_scaling: Literal["none", "group", "batch"] = "none"
    """Divisor of the advantages: none, the standard deviation over the image's samples (GRPO), or that over the batch.

    The deviation over the batch is computed per term, so that λ weighs terms of one scale.
    """
    control_variate: Literal["none", "relax"] = "none"
    """Learned control variate of score-function terms: none, or RELAX for the terms on multinomial samples."""
    kl_weight: NonNegative = 0.0
    """Weight β of a further term: the KL divergence of the speaker from the starting speaker.

    The divergence of whole captions is in nats: a sum over sampled tokens, exact over the vocabulary at each token.
    """
