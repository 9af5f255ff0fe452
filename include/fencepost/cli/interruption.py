"""What a command does when it is told to end: by Ctrl-C, by SIGTERM, or by the end of its terminal.

Invariant: Spark's JVM is told to end before the command unwinds. A call into a JVM that is at work waits for the work, and a call
into one that has ended raises anything: so whatever leaves a command after the signal means that it was interrupted.
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
# Commands that change nothing but reports.
READ_ONLY = frozenset(
    "try status ledger quarantine pipelines suggest judge diff trace schema acls doctor services".split()
)
_received: list[int] = []  # the signals that this command got


class Interrupted(KeyboardInterrupt):
    """A signal ended the command. The message says what is left, and how to go on."""

    @property
    def exit_code(self) -> int:
        """As a shell says it: 130 after Ctrl-C."""
        return 128 + (_received[0] if _received else signal.SIGINT)


def was_interrupted(error: BaseException | None = None) -> bool:
    """Whether the command was told to end, or whether that is what this error means."""
    return bool(_received) or isinstance(error, KeyboardInterrupt)


def interrupted_by(error: BaseException, left: Callable[[], str]) -> Interrupted | None:
    """What a command says that has ended with this error because it was told to end; None if it was not."""
    if isinstance(error, Interrupted) and error.args:
        return error
    return Interrupted(f"interrupted. {left()}.") if was_interrupted(error) else None


@contextmanager
def heeding_signals() -> Iterator[None]:
    """Have a signal raise in the block, which is a whole command line's: in a process of somebody else's, that one decides.

    Signals that are ignored, as SIGHUP is under nohup, stay ignored. Told again while it cleans up, a command leaves the rest.
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
    """End the block, if it was interrupted, with a line on stderr, a document with `as_json`, and the signal's exit code."""
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
    """Say it on stderr, once nothing else can be said any more."""
    _heed_no_more()
    if _received and (session := sys.modules.get("fencepost.spark.session")):
        session.await_end_of_jvm()
    with suppress(OSError):  # the terminal is gone
        err.print(str(interrupted), markup=False, soft_wrap=True)


def leave_if_interrupted(ended: SystemExit | KeyboardInterrupt) -> None:
    """End the process here after a signal: threads that still wait for an answer of Kafka's would hold it."""
    done = isinstance(ended, SystemExit) and not ended.code
    code = 0 if done else 128 + (_received[0] if _received else signal.SIGINT)  # Typer's own code of a signal is 1
    if _received or isinstance(ended, KeyboardInterrupt):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _heed_no_more() -> None:
    """Let further signals do nothing, once one has come. Not SIG_IGN, which a process started meanwhile would inherit."""
    if _received:
        for number in SIGNALS:
            if signal.getsignal(number) is _end:
                signal.signal(number, lambda number, frame: None)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _received.append(number)
    if session := sys.modules.get("fencepost.spark.session"):  # imported, Spark may run
        session.tell_jvm_to_end()
    raise Interrupted
