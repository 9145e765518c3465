"""What a state needs of the operating system, in one place, with a clear word where it is not."""

from tfrnet.core.errors import StateError

try:
    import fcntl
except ImportError:  # Windows
    raise StateError(
        "tfrnet needs a POSIX system (Linux or macOS) for its file locks; on Windows use WSL"
    ) from None

__all__ = ["fcntl"]
