"""Kafka Connect's types in Avro are read exactly, or the record is malformed by a reason of its own."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from avro_reading import BothWays, check_column, varint
from avro_schemas import written
from fencepost.formats import REGISTRY_FORMATS
from fencepost.formats.avro import to_spark
from fencepost.formats.avro_decoder import AvroReader
from fencepost.formats.avro_schema import AvroType, BadSchema, Incompatible, check_holdable, parse, render
from fencepost.formats.framing import Malformed

FORMAT = REGISTRY_FORMATS["avro"]
TIME, DATA = "io.debezium.time.", "org.apache.kafka.connect.data."
BEGIN = datetime(1970, 1, 1)  # noqa: DTZ001


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


DATE, MILLIS = connect("int", f"{TIME}Date"), connect("long", f"{TIME}Timestamp")
MICROS, NANOS = connect("long", f"{TIME}MicroTimestamp"), connect("long", f"{TIME}NanoTimestamp")
ZONED = connect("string", f"{TIME}ZonedTimestamp")
CONNECTS_DATE = connect("int", f"{DATA}Date", logicalType="date")
CONNECTS_MILLIS = connect("long", f"{DATA}Timestamp", logicalType="timestamp-millis")
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}


def record(*kinds: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)]}


def parsed(kind: Any) -> AvroType:
    """As a plan freezes it."""
    return parse(render(parse(json.dumps(kind))))


def wanted(kind: AvroType, **options: Any) -> AvroType:
    """The type with options wherever they may be."""
    return replace(
        kind,
        **options,
        fields=tuple(replace(one, type=wanted(one.type, **options)) for one in kind.fields),
        items=None if kind.items is None else wanted(kind.items, **options),
        branches=tuple(wanted(branch, **options) for branch in kind.branches),
    )


def found(kind: Any, data: bytes, **options: Any) -> Any:
    """The value of a field, as Spark has it, read by itself and in a column."""
    writer = parsed(record(kind))
    reader = wanted(writer, **options)
    both = BothWays(writer, reader)
    (row,) = pa.array([both.read(data)], to_arrow_type(to_spark(reader))).to_pylist()
    return row["f0"]


def text(value: str) -> bytes:
    return written("string", value)


FINE: dict[str, tuple[Any, bytes, Any]] = {
    "a date": (DATE, varint(20_454), date(2026, 1, 1)),
    "the first date": (DATE, varint(-719_162), date.min),
    "the last date": (DATE, varint(2_932_896), date.max),
    "Connect's date": (CONNECTS_DATE, varint(-1), date(1969, 12, 31)),
    "milliseconds": (MILLIS, varint(-1), datetime(1969, 12, 31, 23, 59, 59, 999_000)),  # noqa: DTZ001
    "the last millisecond": (MILLIS, varint(253_402_300_799_999), datetime(9999, 12, 31, 23, 59, 59, 999_000)),  # noqa: DTZ001
    "the first millisecond": (MILLIS, varint(-62_135_596_800_000), datetime.min),  # noqa: DTZ901
    "microseconds": (MICROS, varint(1_767_225_600_000_001), datetime(2026, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
    "the last microsecond": (MICROS, varint(253_402_300_799_999_999), datetime.max),  # noqa: DTZ901
    "the first microsecond": (MICROS, varint(-62_135_596_800_000_000), datetime.min),  # noqa: DTZ901
    "nanoseconds": (NANOS, varint(-1000), datetime(1969, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
    "what would be an infinity in microseconds": (
        NANOS,
        varint(9_223_372_036_825_200_000),
        datetime(2262, 4, 11, 23, 47, 16, 825_200),  # noqa: DTZ001
    ),
    "Connect's milliseconds": (CONNECTS_MILLIS, varint(1), datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
    "a zone": (ZONED, text("2026-01-01T01:00:00.5+01:00"), datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)),
    "Z": (ZONED, text("0001-01-01T00:00:00Z"), datetime(1, 1, 1, tzinfo=UTC)),
    "zeros behind": (ZONED, text("2026-01-01T00:00:00.123456000Z"), datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC)),
    "a time of day": (connect("int", f"{TIME}Time"), varint(-5), -5),
    "one beyond 24 hours": (connect("long", f"{TIME}MicroTime"), varint(10**12), 10**12),
    "of nanoseconds": (connect("long", f"{TIME}NanoTime"), varint(10**15), 10**15),
    "an ISO date, whose Z means nothing": (connect("string", f"{TIME}IsoDate"), text("2026-01-01Z"), "2026-01-01Z"),
    "JSON": (connect("string", "io.debezium.data.Json"), text("{}"), "{}"),
    "bits": (connect("bytes", "io.debezium.data.Bits"), b"\2\5", b"\5"),
    "in an array, or null": (
        {"type": "array", "items": ["null", MICROS]},
        b"\4\2" + varint(1) + b"\0\0",
        [datetime(1970, 1, 1, 0, 0, 0, 1), None],  # noqa: DTZ001
    ),
    "in a struct": (
        ["null", record(DATE, ZONED) | {"name": "I"}],
        b"\2\0" + text("1970-01-01T00:00:00Z"),
        {"f0": date(1970, 1, 1), "f1": datetime(1970, 1, 1, tzinfo=UTC)},
    ),
    "in a map": ({"type": "map", "values": DATE}, b"\2\2a\2\0", [("a", date(1970, 1, 2))]),
    "a decimal of few digits of 64": (
        {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2, "connect.name": f"{DATA}Decimal"},
        b"\4\4\xd2",
        Decimal("12.34"),
    ),
    "a decimal with its scale": (VARIABLE, b"\6\4\4\xd2", {"scale": 3, "value": b"\4\xd2"}),
    # Another name on another type says nothing.
    "microseconds in an int": (connect("int", f"{TIME}MicroTimestamp"), varint(7), 7),
    "a name that nobody knows": (connect("long", "acme.Epoch"), varint(7), 7),
    "an annotation of Avro goes first": (
        connect("long", f"{TIME}MicroTimestamp", logicalType="timestamp-micros"),
        varint(1),
        datetime(1970, 1, 1, 0, 0, 0, 1, UTC),
    ),
}


@pytest.mark.parametrize(("kind", "data", "value"), FINE.values(), ids=FINE)
def test_a_value_of_connects_type_is_what_the_database_has(kind: Any, data: bytes, value: Any) -> None:
    assert found(kind, data) == value
    # The options change nothing of it.
    assert found(kind, data, truncates=True, infinity_is_null=True) == value
    assert (
        found(["null", kind] if not isinstance(kind, list) else kind, b"\2" * (not isinstance(kind, list)) + data)
        == value
    )


YEARS, FINER = "f0: not within the years 1 to 9999", "f0: digits below the microsecond"
INFINITE = "f0: an infinity; `infinity: null` under source.schema would read it as null"
MALFORMED: dict[str, tuple[Any, bytes, str]] = {
    "the day before": (DATE, varint(-719_163), YEARS),
    "the day after": (DATE, varint(2_932_897), YEARS),
    "the last int but one": (DATE, varint(2**31 - 2), YEARS),
    "Connect's day after": (CONNECTS_DATE, varint(2_932_897), YEARS),
    "the millisecond after": (MILLIS, varint(253_402_300_800_000), YEARS),
    "the millisecond before": (MILLIS, varint(-62_135_596_800_001), YEARS),
    "Connect's millisecond after": (CONNECTS_MILLIS, varint(253_402_300_800_000), YEARS),
    "a number that would wrap": (MILLIS, varint(2**63 - 1), YEARS),
    "the microsecond after": (MICROS, varint(253_402_300_800_000_000), YEARS),
    "the microsecond before": (MICROS, varint(-62_135_596_800_000_001), YEARS),
    "the last long": (MICROS, varint(2**63 - 1), YEARS),
    "the year 10000": (ZONED, text("+10000-01-01T00:00:00Z"), "f0: not a time with a zone"),
    "the year 0 in UTC": (ZONED, text("0001-01-01T00:00:00+01:00"), YEARS),
    "no zone": (ZONED, text("2026-01-01T00:00:00"), "f0: not a time with a zone"),
    "no day": (ZONED, text("2026-02-30T00:00:00Z"), "f0: not a time with a zone"),
    "a line's end": (ZONED, text("2026-01-01T00:00:00Z\n"), "f0: not a time with a zone"),
    "an empty text": (ZONED, text(""), "f0: not a time with a zone"),
    "no text": (ZONED, b"\2\xff", "f0: text that is not UTF-8"),
    "39 digits of 64": (
        {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2},
        b"\x22" + (10**38).to_bytes(17),
        "f0: a decimal of more than 38 digits",
    ),
}


@pytest.mark.parametrize(("kind", "data", "why"), MALFORMED.values(), ids=MALFORMED)
def test_a_value_that_no_column_holds_is_malformed_whatever_the_options(kind: Any, data: bytes, why: str) -> None:
    for options in ({}, {"truncates": True, "infinity_is_null": True}):
        with pytest.raises(Malformed) as error:
            found(kind, data, **options)
        assert str(error.value).startswith(why)


INFINITIES: list[tuple[Any, bytes]] = [
    # As Debezium 3.3 wrote PostgreSQL's infinities, of snapshot and stream.
    (DATE, varint(-622_191_234)),
    (DATE, varint(-2_147_472_692)),
    (DATE, varint(-2_147_472_691)),
    (DATE, varint(2**31 - 1)),
    (DATE, varint(-(2**31))),
    (MILLIS, varint(9_223_372_036_825_200)),
    (MILLIS, varint(-9_223_372_036_832_400)),
    (MICROS, varint(9_223_372_036_825_200_000)),
    (MICROS, varint(-9_223_372_036_832_400_000)),
    (NANOS, varint(2**63 - 1)),
    (NANOS, varint(-(2**63))),
    (ZONED, text("infinity")),
    (ZONED, text("-infinity")),
    (CONNECTS_DATE, varint(-622_191_234)),
    (CONNECTS_MILLIS, varint(9_223_372_036_825_200)),
]


@pytest.mark.parametrize(("kind", "data"), INFINITIES)
def test_an_infinity_is_malformed_or_null_and_an_unread_one_does_not_matter(kind: Any, data: bytes) -> None:
    with pytest.raises(Malformed) as error:
        found(kind, data)
    assert str(error.value) == INFINITE
    assert found(kind, data, infinity_is_null=True) is None
    assert found(["null", kind], b"\2" + data, infinity_is_null=True) is None
    items = found({"type": "array", "items": kind}, b"\2" + data + b"\0", infinity_is_null=True)
    assert items == [None]
    assert BothWays(parsed(record(kind, "int")), parsed(record())).read(data + b"\2") == ()


def test_a_null_of_an_infinity_is_read_in_a_column_among_others() -> None:
    writer = parsed(record(MICROS, "int"))
    reader = wanted(writer, infinity_is_null=True)
    numbers = [1, 9_223_372_036_825_200_000, -1]
    records = [varint(number) + varint(n) for n, number in enumerate(numbers)]
    assert check_column(AvroReader(writer, reader), to_arrow_type(to_spark(reader)), records).all()


@pytest.mark.parametrize(
    ("kind", "data", "cut"),
    [
        (NANOS, varint(1), datetime(1970, 1, 1)),  # noqa: DTZ001
        (NANOS, varint(-1), datetime(1969, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
        (NANOS, varint(-(2**63) + 1), datetime(1677, 9, 21, 0, 12, 43, 145_224)),  # noqa: DTZ001
        (ZONED, text("1969-12-31T23:59:59.9999999Z"), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        (ZONED, text("2026-01-01T00:00:00.000000999-18:00"), datetime(2026, 1, 1, 18, tzinfo=UTC)),
    ],
)
def test_digits_below_the_microsecond_are_malformed_or_cut_downwards(kind: Any, data: bytes, cut: datetime) -> None:
    with pytest.raises(Malformed) as error:
        found(kind, data)
    assert str(error.value).startswith(FINER)
    assert found(kind, data, truncates=True) == cut


# The moment of a number by Python's arithmetic, which overflows outside the years 1 to 9999.
CLOCKS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "days": (DATE, lambda n: date(1970, 1, 1) + timedelta(days=n)),
    "Connect's days": (CONNECTS_DATE, lambda n: date(1970, 1, 1) + timedelta(days=n)),
    "milliseconds": (MILLIS, lambda n: BEGIN + timedelta(milliseconds=n)),
    "Connect's milliseconds": (CONNECTS_MILLIS, lambda n: (BEGIN + timedelta(milliseconds=n)).replace(tzinfo=UTC)),
    "microseconds": (MICROS, lambda n: BEGIN + timedelta(microseconds=n)),
    "nanoseconds": (NANOS, lambda n: BEGIN + timedelta(microseconds=n // 1000)),
}


def fastavros(kind: str, values: Sequence[Any]) -> list[bytes]:
    """Each value as fastavro writes it and reads it back, without any annotation."""
    found, schema = list[bytes](), fastavro.parse_schema(record(kind))
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"f0": value})
        found.append(out.getvalue())
        assert fastavro.schemaless_reader(io.BytesIO(found[-1]), schema, None) == {"f0": value}
    return found


def read_all(kind: Any, records: Sequence[bytes], **options: Any) -> tuple[list[Any], list[str | None]]:
    """The values of a field, null for a malformed one, and the reasons. In columns it is the same."""
    writer = parsed(record(kind))
    reader = wanted(writer, **options)
    reads, arrow = AvroReader(writer, reader), to_arrow_type(to_spark(reader))
    rows, why = list[Any](), list[str | None]()
    for data in records:
        try:
            rows.append(reads.read(data))
            why.append(None)
        except Malformed as malformed:
            rows.append((None,))
            why.append(str(malformed))
    values = pa.array(rows, arrow)
    column, sound = reads.read_many(pa.array(records), 0, arrow)
    assert sound.tolist() == [reason is None for reason in why]
    assert column.filter(pa.array(sound)).equals(values.filter(pa.array(sound)))
    return [row["f0"] for row in values.to_pylist()], why


@pytest.mark.parametrize(("kind", "clock"), CLOCKS.values(), ids=CLOCKS)
@pytest.mark.parametrize("truncates", [False, True])
def test_numbers_made_up_by_chance_are_pythons_moments(kind: Any, clock: Callable[[int], Any], truncates: bool) -> None:
    """Thousands of each, as fastavro writes them and reads them back."""
    random, bits = Random(53), 31 if kind["type"] == "int" else 63
    numbers = [random.randrange(-(2**size), 2**size) for size in random.choices(range(1, bits + 1), k=5000)]
    moments = list[Any]()
    for number in numbers:
        try:
            moments.append(clock(number))
        except OverflowError:
            moments.append(None)
    finer = [kind is NANOS and number % 1000 != 0 and not truncates for number in numbers]
    records = fastavros(kind["type"], numbers)
    found, why = read_all(kind, records, truncates=truncates)
    assert found == [None if fine else moment for moment, fine in zip(moments, finer, strict=True)]
    for moment, fine, reason in zip(moments, finer, why, strict=True):
        wanted = None if moment is not None and not fine else FINER if moment is not None else YEARS
        assert (reason and reason.startswith(wanted or "?")) == (wanted and True)
    assert sum(moment is not None for moment in moments) > 1000


@pytest.mark.parametrize("truncates", [False, True])
def test_times_with_a_zone_made_up_by_chance_are_pythons_moments(truncates: bool) -> None:
    random, texts, moments = Random(7), list[str](), list[Any]()
    for _ in range(5000):
        second = datetime.min + timedelta(seconds=random.randrange(315_537_897_600))  # noqa: DTZ901
        digits = "".join(random.choices("0123456789", k=random.randrange(10)))
        zone = random.choice([0, 0, 60 * random.randint(-18, 18), random.randint(-1079, 1079)])
        shown = "Z" if not zone else f"{'-' if zone < 0 else '+'}{abs(zone) // 60:02}:{abs(zone) % 60:02}"
        said = f"{second.isoformat()}{'.' if digits else ''}{digits}{shown}"
        texts.append(said)
        exact = Fraction(int(digits or 0), 10 ** len(digits)) * 1_000_000
        try:
            moment = second.replace(tzinfo=timezone(timedelta(minutes=zone)), microsecond=int(exact)).astimezone(UTC)
        except OverflowError:
            moment = None
        moments.append(moment if truncates or exact.denominator == 1 else None)
    found, why = read_all(ZONED, fastavros("string", texts), truncates=truncates)
    assert found == moments
    assert [reason is None for reason in why] == [moment is not None for moment in moments]
    assert sum(moment is not None for moment in moments) > 1000


def as_decimal(precision: int, scale: int, kind: Any = VARIABLE) -> tuple[AvroType, AvroType]:
    """The writer's type, and the reader's, which the settings make a decimal."""
    writer = parsed(record(kind))
    (field,) = writer.fields
    branches = tuple(
        replace(b, logical="decimal", precision=precision, scale=scale) if b.fields else b for b in field.type.branches
    )
    inner = replace(field.type, branches=branches)
    if not branches:
        inner = replace(field.type, logical="decimal", precision=precision, scale=scale)
    return writer, replace(writer, fields=(replace(field, type=inner),))


@pytest.mark.parametrize(
    ("scale", "data", "value"),
    [
        (3, b"\1\x82", "0.386"),
        (2, b"\4\xd2", "12.340"),
        (-3, b"\5", "5000.000"),
        (5, b"\3\xe8", "0.010"),
        (2**31 - 1, b"\0", "0.000"),
        (-(2**31), b"\0\0", "0.000"),
        (4, b"\xff\xff\xff\xf6", "-0.001"),
    ],
)
def test_a_decimal_with_its_scale_is_exact(scale: int, data: bytes, value: str) -> None:
    payload = written(VARIABLE, {"scale": scale, "value": data})
    for kind, before in ((VARIABLE, b""), (["null", VARIABLE], b"\2")):
        writer, reader = as_decimal(9, 3, kind)
        both = BothWays(writer, reader)
        assert both.kind == pa.struct({"f0": pa.decimal128(9, 3)})
        (row,) = pa.array([both.read(before + payload)], both.kind).to_pylist()
        assert str(row["f0"]) == value


@pytest.mark.parametrize(
    ("scale", "data"),
    [
        (4, b"\1"),
        (-7, b"\1"),
        (0, b"\xff" * 1_000_000),
        (2**31 - 1, b"\1"),
        (-(2**31), b"\1"),
        (0, b""),
        (0, b"\1" * 4),
    ],
    ids=["a digit too many", "too large", "a million bytes", "tiny", "huge", "no bytes", "ten digits"],
)
def test_a_decimal_that_does_not_fit_is_malformed_however_large_it_is(scale: int, data: bytes) -> None:
    writer, reader = as_decimal(9, 3)
    for value in (data, b"\x80" + data[1:] if data else data):
        with pytest.raises(Malformed, match=r"^f0: not a decimal\(9,3\)$") as error:
            AvroReader(writer, reader).read(written(VARIABLE, {"scale": scale, "value": value}))
        assert len(str(error.value)) < 40


def test_decimals_with_a_scale_made_up_by_chance_are_pythons_fractions() -> None:
    random, good = Random(9), 0
    for _ in range(1500):
        precision = random.randint(1, 38)
        digits = random.randint(0, precision)
        writer, reader = as_decimal(precision, digits)
        reads, arrow = AvroReader(writer, reader), to_arrow_type(to_spark(reader))
        number = random.choice((1, -1)) * random.randrange(10 ** random.randint(1, precision + 1))
        zeros = random.choice((0, 0, random.randint(0, 30)))
        number, scale = number * 10**zeros, digits + zeros + random.choice((0, 0, 1, -1, random.randint(-60, 60)))
        data = number.to_bytes(number.bit_length() // 8 + 1, signed=True)
        value = Fraction(number) / Fraction(10) ** scale
        fits = (value * 10**digits).denominator == 1 and abs(value) < 10 ** (precision - digits)
        (payload,) = variable([(scale, data)])
        if fits:
            good += 1
            (row,) = pa.array([reads.read(payload)], arrow).to_pylist()
            assert Fraction(row["f0"]) == value
        else:
            with pytest.raises(Malformed, match=r"^f0: not a decimal\("):
                reads.read(payload)
    assert 300 < good < 1200


def variable(values: Sequence[tuple[int, bytes]]) -> list[bytes]:
    """Decimals with their scales, as fastavro writes them."""
    found, schema = list[bytes](), fastavro.parse_schema(json.loads(json.dumps(VARIABLE)))
    for scale, data in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"scale": scale, "value": data})
        found.append(out.getvalue())
    return found


def test_decimals_of_64_digits_are_read_as_far_as_sparks_go() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 5}
    writer = parsed(record(kind))
    assert to_spark(writer).simpleString() == "struct<f0:decimal(38,5)>"
    random = Random(3)
    numbers = [random.choice((1, -1)) * random.randrange(10 ** random.randint(1, 64)) for _ in range(3000)]
    records = fastavros("bytes", [number.to_bytes(number.bit_length() // 8 + 1, signed=True) for number in numbers])
    found, why = read_all(kind, records)
    for number, value, reason in zip(numbers, found, why, strict=True):
        if abs(number) < 10**38:
            assert (Fraction(value), reason) == (Fraction(number, 10**5), None)
        else:
            assert (value, reason) == (None, "f0: a decimal of more than 38 digits")
    assert 1000 < sum(reason is None for reason in why) < 2500
    skips = AvroReader(writer, parsed(record()))
    assert {skips.read(data) for data in records} == {()}


def test_more_digits_behind_the_point_than_sparks_and_an_output_of_64_digits_are_refused() -> None:
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    with pytest.raises(BadSchema, match=r"^f0: a decimal of 39 digits behind the point; Spark's have 38 at most"):
        check_holdable(parse(json.dumps(record(wide | {"scale": 39}))))
    with pytest.raises(BadSchema, match=r"^f0: a decimal of 64 digits can be read, but not written"):
        FORMAT.written(json.dumps(record(wide)), (), columns=True)


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (MICROS, NANOS),
        (MILLIS, MICROS),
        (MICROS, {"type": "long", "logicalType": "timestamp-micros"}),
        ({"type": "long", "logicalType": "timestamp-millis"}, MILLIS),
        (DATE, connect("int", f"{TIME}Time")),
        (DATE, {"type": "int", "logicalType": "date"}),
        (connect("long", f"{TIME}MicroTime"), connect("long", f"{TIME}NanoTime")),
        (ZONED, connect("string", f"{TIME}IsoTimestamp")),
        (DATE, MILLIS),
    ],
)
def test_one_of_connects_types_is_not_read_as_another(writer: Any, reader: Any) -> None:
    with pytest.raises(Incompatible, match=r"^f0: written as .+, read as "):
        AvroReader(parsed(record(writer)), parsed(record(reader)))
    with pytest.raises(Incompatible, match=r"^f0\[\]: written as .+, read as "):
        AvroReader(
            parsed(record({"type": "array", "items": ["null", writer]})),
            parsed(record({"type": "array", "items": ["null", reader]})),
        )


def test_a_plain_number_and_connects_type_are_read_as_each_other() -> None:
    """As for Avro's own types. A plain number is no moment, so no bound of one is for it."""
    infinite = varint(9_223_372_036_825_200_000)
    assert BothWays(parsed(record(MICROS)), parsed(record("long"))).read(infinite) == (9_223_372_036_825_200_000,)
    assert BothWays(parsed(record(MICROS)), parsed(record("double"))).read(varint(3)) == (3.0,)
    assert BothWays(parsed(record("long")), parsed(record(MICROS))).read(varint(3)) == (3,)
    assert BothWays(parsed(record("int")), parsed(record(NANOS))).read(varint(3000)) == (3,)
    assert BothWays(parsed(record("string")), parsed(record(ZONED))).read(text("1970-01-01T00:00:01Z")) == (1_000_000,)
    # Registered by hand, and by Connect.
    plain = {"type": "long", "logicalType": "timestamp-millis"}
    assert BothWays(parsed(record(CONNECTS_MILLIS)), parsed(record(plain))).read(varint(3)) == (3000,)
    assert BothWays(parsed(record(plain)), parsed(record(CONNECTS_MILLIS))).read(varint(3)) == (3000,)


