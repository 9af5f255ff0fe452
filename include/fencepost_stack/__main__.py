"""`python -m fencepost_stack up|down|services`: the local stack without the rest of the command line."""

import typer

from fencepost_stack.commands import down, services, up

app = typer.Typer(add_completion=False, no_args_is_help=True)
for command in (up, down, services):
    app.command()(command)
app()
