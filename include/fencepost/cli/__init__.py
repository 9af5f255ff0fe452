"""The command line."""

from fencepost.cli.starting import end_quietly_until_a_command_runs

end_quietly_until_a_command_runs()