@pytest.mark.parametrize(("default", "value"), [("1", 1), ("9223372036825200000", None)])
def test_a_default_of_connects_type_is_read_as_a_written_number(default: str, value: int | None) -> None:
    whole = record(MICROS)
    whole["fields"][0]["default"] = int(default)
    reader = wanted(parsed(whole), infinity_is_null=True)
    assert AvroReader(parsed(record()), reader).read(b"") == (value,)
    if value is None:
        with pytest.raises(Incompatible, match="f0: not written, and its default is not a value of long"):
            AvroReader(parsed(record()), parsed(whole))


@pytest.mark.parametrize("kind", [DATE, MILLIS, MICROS, NANOS, ZONED, CONNECTS_DATE, CONNECTS_MILLIS])
def test_the_frozen_text_keeps_connects_name_and_a_written_schema_has_none(kind: dict[str, Any]) -> None:
    """A transform's result has the plain number in an output's schema, as it is written."""
    whole = json.dumps(record(kind, {"type": "array", "items": ["null", kind]}))
    frozen = render(parse(whole))
    assert parse(frozen) == parse(whole)
    assert frozen.count(kind["connect.name"]) == 2
    plain = json.loads(FORMAT.written(whole, (), columns=True))
    logical = {"logicalType": kind["logicalType"], "type": kind["type"]} if "logicalType" in kind else kind["type"]
    assert [one["type"] for one in plain["fields"]] == [logical, {"type": "array", "items": ["null", logical]}]
