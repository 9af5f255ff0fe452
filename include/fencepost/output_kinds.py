"""The kinds of output, by the name in `output.kind`. Each kind is a package with everything that only this kind needs.

A new kind is a package and a line in `OUTPUT_KINDS`. The package has these modules:

    settings.py   `SETTINGS`, the section `output` of pipeline.yaml: an `OutputSettings` (`config/output_settings.py`)
    values.py     `PLANNED` and `PUBLICATION`, what the ledger keeps: a `PlannedOutput` and a `Publication` (`model.py`)
    output.py     `OUTPUT`, which publishes batches: an `Output` (`outputs/output.py`)
    reader.py     `read_rows`, the rows of a batch for `read_validated`
    doctor.py     `CHECKS`, the doctor's checks of its own; without the module it has none

This module has the packages' names, and a module is imported when it is needed first. So rooms below `outputs/` can
read settings and values of every kind. Airflow's DAG processor reads settings without importing Spark.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

OUTPUT_KINDS = {
    "topic": "fencepost.outputs.topic",
    "postgres": "fencepost.outputs.postgres",
    "iceberg": "fencepost.outputs.iceberg",
}
DEFAULT_KIND = next(iter(OUTPUT_KINDS))  # of an output that names no kind


def known_kind(value: object) -> str | None:
    """Returns the value if it is the name of a kind, otherwise None. The value may be of any type."""
    return value if isinstance(value, str) and value in OUTPUT_KINDS else None


def part_of(kind: str, module: str, name: str) -> Any:
    """Returns the object of that name in a kind's module.

    Raises:
        KeyError: there is no such kind.
    """
    return getattr(import_module(f"{OUTPUT_KINDS[kind]}.{module}"), name)


def has_part(kind: str, module: str) -> bool:
    """Returns whether a kind's package has that module."""
    return find_spec(f"{OUTPUT_KINDS[kind]}.{module}") is not None
