"""The one error that a user can mend, and what libraries' errors say in one line."""

import unicodedata

HIDDEN = (
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
)  # categories of Unicode: control, format, half characters, line and paragraph ends
JOINERS = "\u200c\u200d"  # of scripts and of emoji


class UserError(ValueError):
    """One line: what is wrong, where, and what to do. Stages print it without a traceback and exit with 2."""

    def __str__(self) -> str:
        """The message in one line, whatever text of others it quotes."""
        return one_line(super().__str__())


def one_line(text: str) -> str:
    """Make what a terminal would obey or hide in `text` visible: line breaks, escapes, directions, half characters.

    A line break becomes `\\n`, ESC `\\x1b`, U+202E `\\u202e`, a byte of a file's name that is not UTF-8 `\\xff`.
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if unicodedata.category(character) not in HIDDEN or character in JOINERS:
        return character
    if "\udc80" <= character <= "\udcff":  # a byte, as Python decodes names of files
        return f"\\x{ord(character) - 0xDC00:02x}"
    return repr(character)[1:-1]


def reason(error: Exception, longest: int = 160) -> str:
    """The first line of an error's text, or its type where it has none, of at most `longest` characters."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:longest]
