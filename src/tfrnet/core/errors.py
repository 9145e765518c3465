"""The errors a user can meet. Each carries the exit code of the command line."""


class TfrnetError(Exception):
    """Something the user can act on; its message is one complete sentence or two."""

    exit_code = 2


class InputError(TfrnetError):
    """A request, a data file, an option or a model that cannot be used as given."""


class StateError(TfrnetError):
    """A state folder that is missing, in use, damaged, or made for something else."""


class TeamError(TfrnetError):
    """A process of several was lost, or could not do its part."""


class CheckFailedError(TfrnetError):
    """A check ran and did not pass."""

    exit_code = 1


class InterruptError(TfrnetError):
    """Ctrl-C, with what it left: said once the state is known to be sound."""

    exit_code = 130


class TfrnetWarning(UserWarning):
    """Something the user should know that does not stop the work."""
