"""The interfaces between the layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, runtime_checkable

from torch import Generator, Tensor

from pipeline.numbers import Numbers
from pipeline.types import Batch, Message, Report, Symbol


class Channel(Protocol):
    """How words are chosen, and how they are heard. A frozen dataclass: equal channels share one rollout."""

    @property
    def stream(self) -> str:
        """The name of its random stream: what is drawn depends on it, the seed and the step alone."""

    @property
    def samples(self) -> int:
        """Captions per image that come out."""

    @property
    def width(self) -> int:
        """Captions per image that are unrolled; the first `samples` of them stay. Greater than `samples` in beams."""

    @property
    def learns(self) -> bool:
        """Whether a gradient can go back to the speaker; without one the rollout builds no graph."""

    @property
    def dropout(self) -> bool:
        """Whether a speaker in training mode keeps its dropout while it speaks through this channel."""

    @property
    def relaxes(self) -> bool:
        """Whether words pass a gradient to a distribution, as a `RelaxingChannel`; else to their log-probability."""

    @property
    def entropies(self) -> bool:
        """Whether a message has the entropy of each word's distribution beside the word's log-probability."""

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Callable[[int, Tensor, Tensor], Symbol]:
        """Begin B·width captions: a function of the time step, logits (N, V+1) without a graph, and rows (N,) int64.

        The rows are which of the B·width captions these are: those that have ended may be left out. What is drawn for
        a caption must not depend on that.
        """


class RelaxingChannel(Channel, Protocol):
    """A channel whose words pass a gradient to a distribution (`relaxes`)."""

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """(M, V+1): what the gradient of the words `index` (M,) goes to, differentiable in `logits`.

        `noise` is the symbols'. The value does not count.
        """

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """(M, V+1): the distributions that are heard instead of the words `index` (M,), differentiable in `logits`."""


class Score(Protocol):
    """Judges captions; higher is better."""

    @property
    def differentiable(self) -> bool:
        """Whether a gradient runs through `message.said` or `entropies`, and the score's own parameters."""

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        """(N,) one number per caption."""


@runtime_checkable
class Comparing(Protocol):
    """Judges captions beside others of the same step, whatever channels those come through."""

    @property
    def differentiable(self) -> bool:
        """As of a `Score`."""

    def among(self, rollouts: Rollouts) -> Score:
        """The score of the captions of this step."""


class Rollouts(Protocol):
    """What the speaker said in this step."""

    batch: Batch

    def of(self, channel: Channel) -> Message:
        """The captions through `channel`, spoken once however often they are asked for."""

    def continued(self, channel: Channel, each: int) -> Message:
        """Captions that begin like those through `channel`, N of T words, and that the speaker ends otherwise.

        `each` for the words up to each place but the last of all, in rows (n, t, k); where the caption had ended by
        then, it is the caption itself. No gradient.
        """

    def numbers(self, what: str) -> Numbers:
        """Random numbers for the captions of this step, other ones for each `what`."""

    def once(self, what: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What `make` gives, made once in this step for all who ask for `what`."""


class Baseline(Protocol):
    """What to expect of a caption, to be subtracted from its score; no gradient runs through it."""

    @property
    def least(self) -> int:
        """Captions per image that it takes."""

    @property
    def by_word(self) -> bool:
        """Whether there is one number per word, (N, T), not one per caption."""

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        """(N,), or (N, T) before each word, for captions whose scores are `value` (N,)."""


class Credit(Protocol):
    """A score's share per word; no gradient runs through it."""

    @property
    def by_word(self) -> bool:
        """Whether there is one number per word, (N, T), not one per caption."""

    def __call__(self, value: Tensor, score: Score, channel: Channel, rollouts: Rollouts) -> Tensor:
        """(N,), or (N, T) for each word, of captions through `channel` whose scores are `value` (N,)."""


class Scaling(Protocol):
    """What advantages are divided by."""

    @property
    def least(self) -> int:
        """Captions per image that it takes."""

    def __call__(self, advantage: Tensor, rollouts: Rollouts) -> Tensor:
        """(N,) from `advantage` (N,)."""


class Estimator(Protocol):
    """How a score's gradient reaches the speaker."""

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        """A scalar to be minimised whose gradient estimates that of −E[score], and what is worth logging."""
