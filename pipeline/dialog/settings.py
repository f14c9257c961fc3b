"""Sections and keys of params.yaml that visual dialog adds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from pipeline.extension import AgentSections, NameReference
from pipeline.ranges import Distinct, DropoutRate, Natural, NonNegative, Seed, Size, SmallCount
from pipeline.section import FromMapping, Name, Section
from pipeline.training.optimisation import Optimisation
from pipeline.training.selectable_metrics import build_select_validator

MRR = "MRR"  # validation metric of generators and discriminators
PRIORS = CHANCE, PRIOR, QUESTION_PRIOR = "chance", "prior", "question_prior"  # rankers of candidates without a model


class DialogSettings(Section):
    """Limits in words for the texts of dialogs, and the numbers of rounds and options of each dialog.

    All dialogs must have these numbers. A number that is null is taken from the first dialog.
    """

    caption: SmallCount = 24
    question: SmallCount = 16
    answer: SmallCount = 8
    rounds: SmallCount | None = 10
    options: SmallCount | None = 100

    @property
    def expected(self) -> dict[str, int | None]:
        """Return the expected numbers of rounds per dialog and options per round; None: as in the first dialog."""
        return {"rounds": self.rounds, "options": self.options}


class PrepareDialogs(Section):
    """Key of `prepare` for corpora of dialogs."""

    dialogs: DialogSettings | None = None

    @property
    def slice_settings(self) -> dict[str, Any]:
        """Return the settings that this slice adds to the format of a corpus, by key."""
        return {} if self.dialogs is None else {"dialogs": self.dialogs.expected}


class DialogEncoderSettings(Section):
    """Encoder of image, history and question for a generator or a discriminator; `history` and `image` may be off.

    `layer_norm` normalises the encoding before its tanh; false is the paper's form, whose tanh saturates in generators.
    `region_positions` adds a vector for the position of each region; all images must have grids of equal size.
    `round_positions` adds a vector for the distance of each history item from the current round.
    """

    features: Name
    encoder: Literal["hciae", "lf", "hre"]
    word_dim: Size
    hidden_dim: Size
    dropout: DropoutRate
    history: bool = True
    image: bool = True
    layer_norm: bool = True
    region_positions: bool = False
    round_positions: bool | None = None
    optimisation: Annotated[Optimisation, FromMapping, build_select_validator(MRR)]

    def _check(self) -> None:
        if self.round_positions is not None and self.encoder != "hciae":
            raise ValueError(f"round_positions needs encoder hciae, got {self.encoder}: leave it out")


class GeneratorSettings(DialogEncoderSettings):
    """Generator of answers and its pretraining; `layers` and `heads` belong to the transformer.

    The transformer and the encoder share word embeddings, which have the size `hidden_dim`.
    """

    decoder: Literal["lstm", "transformer"]
    layers: SmallCount | None = None
    heads: SmallCount | None = None

    def _check(self) -> None:
        super()._check()
        if any((size is None) != (self.decoder == "lstm") for size in (self.layers, self.heads)):
            raise ValueError("decoder transformer needs layers and heads, decoder lstm takes neither: correct them")
        if self.heads is not None and self.hidden_dim % self.heads:
            raise ValueError(
                f"hidden_dim {self.hidden_dim} is not a multiple of heads {self.heads}; change one of them"
            )
        if self.decoder == "transformer" and self.word_dim != self.hidden_dim:
            raise ValueError(
                f"decoder transformer needs equal word_dim and hidden_dim, got {self.word_dim} and {self.hidden_dim}; "
                "change one of them"
            )


class DiscriminatorSettings(DialogEncoderSettings):
    """Discriminator that ranks candidate answers.

    Negatives are `sampled_options` of a round's candidates (null: all), and `batch_negatives` human answers to other
    questions of the batch. `seed` is added to the global seed.
    """

    answer: Literal["last", "attention"]
    encode_eos: bool = False
    sampled_options: SmallCount | None = None
    batch_negatives: Natural = 0
    norm_penalty: NonNegative = 0.0
    seed: Seed = 0


DialogBlock = Annotated[GeneratorSettings, Tag("decoder")] | Annotated[DiscriminatorSettings, Tag("answer")]
DIALOG_AGENTS = AgentSections(
    "agents of dialogs", GeneratorSettings, DiscriminatorSettings, own_keys=("decoder", "answer"), metric=MRR
)


class CandidateRankers(Section):
    """Key of `evaluate` for dialogs.

    `candidate_rankers` maps a method to rankers of candidate answers, which are evaluated together with the
    method. A ranker is chance, prior, question_prior, or the name of a discriminator in `pretrain`. A judge of the same
    name must be the same discriminator.
    """

    candidate_rankers: dict[Name, Annotated[tuple[Name, ...], *Distinct]] = Field(default_factory=dict)

    def _check(self) -> None:
        super()._check()
        judges: Mapping[str, str] = getattr(self, "judges", {})  # a key of EvaluationSettings
        for ranker in chain.from_iterable(self.candidate_rankers.values()):
            if ranker in judges and (ranker in PRIORS or judges[ranker] != ranker):
                raise ValueError(f"candidate ranker {ranker} has the name of another judge; rename the judge")

    def references(self, methods: Collection[str], agents: Mapping[str, type[Section]]) -> Iterator[NameReference]:
        """Yield the names in these keys that must exist; `agents`: the schema of each block of `pretrain`."""
        trained = [name for name, kind in agents.items() if kind is DiscriminatorSettings]
        known, keys = [*trained, *(PRIORS if trained else ())], ("evaluate", "candidate_rankers")
        for method, rankers in self.candidate_rankers.items():
            yield NameReference(method, methods, "method", keys)
            for ranker in rankers:
                yield NameReference(ranker, known, "discriminator", (*keys, method))
