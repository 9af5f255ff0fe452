"""A JSON record is exactly what it says, or malformed: the decoder against a parser of its own, on generated records."""

from __future__ import annotations

import json
import math
import re
import struct
import tracemalloc
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from random import Random
from time import process_time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fencepost.formats import json_decoder
from fencepost.formats.declared import FieldOf
from fencepost.formats.json_columns import needs_digits
from fencepost.formats.json_decoder import DEEPEST, DIGITS, JsonDecoder, _with_sources
from fencepost.formats.rows import BYTES_AT_ONCE, decode_first
from oracle.json_reader import NotSo, read_record
from oracle.json_writer import ANYTHING, LEAVES, SCHEMA, generate

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def comparable(kind: pa.DataType, value: Any) -> Any:
    """As the oracle says it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: comparable(f.type, value[f.name]) for f in kind}
    if pa.types.is_map(kind):
        return [(name, comparable(kind.item_type, item)) for name, item in value]
    if pa.types.is_list(kind):
        return [comparable(kind.value_type, item) for item in value]
    if pa.types.is_floating(kind):
        return value, math.copysign(1, value) < 0
    if pa.types.is_decimal(kind):
        return Fraction(value)
    if pa.types.is_date(kind):
        return value.timetuple()[:3]
    if pa.types.is_timestamp(kind):
        return (value.replace(tzinfo=value.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)
    return value


def said(schema: pa.Schema, value: bytes) -> list[Any] | None:
    try:
        return read_record(schema, [], value)
    except NotSo:
        return None


def decoded(schema: pa.Schema, values: list[bytes]) -> list[list[Any] | None]:
    """All of a batch, through Arrow's columns; None where it is malformed."""
    columns, why = JsonDecoder(schema).decode_values(values)
    many, why_many = JsonDecoder(schema).decode_array(pa.array(values, pa.binary()))
    assert why_many == why
    assert repr([c.to_pylist() for c in many]) == repr([c.to_pylist() for c in columns])
    rows = zip(*(c.to_pylist() for c in columns), strict=True)
    kinds = [f.type for f in schema]
    return [
        None if reason else [comparable(kind, v) for kind, v in zip(kinds, row, strict=True)]
        for row, reason in zip(rows, why, strict=True)
    ]


def disagreements(schema: pa.Schema, values: list[bytes]) -> list[Any]:
    compared = zip(values, decoded(schema, values), (said(schema, value) for value in values), strict=True)
    return [(value, ours, theirs) for value, ours, theirs in compared if ours != theirs]


def test_generated_records_say_what_an_independent_parser_reads_or_are_malformed_to_both() -> None:
    random = Random(20260101)
    values = [generate(random) for _ in range(4000)]
    assert disagreements(SCHEMA, values) == []
    fit = Counter(row is not None for row in decoded(SCHEMA, values))
    assert min(fit.values()) > 1000  # the generator is not one-sided


def test_generated_records_are_exact_where_numbers_come_as_doubles() -> None:
    """A few at a time, since one that has to be read again ends it."""
    schema = pa.schema([f for f in SCHEMA if not needs_digits(f.type)])
    assert {"f64", "s", "list_i32"} <= set(schema.names)
    assert not {"f32", "dec"} & set(schema.names)
    random = Random(20260103)
    values = [generate(random, schema) for _ in range(4000)]
    assert [d for n in range(0, len(values), 5) for d in disagreements(schema, values[n : n + 5])] == []


def test_a_text_keeps_a_numbers_digits_from_the_first_record_on() -> None:
    schema = pa.schema([("x", pa.float64()), ("s", pa.string()), ("st", pa.struct([("s", pa.string())]))])
    decoder = JsonDecoder(schema)
    number = "0.10000000000000000001e0"
    values = [b'{"x":1.5}', b'{"x":0.0,"s":%b,"st":{"s":%b}}' % (number.encode(), number.encode())]
    for _ in range(2):
        columns, why = decoder.decode_values(values)
        assert [column.to_pylist() for column in columns] == [[1.5, 0.0], [None, number], [None, {"s": number}]]
        assert why == [None, None]


