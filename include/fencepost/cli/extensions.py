"""What other installed packages add to the command line, by entry point: commands, and settings for commands about a pipeline.

An entry point of the group `fencepost.commands` is a function, mounted under its name. One of the group `fencepost.environment`
is called before a command works on a pipeline. It may set environment variables that are not set yet.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import typer


def mount_commands(app: typer.Typer) -> None:
    """Adds the commands of other packages."""
    for found in entry_points(group="fencepost.commands"):
        app.command(found.name)(found.load())


def use_environment() -> None:
    """Lets other packages set environment variables that they know, such as the address of the Kafka that runs here."""
    for found in entry_points(group="fencepost.environment"):
        found.load()()
