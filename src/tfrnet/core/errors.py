"""Errors for users. Each carries the exit code of the command line."""

OVERFLOW_HINT = "a model that overflows in half precision needs bfloat16 or float32"


class TfrnetError(Exception):
    """Something the user can fix; the message says what is wrong and what to do."""

    exit_code = 2
    # What the command line adds where the same helps against every error of a kind.
    advice = ""


class InputError(TfrnetError):
    """A request, a data file, an option or a model that cannot be used as given."""


class StateError(TfrnetError):
    """A state folder that is missing, in use, damaged, or made for something else."""


class DamagedError(StateError):
    """A state whose files were changed or lost."""

    advice = "'tfrnet repair' says what can be saved"


class TeamError(TfrnetError):
    """One of several processes was lost or failed."""


class CheckFailedError(TfrnetError):
    """A check ran and did not pass."""

    exit_code = 1


class InterruptError(TfrnetError):
    """Ctrl-C; the message says what was done. Raised once the state is known to be intact."""

    exit_code = 130


class TfrnetWarning(UserWarning):
    """Something the user should know that does not stop the work."""
