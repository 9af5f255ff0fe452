"""A batch's frame and a suite in, an evaluation out. The engine is chosen by size; the verdict is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.quality.checks import Evaluation
from fencepost.quality.suite import Suite
from fencepost.settings import Quality

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def evaluate(frame: DataFrame, suite: Suite, quality: Quality, rows: int) -> Evaluation:
    """Evaluate `suite` on the batch's records and judge them.

    `frame` holds the output's value columns beside `_topic`, `_partition`, `_offset` and `_key` (binary), and
    only this batch's records; it is read once. `rows` is how many the receipts promise.
    """
    raise NotImplementedError
