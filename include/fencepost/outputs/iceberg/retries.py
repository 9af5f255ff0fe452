"""Turns: Iceberg has no lock, and an answer may be lost, so what is done to a table is tried in turns.

Each turn begins with the table as it is then. A catalog that does not answer that question costs a turn, as a commit does whose
outcome is unknown. What is certain ends the turns: a refused login, a missing right, a check of our own.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from pyiceberg.table import Table

from fencepost.errors import TableUnavailable
from fencepost.outputs.iceberg.catalog import translated
from fencepost.outputs.iceberg.lake_table import LakeTable

log = logging.getLogger("fencepost.outputs.iceberg")

TURNS = 20
LONGEST_WAIT = 5.0  # seconds between two turns

T = TypeVar("T")


def until_done(lake: LakeTable, what: str, turn: Callable[[Table | None], T | None]) -> T:
    """Runs turns until one returns a value. `turn` gets the table, or None if there is none. `what` begins the error.

    Raises:
        TableUnavailable: `TURNS` turns in a row returned nothing, or a turn could not read or write files.
        AccessDenied: the catalog or the warehouse refuses the login, or a right is missing.
    """
    last = ""
    for number in range(TURNS):
        if number:
            time.sleep(random.uniform(0, min(LONGEST_WAIT, 0.05 * 2**number)))  # noqa: S311
        try:
            table = lake.load()
        except TableUnavailable as error:
            last = f" The last time: {error}"
            log.warning("table %s could not be loaded: %s", lake.name, str(error))
            continue
        last = ""
        with translated(lake.pipeline):
            try:
                found = turn(table)
            except FileNotFoundError:  # a maintainer has expired the base, and its files are gone
                if number == TURNS - 1:
                    raise
                log.warning("table %s: files of its snapshot were deleted meanwhile", lake.name)
                continue
            if found is not None:
                return found
    raise TableUnavailable(
        f"{what}: {lake.where} has refused or not answered {TURNS} times in a row. If somebody maintains table {lake.name} all "
        f"the time, pause that; otherwise look at the catalog's log. Then run again.{last}"
    )


def loaded(lake: LakeTable) -> Table | None:
    """Returns the table as it is now, or None if there is none, for a publication: a catalog that does not answer is asked
    again. Raises as `until_done` does.
    """
    (table,) = until_done(lake, f"table {lake.name} could not be loaded", lambda table: (table,))
    return table
