"""Adds what other installed packages have for the command line. By entry point they have commands, and settings for
commands about a pipeline.

An entry point of the group `fencepost.commands` is a function that is mounted under its name. An entry point of the
group `fencepost.environment` is called before a command works on a pipeline. Such an entry point may set environment
variables that are not set yet.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import typer


def mount_commands(app: typer.Typer) -> None:
    """Adds the commands of other packages."""
    for found in entry_points(group="fencepost.commands"):
        app.command(found.name)(found.load())


def use_environment() -> None:
    """Lets other packages set environment variables that they know, such as the address of the Kafka on this machine."""
    for found in entry_points(group="fencepost.environment"):
        found.load()()
