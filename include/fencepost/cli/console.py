"""Consoles of the commands: answers go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
