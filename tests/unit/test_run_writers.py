"""A job's error is translated wherever Spark raises it, and a DataFrame with other partitions is no error of the job."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.errors import FencepostError, WriteFailed
from fencepost.model import OffsetRange
from fencepost.rows.row_by_row import RowsMoved
from fencepost.rows.run_writers import run_writers
from unit.test_writer import job


class Rows:
    """As much of a DataFrame as is looked at before its job. Spark broadcasts one side of a join at `toRdd`."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self._jdf = self

    def mapInArrow(self, *_: object) -> Rows:  # noqa: N802 - Spark's name
        return self

    def queryExecution(self) -> Rows:  # noqa: N802
        return self

    def toRdd(self) -> Rows:  # noqa: N802
        if self._error is not None:
            raise self._error
        return self

    def partitions(self) -> list[Any]:
        return []


def meant(error: Exception) -> FencepostError:
    return WriteFailed(f"meant: {error}")


RANGE = OffsetRange(topic="in", partition=0, start=0, end=1)


@pytest.mark.parametrize("tasks", [None, {RANGE: 0}])
def test_an_error_of_a_broadcast_before_the_job_is_translated(tasks: dict[OffsetRange, int] | None) -> None:
    rows: Any = Rows(RuntimeError("of a broadcast"))
    with pytest.raises(WriteFailed, match=r"^meant: of a broadcast$"):
        run_writers(rows, job(), tasks, meant)


def test_moved_rows_are_not_taken_for_an_error_of_the_job() -> None:
    rows: Any = Rows()
    with pytest.raises(RowsMoved):
        run_writers(rows, job(), {RANGE: 0}, meant)
