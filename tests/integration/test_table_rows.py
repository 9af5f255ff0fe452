"""What `read_validated` gives of a table, on a real Spark and a real PostgreSQL, whatever the columns are called and hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pyspark.sql import types as t

from conftest import day
from fencepost.config.reader import Reader
from fencepost.outputs.postgres.reader import read_rows
from fencepost.outputs.rows_request import RowsRequest
from fencepost.protocol.announcement import Announcement
from fencepost.reading.validated import columns_of
from makers import an_announcement
from rigs.postgres_server import PostgresServer
from tables import Database

WIDE = t.DecimalType(38, 10)


def announced(schema: t.StructType, rows: int) -> Announcement:
    """The event of a batch with these columns in table `orders`."""
    columns = [{"name": f["name"], "type": f["type"], "nullable": True} for f in schema.jsonValue()["fields"]]
    return an_announcement(
        kind="postgres",
        output="public.orders",
        topic_id=None,
        ranges={},
        header=None,
        format=None,
        columns=columns,
        rows=rows,
    )


def test_columns_of_any_name_and_scale_are_read_as_they_were_published(spark: Any, postgres: PostgresServer) -> None:
    database = Database(postgres)
    names = ["two words", "user-id", "a:b", "a,b", "back`tick", "größe", "where"]
    nested = t.StructType([t.StructField(name, t.DecimalType(9, 2)) for name in names])
    schema = t.StructType(
        [
            t.StructField("amount", t.DecimalType(9, 2)),
            t.StructField("total", WIDE),
            t.StructField("whole number", t.DecimalType(5, 0)),
            t.StructField("back`tick", t.IntegerType()),
            t.StructField("nested in it", nested),
            t.StructField("list", t.ArrayType(nested)),
            t.StructField("pairs", t.MapType(t.StringType(), nested)),
        ]
    )
    database.run(
        'create table orders (amount numeric(12, 5), total numeric, "whole number" numeric(9, 3), "back`tick" integer, '
        '"nested in it" jsonb, list jsonb, pairs jsonb, fencepost_interval timestamptz, fencepost_revision integer)'
    )
    one = '{"two words": 1.50, "user-id": 2, "a:b": 3, "a,b": 4, "back`tick": 5, "größe": 6, "where": 7}'
    start = day(1).start.isoformat()
    values = f"'{one}', '[{one}]', '{{\"k\": {one}}}', '{start}', 1"
    database.run(
        f"insert into orders values (12.30, 12345678901234567890.0123456789, 100, 7, {values}), "  # noqa: S608
        f"(null, null, null, null, null, null, null, '{start}', 1), (-0.01, 1e20, 0, -1, {values})"
    )
    reader = Reader.of("p", {"bootstrap.servers": "unused:1"}, None, database.settings)
    event = announced(schema, 3)
    cluster: Any = None  # Kafka is not asked for a table's rows
    rows = (
        read_rows(RowsRequest(spark, reader, cluster, event, columns_of(event), lambda: None))
        .orderBy("amount")
        .collect()
    )
    read = t.Row(*names)(*map(Decimal, ["1.50", "2.00", "3.00", "4.00", "5.00", "6.00", "7.00"]))
    assert rows[0][:] == (None,) * 7
    assert rows[1][:4] == (Decimal("-0.01"), Decimal(10**20), Decimal(0), -1)
    assert rows[2][:4] == (Decimal("12.30"), Decimal("12345678901234567890.0123456789"), Decimal(100), 7)
    assert (rows[2][4], rows[2][5], rows[2][6]) == (read, [read], {"k": read})
    assert rows[2].__fields__ == schema.names
