"""The one error that a user can mend, and what libraries' errors say in one line."""

import re


class UserError(ValueError):
    """One line: what is wrong, where, and what to do. Stages print it without a traceback and exit with 2."""

    def __str__(self) -> str:
        """The message in one line, whatever text of others it quotes."""
        return one_line(super().__str__())


def one_line(text: str) -> str:
    """`text` with line breaks and other control characters escaped: `\\n` for a line break, `\\x1b` for ESC."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda found: repr(found[0])[1:-1], text)


def reason(error: Exception, longest: int = 160) -> str:
    """The first line of an error's text, or its type where it has none, of at most `longest` characters."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:longest]
