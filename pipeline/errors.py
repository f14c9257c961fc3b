"""The one error that a user can mend."""


class UserError(ValueError):
    """One line: what is wrong, where, and what to do. Stages print it without a traceback and exit with 2."""
