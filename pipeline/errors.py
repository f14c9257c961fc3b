"""The one error that a user can mend, and what libraries' errors say in one line."""


class UserError(ValueError):
    """One line: what is wrong, where, and what to do. Stages print it without a traceback and exit with 2."""


def reason(error: Exception, longest: int = 160) -> str:
    """The first line of an error's text, or its type where it has none, of at most `longest` characters."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:longest]
