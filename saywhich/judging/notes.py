"""Notes about problems of inputs: one line for each problem, with its count and its first three examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipeline.errors import escape_line

MAX_EXAMPLES = 3  # examples of a problem
MAX_EXAMPLE_CHARACTERS = 40  # characters of one example


@dataclass
class Notes:
    """Problems of the inputs that do not stop the command, each with its examples."""

    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, problem: str, example: object) -> None:
        """Add one example of `problem`."""
        self.examples.setdefault(problem, []).append(str(example))

    def add_once(self, problem: str, example: object) -> None:
        """Add one example of `problem`, unless the problem has it already."""
        if str(example) not in self.examples.get(problem, ()):
            self.add(problem, example)

    def lines(self) -> Iterator[str]:
        """Yield one line per problem: the problem, its count, and its first three examples."""
        for problem, examples in self.examples.items():
            texts = [
                text if len(text) <= MAX_EXAMPLE_CHARACTERS else f"{text[: MAX_EXAMPLE_CHARACTERS - 1]}…"
                for text in examples[:MAX_EXAMPLES]
            ]
            ending = ", …" if len(examples) > MAX_EXAMPLES else ""
            yield escape_line(f"{problem}: {len(examples):,} ({', '.join(texts)}{ending})")
