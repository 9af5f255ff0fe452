"""The consoles of the commands. Results go to standard output, and everything else to standard error."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape

CLOSED_PIPE = 141  # like a program that ends with SIGPIPE: 128 + 13


def end_quietly(*_: object) -> NoReturn:
    """Ends the command because its output has no reader any more, as in `fencepost status orders | head -1`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise Python complains at exit
    raise SystemExit(CLOSED_PIPE)


def is_read(descriptor: int) -> bool:
    """Returns whether a pipe still has a reader."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return not poll.poll(0)


setattr(Console, "on_broken_pipe", end_quietly)  # noqa: B010 - rich exits with 1, which is a rejected batch's

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)


@contextmanager
def working(doing: str, *, line: bool = True) -> Iterator[None]:
    """Says on stderr what takes a while. On a terminal the text disappears when the block ends. Elsewhere it is a line,
    unless `line` is false.
    """
    if err.is_terminal and not err.is_dumb_terminal:
        with err.status(escape(doing)):
            yield
        return
    if line:
        err.print(doing, markup=False, soft_wrap=True)
    yield


def print_json(value: Any) -> None:
    """Prints one JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
    sys.stdout.flush()


def plain_error(error: BaseException, exit_code: int) -> dict[str, Any]:
    """Returns a failure as JSON, for programs."""
    return {"error": {"type": type(error).__name__, "message": str(error)}, "exit_code": exit_code}