@pytest.mark.parametrize("name", LEAVES)
def test_anything_in_a_field_of_any_type_and_nesting_is_exact_or_malformed(name: str) -> None:
    kind = LEAVES[name]
    schema = pa.schema(
        [
            ("x", kind),
            ("list", pa.list_(kind)),
            ("map", pa.map_(pa.string(), kind)),
            ("st", pa.struct([("x", kind)])),
            ("deep", pa.list_(pa.map_(pa.string(), pa.struct([("x", kind)])))),
        ]
    )
    shapes = ['{"x":%s}', '{"list":[%s]}', '{"map":{"k":%s}}', '{"st":{"x":%s}}', '{"deep":[{"k":{"x":%s}}]}']
    values = [(shape % text).encode() for shape in shapes for text in ANYTHING]
    assert disagreements(schema, values) == []


@pytest.mark.parametrize("name", [*LEAVES, "wide decimal", "fraction"])
def test_what_a_record_says_depends_on_no_other_record(name: str) -> None:
    """Alone, beside one that fits, and beside one that does not; read by itself, and with others at once."""
    kinds = {"wide decimal": pa.decimal128(38, 0), "fraction": pa.decimal128(38, 38)}
    schema = pa.schema([("x", kinds.get(name) or LEAVES[name])])
    for value in (b'{"x":%s}' % text.encode() for text in ANYTHING):
        wanted = said(schema, value)
        found = [decoded(schema, [value]), decoded(schema, [b"{}", value])[1:], decoded(schema, [value, b"{"])[:1]]
        assert found == [[wanted]] * 3, value


