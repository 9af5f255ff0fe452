"""The pipelines that read what the connectors tell: how they declare the columns, and where they publish."""

from __future__ import annotations

from typing import Any

from fencepost_stack.schema_registry import SchemaRegistry

from .database import FULL, KEYED
from .every_type import COLUMNS
from .scene import AVRO, PLAIN, SCHEMAS, Scene

TELLERS = ((SCHEMAS, FULL), (PLAIN, KEYED), (AVRO, FULL), (AVRO, KEYED))

DATES = {"type": "date", "from": "epoch_days"}
LOCAL_MILLIS, LOCAL_MICROS = ({"type": "timestamp_ntz", "from": f"epoch_{unit}"} for unit in ("millis", "micros"))
STRUCT = "struct<x: double, y: double>"
# How each column is declared where the format takes a schema; `string` if it is not here.
DECLARED: dict[str, Any] = {
    "id": "bigint not null",
    "small": "smallint",
    "whole": "int",
    "big": "bigint",
    "cents": {"type": "decimal(12,2)", "from": "base64"},
    "exact": {"type": "decimal(38,10)", "from": "base64"},
    "loose": {"type": "decimal(38,10)", "from": "base64"},
    "tiny": "float",
    "wide": "double",
    "yes": "boolean",
    "raw": "binary",
    "day": DATES,
    "clock": "bigint",
    "second": LOCAL_MILLIS,
    "milli": LOCAL_MILLIS,
    "micro": LOCAL_MICROS,
    "instant": "timestamp",
    "span": "bigint",
    "price": {"type": "decimal(19,2)", "from": "base64"},
    "flag": "boolean",
    "mask": "binary",
    "any_bits": "binary",
    "names": "array<string>",
    "counts": "array<int>",
    "ids": "array<string>",
    "spot": STRUCT,
    "big_raw": "binary",
    "big_names": "array<string>",
    "big_counts": "array<int>",
    "big_ids": "array<string>",
    "must_count": "int not null",
    "must_cents": {"type": "decimal(12,2) not null", "from": "base64"},
    "must_words": "string not null",
    "must_raw": "binary not null",
    "must_instant": "timestamp not null",
    "must_ident": "string not null",
    "must_names": "array<string> not null",
}
KEYS = {"id": "bigint"}
INFINITE = ("tiny", "wide", "day", "second", "milli", "micro", "instant")
FLOATS = ("tiny", "wide")
NO_INFINITY = "CASE WHEN isnan({0}) OR abs({0}) = double('Infinity') THEN NULL ELSE {0} END AS {0}"
TRANSFORM = """
def transform(frame):
    record = [name for name in frame.columns if name == "_record"]  # it is there for a suite that sets rows aside
    told = ["_op AS op", "_op = 'delete' AS gone", "_source.lsn AS lsn", "_offset AS place"]
    return frame.selectExpr({columns}, *told, *record)
"""
EXPECTATIONS = """
expectations:
  - {type: expect_column_values_to_not_be_null, kwargs: {column: id}}
"""
# About half of the rows go to quarantine.
SETS_ASIDE = (
    EXPECTATIONS
    + "  - {type: expect_column_values_to_be_between, kwargs: {column: must_count, min_value: 0}, severity: quarantine}\n"
)


def nulls_of(kind: str, table: str) -> tuple[str, ...]:
    """The columns whose infinities, and NaN, are published as null: in Avro floats have them, and the transform does that."""
    told = () if table == KEYED else INFINITE
    return (*told, *FLOATS) if kind == AVRO else told


def declared(kind: str, table: str) -> dict[str, Any]:
    """The columns' declarations: all of them, or what the registry's schema does not say."""
    nulls = {} if table == KEYED else {name: {"infinity": None} for name in INFINITE}
    if kind == AVRO:
        return {"loose": "decimal(38,10)"} | {name: extra for name, extra in nulls.items() if name not in FLOATS}
    names = ["id", *(column.name for column in COLUMNS)]
    found = {name: DECLARED.get(name, "string") for name in names}
    for name, extra in nulls.items():
        found[name] = (found[name] if isinstance(found[name], dict) else {"type": found[name]}) | extra
    return found


def settings_of(kind: str, table: str, scene: Scene, registry: SchemaRegistry) -> dict[str, Any]:
    """A pipeline's settings: of PLAIN, whose topic has both tables, one table is taken. FULL has a current table.

    The log has a row's old values there, so each of its changes can be read, but for values that nothing can hold.
    """
    names = ["id", *(column.name for column in COLUMNS)]
    columns = [NO_INFINITY.format(name) if kind == AVRO and name in FLOATS else name for name in names]
    source: dict[str, Any] = {
        "topic": scene.topic(kind, table),
        "format": "avro" if kind == AVRO else "json",
        "envelope": "debezium",
        "schema": declared(kind, table),
        "key_format": "avro" if kind == AVRO else "json",
        "key": KEYS,
        "on_malformed": "quarantine",
    }
    if kind == PLAIN:
        source["table"] = f"public.{table}"
    published = f"published_{kind}_{table}"
    output: dict[str, Any] = {"kind": "postgres", "table": published, "partitions": 2}
    if table == FULL:
        order = ["fencepost_interval", "place"]
        output["current"] = {"table": f"current_{kind}", "key": ["id"], "order_by": order, "deleted": "gone"}
    return {
        "name": published,
        "transform": TRANSFORM.format(columns=", ".join(f'"{name}"' for name in columns)),
        "expectations": EXPECTATIONS,
        "source": source,
        "output": output,
        "postgres": scene.database.owner,
        "quality": {"quarantine_limit": "none", "open_transaction_wait_seconds": 60},
        **({"schema_registry": {"url": registry.url}} if kind == AVRO else {}),
    }
