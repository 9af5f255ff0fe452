"""What is known of a transform's result before Spark runs it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructType

from fencepost.errors import NeedsOperator
from fencepost.rows.path import RowPath
from fencepost.rows.transform import value_schema
from fencepost.testing.trial import _values

PIPELINE: Any = SimpleNamespace(
    transform_file=Path("transform.py"), output=SimpleNamespace(records=SimpleNamespace(format="json"))
)
KEY_ALONE: Any = SimpleNamespace(schema=StructType().add("_key", BinaryType()), columns=["_key"])


def test_a_result_without_a_column_for_the_value_is_refused_and_by_the_pytest_fixture_too() -> None:
    why = "transform.py: its result has no column for the output's value. Select a column whose name does not begin with _"
    with pytest.raises(NeedsOperator, match=why):
        value_schema(PIPELINE, KEY_ALONE)
    with pytest.raises(NeedsOperator, match=why):
        _values(RowPath(PIPELINE), KEY_ALONE)
