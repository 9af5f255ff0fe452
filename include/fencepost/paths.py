"""Where files lie: pipelines, reports, jars, and the folder in which a checkout keeps its state.

Who writes reports and who shows them both ask here, and neither needs the other. Imports nothing, so that set-up can use it.
"""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def state_folder() -> Path:
    """The folder in `FENCEPOST_STATE` when that is set, else `.fencepost` in the checkout; absolute."""
    return named_folder("FENCEPOST_STATE") or CHECKOUT / ".fencepost"


def jars_folder() -> Path:
    """`FENCEPOST_JARS`, or the folder for jars in the state folder."""
    return named_folder("FENCEPOST_JARS") or state_folder() / "jars"


def connector_folder() -> Path:
    """`FENCEPOST_SPARK_JARS`, or the folder that set-up puts the Kafka connector's jars in."""
    return named_folder("FENCEPOST_SPARK_JARS") or jars_folder() / "spark"


def reports_folder() -> Path:
    """`FENCEPOST_REPORTS`, or the folder for reports in the state folder."""
    return named_folder("FENCEPOST_REPORTS") or state_folder() / "reports"


def pipelines_folder() -> Path:
    """`FENCEPOST_PIPELINES`, or `include/pipelines` beside this package."""
    return named_folder("FENCEPOST_PIPELINES") or CHECKOUT / "include" / "pipelines"


def named_folder(variable: str) -> Path | None:
    """The folder that an environment variable names, absolute; None where it is not set."""
    value = os.environ.get(variable)
    return Path(value).expanduser().absolute() if value else None