EDGES = {
    "decimal128(5, 2)": {"1e-41": None, "1e-50000000": None, "1e50000000": None, "-0E99999999999999999999": "0.00"},
    "decimal128(38, 10)": {"1" + "0" * 29: None, "9" * 28: "9" * 28 + ".0000000000", "1" + "0" * 50 + "e-49": "10.0000000000"},
    "decimal128(38, 38)": {f"0.{'0' * 37}1": f"0.{'0' * 37}1", f"0.{'0' * 38}1": None, "1": None},
    "float": {
        str(2**128 - 2**103 - 1): "3.4028234663852886e+38",
        str(2**128 - 2**103): None,
        "-3.40282356779733e38": "-3.4028234663852886e+38",
    },
    "double": {
        f"{2**1024 - 2**970 - 1}.5": "1.7976931348623157e+308",
        str(2**1024 - 2**970): None,
        "0e99999999999999999999": "0.0",
    },
    "date32[day]": {'"0001-01-01"': "0001-01-01", '"0000-12-31"': None, '"1900-02-29"': None, '"2000-02-29"': "2000-02-29"},
    "timestamp[us, tz=UTC]": {
        '"0000-12-31T23:30:00-01:00"': None,
        '"9999-12-31T23:59:59-01:00"': None,
        '"0001-01-01T18:59+18:59"': "0001-01-01 00:00:00+00:00",
        '"9999-12-31T05:00:59.999999-18:59"': "9999-12-31 23:59:59.999999+00:00",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", EDGES)
def test_the_last_values_of_a_type_are_exact_and_those_beyond_are_malformed(kind: str) -> None:
    """Alone, so that nothing beside it keeps it from Arrow; and in an array."""
    (of,) = {k for k in [*LEAVES.values(), pa.decimal128(38, 38)] if str(k) == kind}
    schema = pa.schema([("x", of), ("list", pa.list_(of))])
    for text, wanted in EDGES[kind].items():
        for value in (f'{{"x":{text}}}', f'{{"list":[{text}]}}'):
            columns, (why,) = JsonDecoder(schema).decode_values([value.encode()])
            found = columns[0][0].as_py() if why or "list" not in value else columns[1][0].as_py()[0]
            shown = format(found, "f") if isinstance(found, Decimal) else str(found)
            assert shown == str(wanted), value
            assert (why is None) == (wanted is not None), value


def test_each_declared_type_takes_the_usual_texts() -> None:
    """Not only agreement with an oracle that may be too strict: these pass."""
    usual = {
        "i8": ["5", "-128", "null"],
        "i64": ["9223372036854775807"],
        "f32": ["1", "1.5", "1e3"],
        "f64": ["5", "1e3", "1.10", "-0.0", "1E-7", "12345678901234567890"],
        "dec": ["1.10", "5", "1e2", "999.99", "1.500"],
        "s": ['"x"', '"\\u00e9\\n"', "5", "1.10", "12345678901234567890123456", "true", '{"a" : [1.10]}', "[]"],
        "b": ['"AP8="', '""'],
        "ok": ["true", "false"],
        "day": ['"2024-02-29"'],
        "t": ['"2026-01-01T01:02:03.123456+01:00"', '"2026-01-01T01:02:03Z"', '"2026-01-01"', '"2026-01-01 01:02"'],
        "ntz": ['"2026-01-01T01:02:03.5"', '"2026-01-01"'],
        "list_i32": ["[]", "[1, null]"],
        "map_i32": ["{}", '{"": 1, "a": null}'],
        "st": ["{}", '{"i8": null, "unknown": [1]}'],
        "unknown": ["[[]]", '{"a": {"b": 1.10}}', "1e999", "9" * 5000],
    }
    values = [f' {{"{name}" : {text}}}\n'.encode() for name, texts in usual.items() for text in texts]
    assert [v for v, row in zip(values, decoded(SCHEMA, values), strict=True) if row is None] == []


@pytest.mark.parametrize("letter", ["k", "\u00e9", "\u20ac", "\U0001f600"])
def test_a_maps_key_is_as_long_as_the_gate_can_read_it(letter: str) -> None:
    """In any other object a name may be longer: it is not written again."""
    longest = letter * (50_000 // len(letter.encode()))

    def record(name: str, field: str) -> bytes:
        return f'{{"{field}":{{"{name}":1}}}}'.encode()

    names = [longest, longest + letter]
    for field, fits in (("map_i32", [True, False]), ("s", [True, True]), ("st", [True, True])):
        values = [record(name, field) for name in names]
        assert [row is not None for row in decoded(SCHEMA, values)] == fits
        assert disagreements(SCHEMA, values) == []


@pytest.mark.parametrize("deep", ["[", '{"a":'])
def test_nesting_has_one_limit_wherever_the_decoder_is_called_from(deep: str) -> None:
    close, inner = {"[": ("]", ""), '{"a":': ("}", "1")}[deep]

    def record(levels: int) -> bytes:
        return f'{{"unknown":{deep * (levels - 1)}{inner}{close * (levels - 1)}}}'.encode()

    def from_within(frames: int) -> list[bool]:
        if frames:
            return from_within(frames - 1)
        return [row is not None for row in decoded(SCHEMA, [record(DEEPEST), record(DEEPEST + 1), record(100_000)])]

    assert from_within(0) == from_within(500) == [True, False, False]


class Counted:
    """A pattern that counts how many bytes it is asked to look through."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self.pattern, self.bytes = pattern, 0

    def search(self, text: bytes) -> re.Match[bytes] | None:
        self.bytes += len(text)
        return self.pattern.search(text)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.string()])
@pytest.mark.parametrize("zero", ["0", "-0"])
def test_a_record_is_looked_through_once_for_a_minus_however_many_zeros_it_has(
    kind: pa.DataType, zero: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(json_decoder.MINUS_ZERO)
    monkeypatch.setattr(json_decoder, "MINUS_ZERO", counted)
    schema = pa.schema([("x", pa.list_(kind)), ("st", pa.struct([("a", pa.map_(pa.string(), kind))]))])
    value = f'{{"x":[{",".join(["0"] * 500)}],"st":{{"a":{{"k":{zero}}}}}}}'.encode()
    columns, why = JsonDecoder(schema).decode_values([value] * 3)
    assert why == [None] * 3
    (last,) = {repr(st["a"][0][1]) for st in columns[1].to_pylist()}
    assert last == repr(zero if kind == pa.string() else float(zero))
    assert counted.bytes == 3 * len(value)


def test_objects_that_have_few_of_a_structs_fields_take_no_memory_for_the_others() -> None:
    """A dictionary with all of its 200 fields would take 9,000 bytes for each."""
    schema = pa.schema([("x", pa.list_(pa.struct([(f"f{n}", pa.int8()) for n in range(200)])))])
    values = [b'{"x":[%s]}' % b",".join([b'{"f7":1}'] * 10_000)]
    tracemalloc.start()
    try:
        columns, _ = JsonDecoder(schema).decode_values(values)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    items = columns[0].flatten()
    assert (items.field("f7").null_count, items.field("f8").null_count) == (0, 10_000)


def test_the_more_fields_an_arrays_items_have_the_fewer_bytes_are_decoded_at_once() -> None:
    """An item may be three bytes, and takes a place in each field's column: so many places at once are bounded."""
    flat = [(f"f{n}", pa.int64()) for n in range(400)]
    deep = pa.struct([("a", pa.struct(flat[:100])), *flat[100:]])
    for inner in (pa.list_(pa.struct(flat)), pa.map_(pa.string(), deep), pa.struct([("x", pa.list_(pa.list_(deep)))])):
        decode = decode_first(
            partial(JsonDecoder, pa.schema([("x", inner)])), ["x", "_tombstone", "_malformed", "_excluded"], keep=False
        )
        value = b'{"y":[%s]}' % b",".join([b"{}"] * 1000)
        found = [len(piece) for piece in decode([pa.RecordBatch.from_pydict({"value": pa.array([value] * 100)})])]
        assert sum(found) == 100
        assert max(found) * 1000 * 400 < 12_000_000
    usual = JsonDecoder(pa.schema([*flat, ("x", pa.list_(pa.struct(flat[:4])))]))
    assert usual.bytes_at_once == BYTES_AT_ONCE


def test_of_an_array_in_a_text_only_its_text_is_held() -> None:
    inner = "[" + ",".join(["[0]"] * 50_000) + "]"
    for text, levels in ((inner, 1), (f'{{"a":{inner}}}', 1), (f"[[{inner}]]", 3)):
        tracemalloc.start()
        try:
            again = _with_sources(f'{{"s":{text}}}', levels)
            assert again["s"].text == text
            assert tracemalloc.get_traced_memory()[1] < 1_000_000  # the arrays alone would take five times as much
        finally:
            tracemalloc.stop()


def test_a_long_number_is_looked_for_at_the_first_digit_alone() -> None:
    """At each of a thousand, a record of such numbers would take a second for each megabyte."""
    number = "9" * (2 * DIGITS)
    assert json_decoder.LARGE.search(number) is not None
    assert json_decoder.LARGE.search(number, 1) is None


def test_a_deep_text_that_does_not_end_is_refused_in_no_time() -> None:
    value = b'{"unknown":' + b"[" * 101 + b'"' + b'\\"' * 100_000
    before = process_time()
    assert decoded(SCHEMA, [value]) == [None]
    assert process_time() - before < 5  # minutes, where each quote is taken for a beginning


def test_a_deep_value_in_a_string_is_not_held_once_for_each_level() -> None:
    inner = "[" * 900 + '"' + "x" * 100_000 + '"' + "]" * 900
    tracemalloc.start()
    try:
        assert decoded(pa.schema([("s", pa.string())]), [f'{{"s":{inner}}}'.encode()]) == [[inner]]
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


DEEP = "[" * 250 + "%s" + "]" * 250


@pytest.mark.parametrize(
    "text",
    [
        DEEP % '{"a":1}',
        DEEP % '"]}\\"{["',
        f"[1,{DEEP % 1},{DEEP % 2}]",
        f'{{"a":{DEEP % ""}, "b" : {DEEP % "-0.5e-1"} }}',
        *("9" * 5000, "-" + "9" * 5000, f"[{'9' * 5000}.5]", f"1e{'0' * 5000}1", DEEP % ("9" * 5000)),
    ],
)
def test_what_is_too_much_for_the_parser_is_read_as_well(text: str) -> None:
    schema = pa.schema([("s", pa.string()), ("n", pa.int32())])
    values = [f'{{"n":{n},"s": {text} }}'.encode() for n in (1, -2)]
    assert decoded(schema, [b'{"n":0,"s":""}', *values]) == [["", 0], [text, 1], [text, -2]]


@pytest.mark.parametrize(
    "text",
    [
        *(
            DEEP % '{"a":1,"a":2}',
            DEEP % '"\\ud83d"',
            DEEP % "01",
            DEEP % "NaN",
            DEEP % "1,",
            DEEP % '"\n"',
            DEEP % "{1:2}",
        ),
        *(f"1{DEEP % 1}", f"{DEEP % 1}1", f"{{{DEEP % 1}:1}}", f"[{DEEP % 1}{DEEP % 1}]", f"{DEEP % 1} {{}}"),
        *(f"{'[' * n}1[{']' * (n + 1)}" for n in (97, 98, 99)),  # where parts meet
        *((DEEP % 1)[:-1], (DEEP % 1)[:-1] + "}", (DEEP % 1) + "]", "[" * 250, "]" * 250, "0" * 5000, "9" * 5000 + "."),
        *("9" * 5000 + "e", "--" + "9" * 5000, "9" * 5000 + "x", "9" * 5000 + " 9", f'{{"a":{"9" * 5000},"a":1}}'),
    ],
)
def test_what_is_too_much_for_the_parser_is_as_strict(text: str) -> None:
    values = [f'{{{before}"s":{text}}}'.encode() for before in ("", f'"before":{DEEP % 1},')]
    assert decoded(pa.schema([("s", pa.string())]), values) == [None, None]


def test_a_double_is_the_nearest_to_its_text() -> None:
    """Beside the oracle's few: bit patterns, written with as many digits as one likes, and the middles between neighbours."""
    random = Random(20260102)
    texts = ["0e99999999999999999999", "1e-99999999999999999999", "-0.0e5", "9007199254740993", "9" * 300]
    for _ in range(3000):
        number = struct.unpack("<d", random.randbytes(8))[0]
        if math.isfinite(number):
            texts += [repr(number), f"{number:.16e}", f"{number:.25e}"]
        middle = (Decimal(random.random()) + Decimal(math.nextafter(1, random.random()))) / 2
        texts += [str(middle), f"{middle}1", str(middle)[:-1]]
    columns, _ = JsonDecoder(pa.schema([("x", pa.float64())])).decode_values([b'{"x":%s}' % t.encode() for t in texts])
    assert [repr(x) for x in columns[0].to_pylist()] == [repr(float(text)) for text in texts]


def test_a_minus_before_0_is_read_where_it_matters_whatever_else_is_in_the_batch() -> None:
    schema = pa.schema([("x", pa.float64()), ("l", pa.list_(pa.float32())), ("s", pa.string()), ("i", pa.int8())])
    values = [
        b'{"x":0,"l":[0],"s":0,"i":-0,"day":"2026-01-01"}',
        b'{"x":-0,"l":[1,-0],"s":-0,"i":-0}',
        b'{"x":0,"l":[0,-0.0],"s":"-0","i":0}',
    ]
    assert disagreements(schema, [*values * 2, b"{", b'{"x":1}', *values]) == []


def test_a_reason_names_the_place_and_no_value() -> None:
    decoder = JsonDecoder(pa.schema([("id", pa.int32()), ("at", pa.list_(pa.struct([("x", pa.date32())])))]), ["id"])
    reasons = {
        b'{"id": 4711000000}': "id: not an integer of 32 bits",
        b'{"id": null}': "id: null or missing, and declared not null",
        b'{"id": 1, "at": [{"x": "secret"}]}': "at[*].x: not a day such as 2026-01-31",
        b'{"secret": 1, "secret": 1}': "a duplicate name in one object",
        b'{"id": 1, "secret': "not JSON: EOF while parsing a string at line 1 column 17",
        b'{"id": secret}': "not JSON: expected value at line 1 column 8",
        b'{"id": 1} {}': "not JSON: trailing characters at line 1 column 11",
        b"\xff": "not JSON: expected value at line 1 column 1",
        b'{"id": "\xff"}': "not JSON: invalid unicode code point at line 1 column 9",
        b"[1]": "not a JSON object",
        b"": "not JSON: EOF while parsing a value at line 1 column 0",
        b'{"id": %b}' % (b"[" * 1001): "more than 1000 nested arrays and objects",
        b'{"id": %b "secret" %b}' % (b"[" * 900, b"]" * 899): "not JSON: expected `,` or `]`",
        b'{"id": %b "\xff" %b}' % (b"[" * 900, b"]" * 900): "not UTF-8",
        b'[{"id": %b}]' % (b"9" * 5000): "not a JSON object",
    }
    columns, why = decoder.decode_values(list(reasons))
    assert why == list(reasons.values())
    assert [column.null_count for column in columns] == [len(reasons)] * 2


MARKS = {
    b"\xef\xbb\xbf": b'{"n": 1}',
    b"\xff\xfe": '{"n": 1}'.encode("utf-16-le"),
    b"\xfe\xff": '{"n": 1}'.encode("utf-16-be"),
}
NO_JSON = {
    **{mark + text: "begins with a byte order mark, which is not JSON" for mark, text in MARKS.items()},
    b'{"n": 5, "x": NaN}': "NaN is not JSON at line 1 column 15",
    '{"né": NaN}'.encode(): "NaN is not JSON at line 1 column 9",
    b'{"n": -NaN}': "NaN is not JSON at line 1 column 8",
    b'{"n": nan}': "NaN is not JSON at line 1 column 8",
    b'{"n": [1, NaN, 2]}': "NaN is not JSON at line 1 column 11",
    b'{"n": 1, "x":\r\n {"y": NaN}}': "NaN is not JSON at line 2 column 8",
    b'{"n": Infinity}': "Infinity is not JSON at line 1 column 7",
    b'{"n": -Infinity}': "Infinity is not JSON at line 1 column 8",
    b'{"n": +inf}': "Infinity is not JSON at line 1 column 7",
    b'{"n": -inf}': "Infinity is not JSON at line 1 column 8",
    b'{"n": %b1, NaN%b}' % (b"[" * 250, b"]" * 250): "NaN is not JSON",
    b'{"n": Nancy}': "not JSON: expected value at line 1 column 7",
    b'{"n": information}': "not JSON: expected value at line 1 column 7",
    b'{"n": 1.NaN}': "not JSON: invalid number at line 1 column 9",
    b'{"n": "x" NaN}': "not JSON: expected `,` or `}` at line 1 column 11",
    b'{NaN: 1}': "not JSON: key must be a string at line 1 column 2",
}  # fmt: skip


def test_what_many_libraries_write_and_json_does_not_have_is_named() -> None:
    """Alone, and among many records that are written alike."""
    for text, reason in NO_JSON.items():
        assert JsonDecoder(pa.schema([("n", pa.float64())])).decode_values([text])[1] == [reason], text
    values = [b'{"n": %d}' % n for n in range(1000)] + list(NO_JSON)
    _, why = JsonDecoder(pa.schema([("n", pa.float64())])).decode_array(pa.array(values, pa.binary()))
    assert why == [None] * 1000 + list(NO_JSON.values())


FINER = "digits below the microsecond, which no timestamp holds; "
WAYS_ON = {
    "x": "`digits: truncate` under source.schema cuts them off",
    "list[*]": "declare the field as string, and cut it in the transform",
}
ZONED_TIME = "not a time such as 2026-01-31T23:59:59.999999Z, within the years 1 to 9999 in UTC"
A_TIME = "not a time without a zone such as 2026-01-31T23:59:59.999999"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
# A text, and what it is with and without a zone: a value, or the reason.
TIMES: dict[str, tuple[datetime | str, datetime | str]] = {
    "2026-01-01t00:00:00z": (FIRST, A_TIME),
    "2026-01-01T00:00:00z": (FIRST, A_TIME),
    "2026-01-01 00:00z": (FIRST, A_TIME),
    "2026-01-01t00:00:00.000000000+00:00": (FIRST, A_TIME),
    "2026-01-01t00:00": (FIRST, FIRST.replace(tzinfo=None)),
    "2026-01-01T00:00:00.0000001Z": (FINER, A_TIME),
    "2026-01-01t00:00:00.123456789z": (FINER, A_TIME),
    "2026-01-01T00:00:00.123456789": (FINER, FINER),
    "2026-01-01T00:00:00.123456000Z": (FIRST.replace(microsecond=123456), A_TIME),
    "9999-12-31T23:59:59.9999999-01:00": (ZONED_TIME, A_TIME),
    "2026-01-01T00:00:00.1234567Z[UTC]": (ZONED_TIME, A_TIME),
    "2026-02-30T00:00:00.1234567Z": (ZONED_TIME, A_TIME),
    "2026-01-01x00:00:00Z": (ZONED_TIME, A_TIME),
    "20260101T000000Z": (ZONED_TIME, A_TIME),
}


def reason(at: str, why: str) -> str:
    return f"{at}: {why}{WAYS_ON[at] if why == FINER else ''}"


@pytest.mark.parametrize("place", [0, 1])
def test_a_time_may_have_small_letters_and_one_of_more_digits_says_so(place: int) -> None:
    """Alone, in an array, and among many that are usual."""
    kind, usual = [(pa.timestamp("us", tz="UTC"), "2026-01-01T00:00:00Z"), (pa.timestamp("us"), "2026-01-01T00:00:00")][
        place
    ]
    schema = pa.schema([("x", kind), ("list", pa.list_(kind))])
    texts, wanted = list(TIMES), [both[place] for both in TIMES.values()]
    for text, one in zip(texts, wanted, strict=True):
        for record in (f'{{"x":"{text}"}}', f'{{"list":["{text}"]}}'):
            columns, (why,) = JsonDecoder(schema).decode_values([record.encode()])
            at = "list[*]" if "list" in record else "x"
            found = columns[0][0].as_py() if at == "x" or why else columns[1][0].as_py()[0]
            assert (found, why) == ((None, reason(at, one)) if isinstance(one, str) else (one, None)), record
    values = [f'{{"x":"{text}"}}'.encode() for text in [*[usual] * 1000, *texts]]
    (column,), reasons = JsonDecoder(pa.schema([("x", kind)])).decode_array(pa.array(values, pa.binary()))
    assert column.to_pylist()[1000:] == [None if isinstance(one, str) else one for one in wanted]
    assert reasons[1000:] == [reason("x", one) if isinstance(one, str) else None for one in wanted]


ODD_NAMES = ["@timestamp", "_id", "a b", "a.b", "a`b", "", "\u00e9", "a\nb", 'a"b', "a\\b", "x" * 300]


def test_a_column_is_read_from_a_field_of_any_name_and_reasons_say_the_fields_own_name() -> None:
    """By itself and with others. The empty name is said as an empty text."""
    for name in ODD_NAMES:
        fields, schema = {"c": FieldOf(name), "n": FieldOf("N")}, pa.schema([("c", pa.int32()), ("n", pa.int64())])
        values = [json.dumps({name: given, "N": n}).encode() for n, given in enumerate([1, None, "x", 2] * 200)]
        values.append(b'{"c": 5, "n": 6, "N": 7}')
        (column, _), why = JsonDecoder(schema, ["c"], None, fields).decode_array(pa.array(values, pa.binary()))
        said = name or '""'
        null = f"{said}: null or missing, and declared not null"
        assert column.to_pylist() == [1, None, None, 2] * 200 + [None]
        assert why == [None, null, f"{said}: not an integer of 32 bits", None] * 200 + [null]


def test_two_columns_of_one_field_both_have_its_value() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string()), ("field", pa.int32())])
    fields = {"a": FieldOf("field"), "b": FieldOf("field")}
    values = [b'{"field": %d}' % n for n in range(1000)] + [b'{"field": "x"}']
    columns, why = JsonDecoder(schema, [], None, fields).decode_array(pa.array(values, pa.binary()))
    assert columns[0].to_pylist() == columns[2].to_pylist() == [*range(1000), None]
    assert columns[1].to_pylist() == [*map(str, range(1000)), None]
    assert why == [None] * 1000 + ["field: not an integer of 32 bits"]


