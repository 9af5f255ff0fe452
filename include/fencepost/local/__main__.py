"""`python -m fencepost.local up|down|services|jars`: the local stack without the rest of the command line."""

import typer

from fencepost.local.commands import register

app = typer.Typer(add_completion=False, no_args_is_help=True)
register(app)
app()
