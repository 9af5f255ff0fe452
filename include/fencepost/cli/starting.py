"""Handles Ctrl-C while the command line is being imported, which takes a second or more. The package imports this module
first.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn


def end_quietly_until_a_command_runs() -> None:
    """Makes Ctrl-C end the console script with one line and exit code 130 instead of a traceback."""
    if Path(sys.argv[0]).name == "fencepost" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"interrupted. Nothing was begun. Run the same command again.\n")
    os._exit(128 + number)
