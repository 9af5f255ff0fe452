"""Result rows of one key keep the source's order in a replay, so a compacted topic ends with the newest."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import types as T

from fencepost.model import NO_SCHEMAS
from fencepost.rows.decode import CONNECTOR
from fencepost.rows.flag import NO_RULES
from fencepost.rows.placing import place_by_key
from fencepost.rows.quarantined import parsed_again, result_rows, set_apart, to_routed_again, with_reason
from unit.test_source_settings import BOTH, load

VALUE = T.StructType([T.StructField("n", T.IntegerType())])


def test_the_records_of_a_key_are_written_in_the_sources_order(spark: Any, tmp_path: Path) -> None:
    """Rows 0 to 3 come from offsets 9 to 6. No single record gave row 7. The last record cannot be replayed."""
    fields = [field for field in CONNECTOR.fields if field.name != "timestampType"]
    schema = T.StructType([*fields, T.StructField("result", T.BooleanType()), T.StructField("reason", T.StringType())])
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(b"k", b'{"n": %d}' % n, "orders", 0, 9 - n, at, None, True, "failed") for n in range(4)]
    rows += [
        (b"k", b'{"n": 7}', None, None, None, at, None, True, "failed"),
        (b"k", b"bad", "orders", 0, 50, at, None, False, "no JSON"),
    ]
    pipeline = load(tmp_path, sources=BOTH, output={"topic": "out", "layout": "output"})
    kept = with_reason(set_apart(spark.createDataFrame(rows, schema)))
    judged = result_rows(parsed_again(kept, pipeline, VALUE, NO_SCHEMAS), VALUE, NO_RULES)
    placed = place_by_key(to_routed_again(judged, pipeline), 2, "key", "value")
    first, second = placed.select("value", "quarantined").rdd.glom().collect()
    found = [(bytes(row.value), row.quarantined is not None) for row in first or second]
    assert not (first and second), "one key has one place"
    assert found == [*((b'{"n": %d}' % n, False) for n in (7, 3, 2, 1, 0)), (b"bad", True)]
