"""The ends of 64 bits are PostgreSQL's infinities as nanoseconds, though as numbers they lie in the years that a time has."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from fencepost.formats.declared import Encoding, FieldOf
from fencepost.formats.json_decoder import JsonDecoder

ENDS = [2**63 - 1, -(2**63)]
BEFORE = datetime(2262, 4, 11, 23, 47, 16, 854_775)  # noqa: DTZ001


@pytest.mark.parametrize("form", ['{{"at":{}}}', '{{"at": {}, "x": [1]}}', '{{"x":-0,"at":{}}}'])
@pytest.mark.parametrize("infinity_is_null", [False, True])
def test_an_infinity_in_nanoseconds_is_no_time_though_digits_are_cut(form: str, infinity_is_null: bool) -> None:
    """Of records that are written alike, that are read at once, and that are read one by one."""
    encoding = Encoding("epoch_nanos", truncates=True, infinity_is_null=infinity_is_null)
    schema = pa.schema([("at", pa.timestamp("us")), ("x", pa.string())])
    decoder = JsonDecoder(schema, fields={"at": FieldOf("at", encoding)})
    numbers = [2**63 - 2, *ENDS] * 20
    (found, _), why = decoder.decode_array(pa.array([form.format(number).encode() for number in numbers], pa.binary()))
    assert found.to_pylist() == [BEFORE, None, None] * 20
    endless = "at: an infinity; `infinity: null` under source.schema would read it as null"
    assert why == [None, *[None if infinity_is_null else endless] * 2] * 20
