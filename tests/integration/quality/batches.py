"""Small batches for the quality tests: every kind of column, with nulls, doubles, and values that trap an engine."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession

SCHEMA = """
    id int, half int, big bigint, bigger bigint, single float, ratio double, price decimal(10,2), wide decimal(30,5),
    flag boolean, maybe boolean, name string, code string, day date, moment timestamp, raw binary,
    tags array<string>, later timestamp, twin int, nothing string, no_number int,
    _topic string, _partition int, _offset bigint, _key binary
"""
ROWS = 60
NAMES = ["Ada", "Béla", "Çelik", "  ", "", "line\nbreak", "end\r", "٣", "naïve\u2028x", "O'Hare", None]
START = datetime(2013, 1, 1, 5, tzinfo=UTC)


def rows() -> list[tuple[Any, ...]]:
    """The same rows each time; every third or so is null in the columns that may be."""
    dice = random.Random(7)
    made: list[tuple[Any, ...]] = []
    for i in range(ROWS):

        def some(value: Any, share: float = 0.3) -> Any:
            return None if dice.random() < share else value

        moment = START + timedelta(minutes=37 * i, microseconds=i)
        made.append(
            (
                i,
                some(dice.randint(-5, 5)),
                2**53 + i,
                some(2**60 + dice.randint(0, 3)),
                some(dice.choice([0.1, 0.2, 2.5])),
                dice.choice([None, float("nan"), 0.1, -1.5, 1e10, -0.0, 0.0, 3.0]),
                some(Decimal(dice.randint(0, 500)) / 100),
                some(Decimal("12345678901234567890.12345") + dice.randint(0, 2)),
                dice.random() < 0.5,
                some(dice.random() < 0.5),
                dice.choice(NAMES),
                some(dice.choice(["AA", "UA", "aa", "ZZ9", '{"a": 1}', "2013-01-05"])),
                some((START + timedelta(days=i % 9)).date()),
                some(moment),
                some(dice.choice([b"ok", b"\xff\xfe", b"{}"])),
                some(["x", "y"][: i % 3]),
                some(moment + timedelta(minutes=dice.randint(-3, 9))),
                some(dice.randint(-5, 5)),
                None,
                None,
                "flight_delays",
                i % 3,
                1_000 + (ROWS - i) // 3,
                dice.choice([None, b"N123", b"\xff\x00"]),
            )
        )
    return made


def frame(spark: SparkSession) -> DataFrame:
    """The batch as Spark hands it over."""
    return spark.createDataFrame(rows(), SCHEMA)


def records() -> list[dict[str, Any]]:
    """The batch as plain Python holds what a check sees: NaN is missing, bytes and arrays are texts.

    Bytes that are no UTF-8 are Python's surrogates: they equal nothing that a suite can say."""
    names = [part.split()[0] for part in SCHEMA.replace("decimal(10,2)", "x").replace("decimal(30,5)", "x").split(",")]
    return [{name: _seen(name, value) for name, value in zip(names, row, strict=True)} for row in rows()]


def _seen(name: str, value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, bytes) and name != "_key":
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, list):
        return json.dumps(value, separators=(",", ":"))
    return str(value) if name == "wide" and value is not None else value
