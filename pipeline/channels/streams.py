"""Keys of the channels' random streams."""

from __future__ import annotations

from typing import ClassVar


class NamedStream:
    """Base class of channels and their schedules, which provides the key of a random stream.

    The key holds only `rng_name` and the options `rng_options`. A new option or another repr therefore changes no
    caption of an old seed. Keys must never change, since another key draws other numbers. A renamed class or option
    keeps its first name in the key: `rng_name`, and (first name, attribute) in `rng_options`.
    """

    rng_name: ClassVar[str] = ""
    rng_options: ClassVar[tuple[str | tuple[str, str], ...]]

    @property
    def rng_key(self) -> str:
        pairs = [(option, option) if isinstance(option, str) else option for option in self.rng_options]
        values = [(name, getattr(self, attribute)) for name, attribute in pairs]
        options = [
            f"{name}={value.rng_key if isinstance(value, NamedStream) else repr(value)}" for name, value in values
        ]
        return f"{self.rng_name or type(self).__name__}({', '.join(options)})"
