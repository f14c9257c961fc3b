"""Names of random streams."""

from __future__ import annotations

from typing import ClassVar


class Named:
    """A channel whose random stream has a stated name: its class, and the options `named`.

    So another option, or another repr, changes no caption of an old seed.
    """

    named: ClassVar[tuple[str, ...]]

    @property
    def stream(self) -> str:
        options = ((name, getattr(self, name)) for name in self.named)
        stated = (f"{name}={value.stream if isinstance(value, Named) else repr(value)}" for name, value in options)
        return f"{type(self).__name__}({', '.join(stated)})"
