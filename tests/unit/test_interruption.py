"""A command that is told to end cleans up first, however often it is told, and says last how to go on."""

import json
import os
import signal
import subprocess
import sys

import pytest

from fencepost.cli.run import left_after
from fencepost.model import State, StepResult
from makers import a_day

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


STRUCK = """
import os, signal, sys, time
sys.argv = ["fencepost", "pipelines", *sys.argv[2:]]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as under nohup
number = int(os.environ["NUMBER"])
import fencepost.cli.pipelines

def at_work():
    try:
        os.kill(os.getpid(), number)
        time.sleep(60)
    finally:
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise OSError("secret of a JVM that has ended") from None

fencepost.cli.pipelines.use_environment = lambda: None
fencepost.cli.pipelines.load_pipelines = at_work
import fencepost.cli.app
fencepost.cli.app.main()
"""
SAID = "interrupted. Nothing was changed. Run the same command again."


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_whatever_cleaning_up_raises_a_signal_s_code_and_one_line_end_the_command(
    number: signal.Signals, options: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STRUCK, "", *options],
        env={**os.environ, "NUMBER": str(int(number))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (128 + number, f"{SAID}\n")
    document = {"error": {"type": "Interrupted", "message": SAID}, "exit_code": 128 + number}
    assert (json.loads(done.stdout) if options else done.stdout) == (document if options else "")


def test_ctrl_c_before_the_commands_are_imported_ends_with_a_line_too() -> None:
    struck = (
        "import os, signal, sys; sys.argv = ['/bin/fencepost']; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "import fencepost.cli; os.kill(os.getpid(), signal.SIGINT); print('went on')"
    )
    done = subprocess.run([sys.executable, "-c", struck], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "interrupted. Nothing was begun. Run the same command again.\n"


@pytest.mark.parametrize(
    ("done", "reprocess", "words"),
    [
        ((), True, "plan, write, validate and advance are left. What is done stays done. Run the same command again"),
        (("plan", "write", "validate"), False, "advance is left. What is done stays done. Run the same command again"),
        (("plan",), True, "left. What is done stays done. Run the same command without --reprocess, which might begin"),
        (("plan", "write", "validate", "advance"), True, "are done; only the asset event in Airflow may be missing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_run_that_ends_early_says_what_is_left_and_begins_no_second_revision(
    done: tuple[str, ...], reprocess: bool, words: str
) -> None:
    steps = [
        StepResult(step=step, batch="b", revision=2, state=State.PLANNED, changed=True, message="") for step in done
    ]
    assert words in left_after(steps, a_day(1), reprocess=reprocess)
