"""The file operations of a commit."""

import errno

import pytest

from tfrnet.core import files


@pytest.mark.parametrize(
    ("code", "raises", "plain"),
    [(None, False, 0), (errno.ENOTSUP, False, 1), (errno.EIO, True, 0)],
    ids=["offered", "not offered", "failed"],
)
def test_where_there_is_a_full_fsync_it_is_used(monkeypatch, code, raises, plain):
    class MacOS:
        F_FULLFSYNC = 51

        @staticmethod
        def fcntl(descriptor, command):
            assert (descriptor, command) == (7, 51)
            if code:
                raise OSError(code, "no")

    calls = []
    monkeypatch.setattr(files, "fcntl", MacOS)
    monkeypatch.setattr(files.os, "fsync", calls.append)
    if raises:
        with pytest.raises(OSError, match="no"):
            files.fsync(7)
    else:
        files.fsync(7)
    assert len(calls) == plain
