"""A command that is told to end cleans up first, however often it is told."""

import subprocess
import sys

COMMAND = """
import os, signal, subprocess, sys
from fencepost_stack.registry import ending_by_exception

def told_again(number):
    os.kill(os.getpid(), number)

with ending_by_exception():
    try:
        with ending_by_exception():
            try:
                told_again(signal.SIGTERM)
            finally:
                told_again(signal.SIGTERM)
                told_again(signal.SIGHUP)
                print("inner cleaned up", flush=True)
    finally:
        told_again(signal.SIGTERM)
        subprocess.run([sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGTERM).name)"], check=True)
        print("outer cleaned up", flush=True)
"""
BETWEEN = """
import signal
from fencepost_stack.registry import ending_by_exception

before = signal.getsignal(signal.SIGTERM)
with ending_by_exception():
    assert signal.getsignal(signal.SIGTERM) is not before
assert signal.getsignal(signal.SIGTERM) is before
"""


def test_a_command_that_is_told_to_end_again_while_it_cleans_up_goes_on_cleaning_up() -> None:
    done = subprocess.run([sys.executable, "-c", COMMAND], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["inner cleaned up", "SIG_DFL", "outer cleaned up"], done.stderr
    assert done.returncode == 128 + 15


def test_a_command_that_was_not_told_to_end_is_told_by_its_own_handlers_afterwards() -> None:
    subprocess.run([sys.executable, "-c", BETWEEN], check=True, timeout=60)
