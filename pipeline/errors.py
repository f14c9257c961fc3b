"""The error that a user can correct, and one-line forms of other errors' messages."""

import unicodedata

# Unicode categories: control, format, surrogates, line and paragraph separators
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
JOINERS = "\u200c\u200d"  # zero-width non-joiner and joiner, which scripts and emoji need


class UserError(ValueError):
    """An error with a one-line message: the fault, its place, and the remedy.

    Stages and commands print it without a traceback and exit with code 2.
    """

    def __str__(self) -> str:
        """Return the message in one line, even where it quotes text with line breaks."""
        return escape_line(super().__str__())


def escape_line(text: str) -> str:
    """Replace the characters of `text` that a terminal would interpret or hide, except JOINERS, by visible escapes.

    A line break becomes `\\n`, ESC `\\x1b`, U+202E `\\u202e`, and a byte of a file name that is not UTF-8 `\\xff`.
    """
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(character: str) -> str:
    if unicodedata.category(character) not in HIDDEN or character in JOINERS:
        return character
    if "\udc80" <= character <= "\udcff":  # a byte of a file name, decoded with surrogateescape
        return f"\\x{ord(character) - 0xDC00:02x}"
    return repr(character)[1:-1]


def summarise_error(error: BaseException, max_length: int = 160) -> str:
    """Return the first line of an error's text, or its type's name, of at most `max_length` characters."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:max_length]
