"""What a newcomer sees first, and what a system without POSIX locks says."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.integration.commands import Tfrnet
from tfrnet.cli.main import COMMANDS


def test_without_arguments_six_commands_are_shown(tfrnet: Tfrnet) -> None:
    result = tfrnet()
    assert (result.code, result.err) == (0, "")
    shown = re.findall(r"^  tfrnet ([\w-]+)", result.out, flags=re.MULTILINE)
    assert len(shown) == 6
    assert set(shown) <= set(COMMANDS.names())


def test_a_system_without_posix_locks_is_told_in_one_line() -> None:
    program = (
        "import sys; sys.modules['fcntl'] = None; sys.argv = ['tfrnet', 'status'];"
        "from tfrnet.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("tfrnet: error: tfrnet needs a POSIX system")
