"""Where reports lie: known to whoever writes them and to whoever shows them, neither of which needs the other."""

from __future__ import annotations

import os
from pathlib import Path

from fencepost.local.state import State


def reports_folder() -> Path:
    """`FENCEPOST_REPORTS`, or the folder for reports in the state folder."""
    named = os.environ.get("FENCEPOST_REPORTS")
    return Path(named) if named else State.default().reports
