"""Errors of the local stack. Each message names the cause and the next step."""

from fencepost.errors import FencepostError


class LocalStackError(FencepostError):
    """The root of the errors of the local stack. Nothing that was started still runs."""

    exit_code = 3


class PortTaken(LocalStackError):
    """Another process has a port that the user set explicitly."""


class ServiceFailed(LocalStackError):
    """A service ended, or did not become healthy in time. The message ends with its log's last lines."""