def test_a_batch_keeps_its_other_columns_and_tells_tombstones_from_malformed_records() -> None:
    """2,500 rows, so that they come out in several pieces."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h", "value": None}], None, []] * 834, kind)
    values = [None if n % 5 == 0 else b"{" if n % 5 == 1 else b'{"n": %d}' % n for n in range(2500)]
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array(values, pa.binary()), "_offset": pa.array(range(2500)), "_headers": headers[:2500]}
    )
    make = partial(JsonDecoder, pa.schema([("n", pa.int32())]), ["n"])
    decode = decode_first(make, ["n", "_offset", "_headers", "_tombstone", "_malformed", "_excluded"], keep=False)
    found = pa.Table.from_batches(list(decode([batch])))
    assert found["n"].to_pylist() == [n if n % 5 > 1 else None for n in range(2500)]
    assert found["_offset"].to_pylist() == list(range(2500))
    assert found["_headers"].combine_chunks() == headers[:2500]
    assert found["_tombstone"].to_pylist() == [value is None for value in values]
    assert [why is not None for why in found["_malformed"].to_pylist()] == [value == b"{" for value in values]


def test_large_records_are_decoded_a_few_at_a_time() -> None:
    """Each piece is held as Python's objects, which take many times the bytes."""
    sizes = [1, 9_000_000, 1, 3_000_000, 3_000_000, 3_000_000, None, 1]
    values = [None if size is None else b'{"s":"%s"}' % (b"x" * size) for size in sizes]
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    make = partial(JsonDecoder, pa.schema([("s", pa.string())]))
    pieces = list(decode_first(make, ["s", "_tombstone", "_malformed", "_excluded"], keep=False)([batch]))
    assert [len(piece) for piece in pieces] == [1, 1, 3, 3]
    lengths = [length for piece in pieces for length in pc.binary_length(piece.column("s")).to_pylist()]
    assert lengths == sizes
