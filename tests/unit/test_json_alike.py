"""Records that are written alike, read column by column, are what they are when each is read by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from random import Random
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fencepost.formats import json_alike
from fencepost.formats.json_columns import DAY, ZONED
from fencepost.formats.json_decoder import JsonDecoder
from oracle.json_writer import ANYTHING

KINDS = {
    "i8": (pa.int8(), "-7"),
    "i64": (pa.int64(), "-9223372036854775808"),
    "f64": (pa.float64(), "-12.5"),
    "dec": (pa.decimal128(5, 2), "1.5"),
    "rate": (pa.decimal128(4, 4), "0.25"),
    "wide": (pa.decimal128(38, 10), "-12345.67"),
    "big": (pa.decimal128(20, 1), "12345678901234.5"),
    "s": (pa.string(), '"\u00e9 {,}:"'),
    "ok": (pa.bool_(), "false"),
    "day": (pa.date32(), '"2024-02-29"'),
    "t": (pa.timestamp("us", tz="UTC"), '"2024-02-29T12:00:00.5+01:00"'),
    "ntz": (pa.timestamp("us"), '"1969-12-31 12:00"'),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])
USUAL = {name: text for name, (_, text) in KINDS.items()} | {"more": "1.25"}


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_alike, "FEW", 1)


def record(**other: str) -> bytes:
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in (USUAL | other).items()) + "}").encode()


def sound(schema: pa.Schema, records: Sequence[bytes | None], required: Sequence[str] = ()) -> list[int]:
    """Which of the records are read with others. All that are not are what they are by themselves, and so are those."""
    values = pa.array(records, pa.binary())
    columns, why = JsonDecoder(schema, required).decode_array(values)
    one_by_one, reasons = JsonDecoder(schema, required).decode_values(records)
    assert why == reasons
    for column, other in zip(columns, one_by_one, strict=True):
        assert column.type == other.type
        for record, found, wanted in zip(records, column.to_pylist(), other.to_pylist(), strict=True):
            assert repr(found) == repr(wanted), record
    return [row for rows, _, right in JsonDecoder(schema, required).read_usual(values) for row in rows[right].tolist()]


def test_records_with_the_same_members_are_read_together_whatever_their_values() -> None:
    random, records = Random(3), list[bytes | None]()
    for _ in range(500):
        digits = random.randint(1, 18)
        number = random.randrange(10**digits)
        texts = {
            "i8": str(random.randrange(-128, 128)),
            "i64": str(random.choice([1, -1]) * (number + 1)),
            "f64": random.choice([f"{number % 10**9}.{random.randrange(10**5):05}", repr(random.uniform(-180, 180))]),
            "dec": f"{number % 1000}.{number % 100:02}",
            "s": f'"{"x" * random.randrange(40)}"',
            "ok": random.choice(["true", "false"]),
            "more": random.choice(["true", "null", '"a"', "17", "-0.5"]),
        }
        nulls = {name: "null" for name in KINDS if random.random() < 0.2}
        records.append(record(**texts | nulls))
    records[100:100] = [None, record(more='"\\n"'), record(i8="300"), b"{", None]
    assert sound(SCHEMA, records) == [n for n in range(len(records)) if not 100 <= n < 105]
    assert sound(SCHEMA, records, ["s"]) == [
        n for n in range(len(records)) if b'"s": null' not in (records[n] or b'"s": null') and not 100 <= n < 105
    ]


@pytest.mark.parametrize("name", [*KINDS, "more"])
def test_any_text_in_any_member_is_what_it_is_by_itself(name: str) -> None:
    """Between others; as the last member too."""
    texts = [*ANYTHING, "truer", "false1", "nulls", "nul"]
    records = [one for text in texts for one in (record(), record(**{name: text}))]
    assert set(range(0, len(records), 2)) <= set(sound(SCHEMA, records))
    last = [f'{{"a": 1, "{name}": {text}}}'.encode() for odd in texts for text in (USUAL[name], odd)]
    assert set(range(0, len(last), 2)) <= set(sound(SCHEMA, last))


def test_numbers_of_any_length_are_exact_or_left() -> None:
    random, names = Random(4), [name for name, (_, text) in KINDS.items() if text.strip("-")[0].isdigit()]
    for name in names:
        texts = ["".join(random.choice("0123456789") for _ in range(random.randint(1, 24))) for _ in range(1500)]
        texts = [random.choice(["", "", "-"]) + random.choice([text, text.lstrip("0") or "0"]) for text in texts]
        for number, text in enumerate(texts):
            if random.random() < 0.7:
                at = random.randint(0, len(text))
                texts[number] = text[:at] + random.choice("......eE-+ 0:/;") + text[at:]
        found = sound(SCHEMA, [one for text in texts for one in (record(), record(**{name: text}))])
        assert len(found) > len(texts) + 3, name


def test_a_changed_byte_anywhere_changes_only_its_record() -> None:
    random, records = Random(5), [record()]
    for _ in range(2000):
        one = bytearray(record())
        at = random.randrange(len(one))
        new = random.choice(
            [b"", b'"', b"\\", b",", b"{", b"}", b":", b" ", b"0", b"\x00", b"\n", b"\xff", b"\xc3\xa9"]
        )
        one[at : at + random.randint(0, 2)] = new
        records += [bytes(one), record()]
    found = sound(SCHEMA, records)
    assert {n for n, one in enumerate(records) if one == record()} <= set(found)


def test_records_are_compared_with_those_before_and_else_with_one_of_them_until_most_differ() -> None:
    decoder = JsonDecoder(SCHEMA)

    def read(*records: bytes) -> list[list[bool]]:
        return [right.tolist() for *_, right in decoder.read_usual(pa.array(records, pa.binary()))]

    assert read(b"{", record(), record()) == [[False, True, True]]  # like the one in the middle
    assert read(b"{}", record(), b"{", record()) == [[False, True, False, True]]  # like those before
    other = record().replace(b", ", b",")
    assert read(other, other, record()) == [[True, True, False]]
    assert read(record(), b"{}", b"{}", b"{}") == []
    assert read(record(), record()) == []


@pytest.mark.parametrize(
    "first", [b"", b"[]", b"{}", b'{"i8":[1]}', b'{"i8":1,"i8":1}', b'{"\\u0041":1}', b'{"\xff":1}']
)
def test_others_cannot_be_read_like_a_first_record_that_is_not_flat(first: bytes) -> None:
    assert sound(SCHEMA, [first, first, record()]) == []


def test_what_no_column_has_is_text_in_utf8_and_what_no_record_has_may_be_required() -> None:
    usual = record(more='"a"')
    assert sound(SCHEMA, [usual, usual.replace(b'"a"', b'"\xff"'), usual]) == [0, 2]
    more = SCHEMA.append(pa.field("absent", pa.string()))
    assert sound(more, [usual, usual]) == [0, 1]
    assert sound(more, [usual, usual], ["absent"]) == []


def test_few_are_read_one_by_one_and_many_after_them_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_alike, "FEW", 3)
    decoder = JsonDecoder(SCHEMA)
    assert [len(list(decoder.read_usual(pa.array([record()] * count, pa.binary())))) for count in (0, 2, 3)] == [
        0,
        0,
        1,
    ]


def calls_of(read: Callable[[], Any]) -> int:
    """How many functions are called, Python's own and the libraries'."""
    count = 0

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        read()
    finally:
        sys.setprofile(None)
    return count


ODD = {
    "day": ['"2023-02-29"', '"2024-04-31"', '"0000-01-01"', '"2024-13-01"', "7", '"x"'],
    "t": ['"2023-02-29T00:00:00Z"', '"2024-02-28T24:00Z"', '"2024-01-01T00:00:00.1234567Z"', '"2024-01-01T00:00:00.123456000Z"'],
    "ntz": ['"2024-02-29T00:60:00"', '"2024-02-30"', '"2024-01-01 00:00:61"', '"2024-01-01T00:00Z"'],
    "s": ['"\\n"', '"\xff"', "1"],
    "f64": ["1e5", '"1"', "NaN"],
    "wide": ["1e5", "1234567890123456789012.5", "true"],
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_is_left_is_not_searched_for_among_the_others(name: str) -> None:
    """In calls for each text that is left: to halve the column until it stands alone takes some fifteen."""
    schema, usual = pa.schema([SCHEMA.field(name)]), f'{{"{name}": {USUAL[name]}}}'.encode()
    decoder, most = JsonDecoder(schema), pa.array([usual] * 1000, pa.binary())
    few = calls_of(lambda: list(decoder.read_usual(most)))
    for text in ODD[name]:
        odd = f'{{"{name}": {text}}}'.encode("latin-1")
        values = pa.array([odd if number % 5 < 2 else usual for number in range(1000)], pa.binary())
        many = calls_of(lambda: list(decoder.read_usual(values)))  # noqa: B023
        assert many < few + 8 * 400, text
        ((_, _, sound),) = decoder.read_usual(values)
        assert sound.tolist() == [number % 5 >= 2 for number in range(1000)]


def test_arrow_takes_every_day_and_time_that_is_read_with_others() -> None:
    """It would refuse all of a column for one text. Days are Python's calendar's."""
    days = [date(1, 1, 1) + timedelta(n) for n in range(0, 3_652_059, 7)]
    days += [date(year, 2, 28) + timedelta(n) for year in range(1, 10_000) for n in (0, 1)]
    odd = [
        f"{year:04}-{month:02}-{day:02}"
        for year in (0, 1900, 2023, 2024, 9999)
        for month in range(14)
        for day in range(33)
    ]
    texts = pa.array([*map(str, days), *odd])
    right = pc.match_substring_regex(texts, f"^{DAY}$")
    known = [True] * len(days) + [_is_day(text) for text in odd]
    assert right.to_pylist() == known
    assert texts.filter(right).cast(pa.date32()).to_pylist() == [*days, *map(date.fromisoformat, filter(_is_day, odd))]
    zones = ["Z", *(f"{sign}{h:02}{m}" for sign in "+-" for h in range(20) for m in ("", "00", ":30", ":59"))]
    times = ["00:00", "23:59", "23:59:59", *(f"12:30:00.{'123456'[:n]}" for n in range(1, 7))]
    moments = pa.array([f"2024-02-29{mark}{time}{zone}" for mark in "T " for time in times for zone in zones])
    right = pc.match_substring_regex(moments, f"^{ZONED}$")
    assert right.to_pylist() == [
        not m.endswith(("19", "1900", "19:30", "19:59")) or (m[-3] == ":" and m[-6] not in "+-")
        for m in moments.to_pylist()
    ]
    assert len(moments.filter(right).cast(pa.timestamp("us", tz="UTC"))) > 2000


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def test_of_no_records_there_are_columns_without_rows() -> None:
    columns, why = JsonDecoder(SCHEMA).decode_array(pa.array([], pa.binary()))
    assert ([column.type for column in columns], why) == (SCHEMA.types, [])
    assert {len(column) for column in columns} == {0}
