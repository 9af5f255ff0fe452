"""Debezium's envelopes as texts, and what a decoder makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from fencepost.formats.declared import Envelope, FieldOf
from fencepost.formats.framing import Framing
from fencepost.formats.json_envelope import JsonEnvelopeDecoder

SOURCE = pa.struct(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("lsn", pa.int64()),
        ("position", pa.string()),
        ("db", pa.string()),
        ("table", pa.string()),
        ("snapshot", pa.string()),
    ]
)
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
AT = datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
# As Debezium 3.3 writes them.
POSTGRES = (
    '{"version":"3.3.1.Final","connector":"postgresql","name":"s","ts_ms":1767225600123,"snapshot":"false","db":"shop",'
    '"sequence":"[\\"24023119\\",\\"24023128\\"]","ts_us":1767225600123456,"ts_ns":1767225600123456000,"schema":"public",'
    '"table":"orders","txId":555,"lsn":24023128,"xmin":null}'
)
MYSQL = (
    '{"version":"2.1.4.Final","connector":"mysql","name":"s","ts_ms":1767225600123,"snapshot":"last","db":"inventory",'
    '"sequence":null,"table":"customers","server_id":0,"gtid":null,"file":"mysql-bin.000003","pos":154,"row":0,'
    '"thread":7,"query":null}'
)
SQL_SERVER = (
    '{"version":"3.3.1.Final","connector":"sqlserver","name":"s","ts_ms":1767225600123,"snapshot":"false","db":"testDB",'
    '"sequence":null,"schema":"dbo","table":"customers","change_lsn":"00000027:00000758:0003",'
    '"commit_lsn":"00000027:00000758:0005","event_serial_no":"1"}'
)
ORACLE = (
    '{"version":"3.3.1.Final","connector":"oracle","name":"s","ts_ms":1767225600123,"snapshot":"false","db":"ORCLPDB1",'
    '"schema":"DEBEZIUM","table":"CUSTOMERS","txId":"6.28.807","scn":"2122185","commit_scn":"2122185","lcr_position":null}'
)
FROM_POSTGRES = {
    "ts": AT,
    "lsn": 24023128,
    "position": None,
    "db": "shop",
    "table": "public.orders",
    "snapshot": "false",
}
NO_OP = "no op: the value is not a Debezium envelope. A flattened topic (ExtractNewRecordState) is read without source.envelope"
PLACEHOLDER = "__debezium_unavailable_value"
TOAST = (
    "the connector's placeholder for a value that the database's log does not have (TOAST). Set REPLICA IDENTITY FULL for "
    "the table"
)


def change(op: Any, before: str = "null", after: str = "null", source: str = POSTGRES) -> str:
    return (
        f'{{"before":{before},"after":{after},"source":{source},"transaction":null,"op":{json.dumps(op)},'
        '"ts_ms":1767225600124,"ts_us":1767225600124001,"ts_ns":1767225600124001000}'
    )


def wrapped(payload: str, schema: str = '{"type":"struct","fields":[],"optional":false,"name":"s.Envelope"}') -> str:
    return f'{{"schema":{schema},"payload":{payload}}}'


def decoder_of(
    columns: pa.Schema = COLUMNS,
    required: Sequence[str] = (),
    framing: Framing | None = None,
    fields: Mapping[str, FieldOf] | None = None,
    **envelope: Any,
) -> JsonEnvelopeDecoder:
    whole = pa.schema([*columns, ("_op", pa.string()), ("_source", SOURCE)])
    return JsonEnvelopeDecoder(whole, required, framing, fields or {}, Envelope(**envelope))


def rows_of(decoder: JsonEnvelopeDecoder, values: Sequence[str | bytes | None]) -> list[Any]:
    """Of each record its columns, or the reason why it has none. All at once is the same as one by one."""
    given = [value.encode() if isinstance(value, str) else value for value in values]
    columns, why = decoder.decode_array(pa.array(given, pa.binary()))
    found = [reason or list(row) for reason, *row in zip(why, *(c.to_pylist() for c in columns), strict=True)]
    for value, one in zip(given, found, strict=True):
        (reason,), alone = (parts := decoder.decode_values([value]))[1], [c.to_pylist()[0] for c in parts[0]]
        assert (reason or alone) == one, value
    return found
