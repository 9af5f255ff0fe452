"""Handles the interruption of a command by Ctrl-C, by SIGTERM, or by the end of its terminal.

Invariant: Spark's JVM is told to end before the command unwinds. A call into a busy JVM waits until the work is done,
and a call into a JVM that has ended may raise any error. So any error that leaves a command after the signal means that
the command was interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

import typer

from fencepost.cli.console import err, plain_error, print_json

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GO_ON = "What is done stays done. Run the same command again to continue"
NOTHING_CHANGED = "Nothing was changed. Run the same command again"
# commands that change nothing but reports
READ_ONLY = frozenset(
    "try status ledger quarantine pipelines suggest judge diff trace schema acls doctor services".split()
)
_received: list[int] = []  # the signals that this command received


class Interrupted(KeyboardInterrupt):
    """A signal ended the command. The message says what remains to be done, and how to continue."""

    @property
    def exit_code(self) -> int:
        """Returns the exit code that a shell expects: 130 after Ctrl-C."""
        return 128 + (_received[0] if _received else signal.SIGINT)


def was_interrupted(error: BaseException | None = None) -> bool:
    """Returns whether a signal ended the command, or `error` means that a signal did."""
    return bool(_received) or isinstance(error, KeyboardInterrupt)


def interrupted_by(error: BaseException, left: Callable[[], str]) -> Interrupted | None:
    """Returns the error to report if a signal ended the command with this error. Returns None if no signal did."""
    if isinstance(error, Interrupted) and error.args:
        return error
    return Interrupted(f"interrupted. {left()}.") if was_interrupted(error) else None


@contextmanager
def heeding_signals() -> Iterator[None]:
    """Makes signals raise an error within the block, which is a whole command line. If the process belongs to another
    program, its own handlers stay.

    Signals that are ignored, as SIGHUP is under nohup, stay ignored. A second signal during the cleanup ends the
    cleanup.
    """
    _received.clear()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items() if not _received else ():
            signal.signal(number, handler)


@contextmanager
def saying_how_to_go_on(command: Callable[[], str], *, as_json: bool) -> Iterator[None]:
    """Prints a line on stderr if the block was interrupted, and a document with `as_json`. The command then exits with
    the signal's exit code.
    """
    try:
        yield
    except typer.Exit:
        raise
    except (Exception, KeyboardInterrupt) as error:
        _heed_no_more()
        left = NOTHING_CHANGED if command() in READ_ONLY else GO_ON
        interrupted = interrupted_by(error, lambda: left)
        if interrupted is None:
            raise
        show_interrupted(interrupted)
        if as_json:
            print_json(plain_error(interrupted, interrupted.exit_code))
        raise typer.Exit(interrupted.exit_code) from None


def show_interrupted(interrupted: Interrupted) -> None:
    """Prints the message on stderr, after the JVM has ended, so that it is the last line."""
    _heed_no_more()
    if _received and (session := sys.modules.get("fencepost.spark.session")):
        session.await_end_of_jvm()
    with suppress(OSError):  # the terminal is closed
        err.print(str(interrupted), markup=False, soft_wrap=True)


def leave_if_interrupted(ended: SystemExit | KeyboardInterrupt) -> None:
    """Ends the process immediately after a signal. Otherwise threads that wait for an answer of Kafka would keep the
    process alive.
    """
    done = isinstance(ended, SystemExit) and not ended.code
    code = (
        0 if done else 128 + (_received[0] if _received else signal.SIGINT)
    )  # Typer's own exit code for a signal is 1
    if _received or isinstance(ended, KeyboardInterrupt):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _heed_no_more() -> None:
    """Ignores further signals once a signal has arrived. SIG_IGN cannot be used, because a process started afterwards
    would inherit it.
    """
    if _received:
        for number in SIGNALS:
            if signal.getsignal(number) is _end:
                signal.signal(number, lambda number, frame: None)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _received.append(number)
    if session := sys.modules.get("fencepost.spark.session"):  # Spark may run only if this is imported
        session.tell_jvm_to_end()
    raise Interrupted
