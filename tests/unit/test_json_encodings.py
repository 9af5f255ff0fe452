"""An encoded field is exactly the value that it says, or its record is malformed by its own reason: fixed values, and values
made up by chance against Python's own arithmetic. `make encodings` makes up a million of each encoding."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from fencepost.formats import json_alike
from fencepost.formats.declared import Encoding, FieldOf
from fencepost.formats.json_decoder import JsonDecoder

VALUES = int(os.environ.get("ENCODING_VALUES", "3000"))
AT_ONCE = 10_000

TIMESTAMP, LOCAL, DATE = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.date32()
AMOUNT, WIDE = pa.decimal128(12, 2), pa.decimal128(38, 6)
MALFORMED = object()


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_alike, "FEW", 1)


def decoder(kind: pa.DataType, encoding: Encoding, *, required: bool = False) -> JsonDecoder:
    schema = pa.schema([("n", pa.int64()), ("column", kind)])
    return JsonDecoder(schema, ["column"] if required else [], None, {"column": FieldOf("@f", encoding)})


def read(kind: pa.DataType, encoding: Encoding, *texts: str, required: bool = False) -> list[Any]:
    """What each text is in a record: the value, or the reason without the field's name. By itself, with all others, and
    among enough usual records, here of nulls, that it is read with these."""
    records = [f'{{"n": {n}, "@f": {text}}}'.encode() for n, text in enumerate(texts)]
    columns, why = decoder(kind, encoding, required=required).decode_values(records)
    many, why_many = decoder(kind, encoding, required=required).decode_array(pa.array(records, pa.binary()))
    assert why_many == why
    assert repr(many[1].to_pylist()) == repr(columns[1].to_pylist())
    if not required:
        usual = [f'{{"n": {n}, "@f": null}}'.encode() for n in range(len(texts) + 2)]
        among, why_among = decoder(kind, encoding).decode_array(pa.array(records + usual, pa.binary()))
        assert why_among == why + [None] * len(usual)
        assert repr(among[1].to_pylist()[: len(texts)]) == repr(columns[1].to_pylist())
    assert all(reason is None or reason.startswith("@f: ") for reason in why), "a reason says the field's own name"
    return [
        value if reason is None else reason.removeprefix("@f: ")
        for value, reason in zip(columns[1].to_pylist(), why, strict=True)
    ]


def read_together(kind: pa.DataType, encoding: Encoding, *texts: str) -> list[bool]:
    """Which of the texts are read with others, without a Python object for each."""
    records = [f'{{"n": {n}, "@f": {text}}}'.encode() for n, text in enumerate(texts)]
    found = list(decoder(kind, encoding).read_usual(pa.array(records, pa.binary())))
    return [bool(right) for _, _, sound in found for right in sound]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


FINER = "digits below the microsecond, which no timestamp holds; `digits: truncate` under source.schema cuts them off"
INFINITE = "an infinity; `infinity: null` under source.schema would read it as null"
NAN = "NaN; `infinity: null` under source.schema would read it as null"


def out_of_range(unit: str) -> str:
    return f"not within the years 1 to 9999, as {unit} since 1970"


def no_whole(unit: str) -> str:
    return f"not a whole number of {unit} since 1970"


def with_fraction(unit: str) -> str:
    return f"a number with a fraction or an exponent, {no_whole(unit)}"


UNITS = {"epoch_seconds": "seconds", "epoch_millis": "milliseconds", "epoch_micros": "microseconds"} | {
    "epoch_nanos": "nanoseconds"
}
TO_MICROS = {name: Fraction(10**6, 10**digits) for name, digits in zip(UNITS, (0, 3, 6, 9), strict=True)}
FIRST, LAST = -62135596800, 253402300799  # seconds of the first and the last second


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("kind", [TIMESTAMP, LOCAL])
def test_an_epoch_is_exact_within_the_years_1_to_9999(name: str, kind: pa.DataType) -> None:
    second = int(10**6 / TO_MICROS[name])
    texts = {
        "0": "1970-01-01",
        "-0": "1970-01-01",
        "null": None,
        str(1700000000 * second): "2023-11-14T22:13:20",
        str(-second): "1969-12-31T23:59:59",
        str(FIRST * second): "0001-01-01",
        str(LAST * second): "9999-12-31T23:59:59",
        str(FIRST * second - 1): out_of_range(UNITS[name]),
        str((LAST + 1) * second): out_of_range(UNITS[name]),
        str(2**63): out_of_range(UNITS[name]),
        str(10**30): out_of_range(UNITS[name]),
        "1.0": with_fraction(UNITS[name]),
        "1.7e9": with_fraction(UNITS[name]),
        "0.5": with_fraction(UNITS[name]),
        "-0.0": with_fraction(UNITS[name]),
        '"1700000000"': no_whole(UNITS[name]),
        "true": no_whole(UNITS[name]),
        "[1]": no_whole(UNITS[name]),
        '{"x": 1}': no_whole(UNITS[name]),
    }
    if name == "epoch_nanos":
        texts[str(2**63)] = FINER
    zone = UTC if kind.tz else None
    wanted = [
        datetime.fromisoformat(said).replace(tzinfo=zone) if said and said[0].isdigit() else said
        for said in texts.values()
    ]
    assert read(kind, Encoding(name), *texts) == wanted


def test_the_unit_of_an_epoch_decides_what_is_out_of_range() -> None:
    """The nanoseconds lie in 2262; so do as many milliseconds, as microseconds."""
    text = "9223372036825200000"
    assert read(TIMESTAMP, Encoding("epoch_nanos"), text) == [utc("2262-04-11T23:47:16.825200")]
    assert read(TIMESTAMP, Encoding("epoch_seconds"), text) == [out_of_range("seconds")]
    assert read(TIMESTAMP, Encoding("epoch_micros"), text) == [INFINITE]
    assert read(TIMESTAMP, Encoding("epoch_micros"), "9223372036825200001") == [out_of_range("microseconds")]
    assert read(TIMESTAMP, Encoding("epoch_micros"), "9223372036825200") == [utc("2262-04-11T23:47:16.825200")]
    assert read(TIMESTAMP, Encoding("epoch_millis"), "9223372036825200") == [INFINITE]


def test_digits_below_the_microsecond_are_cut_off_towards_the_past_if_the_settings_say_so() -> None:
    texts = {
        "1": "1970-01-01T00:00:00",
        "999": "1970-01-01T00:00:00",
        "1000": "1970-01-01T00:00:00.000001",
        "-1": "1969-12-31T23:59:59.999999",
        "-999": "1969-12-31T23:59:59.999999",
        "-1000": "1969-12-31T23:59:59.999999",
        "-1001": "1969-12-31T23:59:59.999998",
        "253402300799999999999": "9999-12-31T23:59:59.999999",
    }
    cut = Encoding("epoch_nanos", truncates=True)
    assert read(TIMESTAMP, cut, *texts) == [utc(said) for said in texts.values()]
    assert read(TIMESTAMP, Encoding("epoch_nanos"), *texts) == [
        utc(said) if text.endswith("000") else FINER for text, said in texts.items()
    ]
    assert read(TIMESTAMP, cut, "-62135596800000000001", "253402300800000000000") == [out_of_range("nanoseconds")] * 2


TEXTS = {
    "1969-12-31T23:59:59.9999999": "1969-12-31T23:59:59.999999",
    "2026-01-01T00:00:00.1234567": "2026-01-01T00:00:00.123456",
    "2026-01-01T00:00:00.123456789012345678901234567890": "2026-01-01T00:00:00.123456",
    "0001-01-01T00:00:00.0000009": "0001-01-01T00:00:00",
    "9999-12-31T23:59:59.9999999": "9999-12-31T23:59:59.999999",
    "2026-01-01T00:00:00.5": "2026-01-01T00:00:00.5",
    "2026-01-01T00:00:00.123456000": "2026-01-01T00:00:00.123456",
}


@pytest.mark.parametrize("zone", ["Z", ""])
def test_digits_of_a_time_in_a_text_are_cut_off_likewise(zone: str) -> None:
    kind, place = (TIMESTAMP, UTC) if zone else (LOCAL, None)
    texts = [f'"{text}{zone}"' for text in TEXTS]
    wanted = [datetime.fromisoformat(said).replace(tzinfo=place) for said in TEXTS.values()]
    assert read(kind, Encoding(truncates=True), *texts) == wanted
    assert read_together(kind, Encoding(truncates=True), *texts) == [True] * len(texts)
    finer = [text.rstrip("0")[19:] > text[19:26] for text in TEXTS]
    assert read(kind, Encoding(), *texts) == [FINER if f else w for f, w in zip(finer, wanted, strict=True)]
    assert sum(finer) == 5
    for text in ("2026-01-01T00:00:00.1234567.1234567", "2026-02-30T00:00:00.1234567", "2026-01-01T00:00:00.1234567x"):
        (reason,) = read(kind, Encoding(truncates=True), f'"{text}{zone}"')
        assert reason.startswith("not a time "), text


def test_an_offset_does_not_change_which_digits_are_cut_off() -> None:
    (found,) = read(TIMESTAMP, Encoding(truncates=True), '"1970-01-01T00:59:59.9999999+01:00"')
    assert found == utc("1969-12-31T23:59:59.999999")


def test_epoch_days_are_exact_within_the_years_1_to_9999() -> None:
    texts = {
        "0": date(1970, 1, 1),
        "-1": date(1969, 12, 31),
        "20454": date(2026, 1, 1),
        "-719162": date(1, 1, 1),
        "2932896": date(9999, 12, 31),
        "-719163": out_of_range("days"),
        "2932897": out_of_range("days"),
        "99999999999999999999": out_of_range("days"),
        "1.5": with_fraction("days"),
        '"2026-01-01"': no_whole("days"),
        "false": no_whole("days"),
        "null": None,
    }
    assert read(DATE, Encoding("epoch_days"), *texts) == list(texts.values())


INFINITIES: list[tuple[pa.DataType, str, list[str]]] = [
    (TIMESTAMP, "epoch_micros", ["9223372036825200000", "-9223372036832400000"]),
    (LOCAL, "epoch_millis", ["9223372036825200", "-9223372036832400", "9223372036825200000"]),
    (DATE, "epoch_days", ["-622191234", "-2147472692", "-2147472691", "2147483647", "-2147483648"]),
    (TIMESTAMP, "", ['"infinity"', '"-infinity"']),
    (LOCAL, "", ['"infinity"', '"-infinity"']),
    (DATE, "", ['"infinity"', '"-infinity"']),
    (pa.float64(), "", ['"NaN"', '"Infinity"', '"-Infinity"']),
    (pa.float32(), "", ['"NaN"', '"Infinity"', '"-Infinity"']),
    (pa.float64(), "text", ['"NaN"', '"Infinity"', '"-Infinity"']),
    (pa.float32(), "text", ['"NaN"', '"Infinity"', '"-Infinity"']),
    (AMOUNT, "text", ['"NaN"', '"Infinity"', '"-Infinity"']),
]


@pytest.mark.parametrize("case", INFINITIES, ids=lambda case: f"{case[0]} {case[1]}")
def test_an_infinity_is_malformed_by_its_own_reason_or_null_if_the_settings_say_so(
    case: tuple[pa.DataType, str, list[str]],
) -> None:
    kind, name, texts = case
    assert read(kind, Encoding(name), *texts) == [NAN if "NaN" in text else INFINITE for text in texts]
    assert read(kind, Encoding(name, infinity_is_null=True), *texts) == [None] * len(texts)
    refused = read(kind, Encoding(name, infinity_is_null=True), *texts, required=True)
    whats = ["NaN" if "NaN" in text else "an infinity" for text in texts]
    assert refused == [f"{what}, which is read as null, and declared not null" for what in whats]


def test_other_words_are_no_infinity() -> None:
    for kind in (TIMESTAMP, DATE, pa.float64()):
        found = read(kind, Encoding(infinity_is_null=True), '"INFINITY"', '"nan"', '"inf"', '"+infinity"')
        assert all(isinstance(one, str) and one.startswith("not a ") for one in found)
    (found,) = read(AMOUNT, Encoding("base64", infinity_is_null=True), '"NaN"')
    assert found == "not Base64"


B64 = "not Base64"


def test_a_decimal_in_base64_is_exact() -> None:
    texts = {
        '"BNI="': Decimal("12.34"),
        '"+w=="': Decimal("-0.05"),
        '"AA=="': Decimal("0.00"),
        '"/w=="': Decimal("-0.01"),
        '"AAAAAAAAAAAAAAAAAAAAAQ=="': Decimal("0.01"),
        f'"{base64.b64encode((10**12 - 1).to_bytes(6, signed=True)).decode()}"': Decimal("9999999999.99"),
        f'"{base64.b64encode((-(10**12) + 1).to_bytes(6, signed=True)).decode()}"': Decimal("-9999999999.99"),
        f'"{base64.b64encode((10**12).to_bytes(6, signed=True)).decode()}"': "not a decimal(12,2)",
        f'"{base64.b64encode((-(10**12)).to_bytes(6, signed=True)).decode()}"': "not a decimal(12,2)",
        '""': "Base64 of no bytes, and a number has at least one",
        '"BNJ="': B64,
        '"BNI"': B64,
        '"B=NI"': B64,
        '"BNI=BNI="': B64,
        '"A==="': B64,
        '"===="': B64,
        '"-_=="': B64,
        '" BNI="': B64,
        '"\\u0042NI="': Decimal("12.34"),
        '"BN\u00cd="': B64,
        "12.34": "not Base64 of a number",
        "true": "not Base64 of a number",
        "[]": "not Base64 of a number",
        "null": None,
    }
    assert read(AMOUNT, Encoding("base64"), *texts) == list(texts.values())


def test_a_decimal_of_38_digits_in_base64_is_exact() -> None:
    most = 10**38 - 1
    for number in (most, -most, most + 1, -most - 1, 2**63 - 1, -(2**63), 2**63):
        text = f'"{base64.b64encode(number.to_bytes(17, signed=True)).decode()}"'
        wanted = Decimal(number) if abs(number) <= most else "not a decimal(38,0)"
        assert read(pa.decimal128(38, 0), Encoding("base64"), text) == [wanted], number


def test_a_number_with_its_own_scale_is_exact_in_the_declared_decimal_or_malformed() -> None:
    texts = {
        '{"scale": 3, "value": "Ap1C"}': Decimal("171.33"),  # 171330
        '{"value": "AQ==", "scale": -2}': Decimal("100.00"),
        '{"scale": 0, "value": "AQ=="}': Decimal("1.00"),
        '{"scale": -0, "value": "AQ=="}': Decimal("1.00"),
        '{"scale": 3, "value": "AQ=="}': "not a decimal(12,2)",
        '{"scale": -10, "value": "AQ=="}': "not a decimal(12,2)",
        '{"scale": -9, "value": "Cg=="}': "not a decimal(12,2)",
        '{"scale": -9, "value": "CQ=="}': Decimal("9000000000.00"),
        '{"scale": 5, "value": "AA=="}': Decimal("0.00"),
        '{"scale": 99999999999999999999, "value": "AA=="}': Decimal("0.00"),
        '{"scale": 99999999999999999999, "value": "AQ=="}': "not a decimal(12,2)",
        '{"scale": -99999999999999999999, "value": "AQ=="}': "not a decimal(12,2)",
        '{"scale": 2}': "an object without exactly a scale and a value",
        '{"scale": 2, "value": "AQ==", "more": 1}': "an object without exactly a scale and a value",
        '{"scale": 2, "value": null}': "not Base64 of a number",
        '{"scale": 2, "value": ""}': "Base64 of no bytes, and a number has at least one",
    }
    assert read(AMOUNT, Encoding("base64"), *texts) == list(texts.values())
    records = [b'{"@f": {"scale": %b, "value": "AQ=="}}' % text for text in (b"2.0", b'"2"', b"true", b"null")]
    _, why = decoder(AMOUNT, Encoding("base64")).decode_values(records)
    assert why == [
        "@f.scale: a number with a fraction or an exponent, not a whole number",
        *["@f.scale: not a whole number"] * 3,
    ]


def test_more_bytes_than_any_number_has_are_malformed_at_once() -> None:
    whole = base64.b64encode(bytes(300_000)).decode()
    assert read(AMOUNT, Encoding("base64"), f'"{whole}"') == ["Base64 of more than 65,536 bytes"]


NUMBER = "a text that is not a number as JSON writes it"
WHOLE = "a text that is not a whole number"
NO_TEXT, NO_TEXT_WHOLE = "not a text with a number as JSON writes it", "not a text with a whole number"
NUMBERS_IN_TEXT: dict[str, tuple[Any, Any, Any]] = {  # as bigint, decimal(12,2), double
    '"0"': (0, Decimal("0.00"), 0.0),
    '"-0"': (0, Decimal("0.00"), -0.0),
    '"17"': (17, Decimal("17.00"), 17.0),
    '"-9223372036854775808"': (-(2**63), "not a decimal(12,2)", -(2.0**63)),
    '"9223372036854775808"': ("not an integer of 64 bits", "not a decimal(12,2)", 2.0**63),
    '"12.34"': (WHOLE, Decimal("12.34"), 12.34),
    '"12.340000"': (WHOLE, Decimal("12.34"), 12.34),
    '"12.345"': (WHOLE, "not a decimal(12,2)", 12.345),
    '"9999999999.99"': (WHOLE, Decimal("9999999999.99"), 9999999999.99),
    '"10000000000"': (10**10, "not a decimal(12,2)", 1e10),
    '"1e2"': (WHOLE, Decimal("100.00"), 100.0),
    '"1E+2"': (WHOLE, Decimal("100.00"), 100.0),
    '"0E-10"': (WHOLE, Decimal("0.00"), 0.0),
    '"1e-2"': (WHOLE, Decimal("0.01"), 0.01),
    '"1e400"': (WHOLE, "not a decimal(12,2)", "not within a double's range"),
    '"1e99999999999999999999"': (WHOLE, "not a decimal(12,2)", "not within a double's range"),
    '"0e99999999999999999999"': (WHOLE, Decimal("0.00"), 0.0),
    '"%s"' % ("9" * 5000): ("not an integer of 64 bits", "not a decimal(12,2)", "not within a double's range"),
    **dict.fromkeys(
        [
            '""', '" "', '" 1"', '"1 "', '"\\n1"', '"1\\n"', '"01"', '"-01"', '"+1"', '".5"', '"1."', '"-"', '"--1"', '"1_000"',
            '"1,5"', '"0x1"', '"1e"', '"\u0661"', '"\uff11"', '"\u00b2"', '"inf"', '"nan"', '"null"', '"true"', '"1\\u0000"',
        ],
        (WHOLE, NUMBER, NUMBER),
    ),
    **dict.fromkeys(
        ["1", "1.5", "true", "[1]", '{"a": 1}'],
        (NO_TEXT_WHOLE, NO_TEXT, NO_TEXT),
    ),
    "null": (None, None, None),
}  # fmt: skip


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_number_in_a_text_has_the_form_that_json_gives_it_and_is_exact(place: int) -> None:
    kind = (pa.int64(), AMOUNT, pa.float64())[place]
    found = read(kind, Encoding("text"), *NUMBERS_IN_TEXT)
    assert [repr(one) for one in found] == [repr(both[place]) for both in NUMBERS_IN_TEXT.values()]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_a_whole_number_in_a_text_is_within_its_type(bits: int) -> None:
    kind = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    texts = [f'"{number}"' for number in (low, high, low - 1, high + 1)]
    assert read(kind, Encoding("text"), *texts) == [low, high, *[f"not an integer of {bits} bits"] * 2]


def test_a_float_in_a_text_is_the_nearest_one() -> None:
    """The double next to the last number lies midway between two floats, and the number does not."""
    found = read(pa.float32(), Encoding("text"), '"0.1"', '"-0"', '"1e39"', '"1.00000017881393432617187499"', '"x"')
    assert [repr(one) for one in found[:2]] == ["0.10000000149011612", "-0.0"]
    assert found[2:] == ["not within a float's range", 1.00000011920928955078125, NUMBER]


def test_a_boolean_in_a_text_is_true_or_false() -> None:
    reason = "not a text that is true or false"
    texts = {'"true"': True, '"false"': False, "null": None}
    others = ['"True"', '"t"', '"1"', '""', '" true"', "true", "false", "1", '"truer"']
    assert read(pa.bool_(), Encoding("text"), *texts, *others) == [*texts.values(), *[reason] * len(others)]


def test_usual_values_of_every_encoding_are_read_together() -> None:
    cases: list[tuple[pa.DataType, Encoding, list[str]]] = [
        *((TIMESTAMP, Encoding(name), ["1700000000", "-1700000000", "0", "null"]) for name in list(UNITS)[:3]),
        (TIMESTAMP, Encoding("epoch_nanos"), ["1700000000000", "null"]),
        (LOCAL, Encoding("epoch_nanos", truncates=True), ["1700000000001", "-1"]),
        (DATE, Encoding("epoch_days"), ["20454", "-1", "null"]),
        (AMOUNT, Encoding("base64"), ['"BNI="', '"+w=="', '"AAAA"', "null"]),
        (WIDE, Encoding("base64"), ['"f/////////8="', '"gAAAAAAAAAA="']),
        (pa.int32(), Encoding("text"), ['"17"', '"-1"', "null"]),
        (AMOUNT, Encoding("text"), ['"12.34"', '"-5"', "null"]),
        (pa.float64(), Encoding("text"), ['"12.34"', '"-0"', "null"]),
        (pa.bool_(), Encoding("text"), ['"true"', '"false"', "null"]),
        (DATE, Encoding(infinity_is_null=True), ['"2026-01-01"', "null"]),
    ]
    for kind, encoding, texts in cases:
        assert read_together(kind, encoding, *texts) == [True] * len(texts), encoding


Made = tuple[str, Any]  # a JSON text, and the value or MALFORMED


def whole(random: Random, most: int) -> int:
    """A number of any length up to `most`, either side of 0."""
    return random.choice([1, -1]) * random.randrange(10 ** random.randint(1, len(str(most))))


def an_epoch(name: str, *, truncates: bool = False) -> Callable[[Random], Made]:
    def made(random: Random) -> Made:
        number = whole(random, int(LAST * 10**6 / TO_MICROS[name]))
        if random.random() < 0.7 and name == "epoch_nanos":
            number = number // 1000 * 1000
        micros = number * TO_MICROS[name]
        if micros.denominator != 1 and not truncates:
            return str(number), MALFORMED
        try:
            return str(number), datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=math.floor(micros))
        except OverflowError:
            return str(number), MALFORMED

    return made


def a_day(random: Random) -> Made:
    number = whole(random, 2932896)
    try:
        return str(number), date.fromordinal(719163 + number)
    except (ValueError, OverflowError):
        return str(number), MALFORMED


def exact(value: Fraction, kind: pa.DataType) -> Any:
    places = value * 10**kind.scale
    if places.denominator != 1 or abs(places) >= 10**kind.precision:
        return MALFORMED
    return value


def a_decimal(kind: pa.DataType) -> Callable[[Random], Made]:
    def made(random: Random) -> Made:
        data = random.randbytes(random.choice([1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17]))
        if random.random() < 0.5:
            data = random.choice([b"\0", b"\xff"]) * random.randint(0, 6) + data[: random.randint(1, 6)]
        number, text = int.from_bytes(data, "big", signed=True), base64.b64encode(data).decode()
        if random.random() < 0.3:
            scale = random.randint(-30, 30)
            return json.dumps({"scale": scale, "value": text}), exact(number * Fraction(10) ** -scale, kind)
        return f'"{text}"', exact(Fraction(number, 10**kind.scale), kind)

    return made


def a_number(kind: pa.DataType) -> Callable[[Random], Made]:
    def made(random: Random) -> Made:
        text = str(whole(random, 10 ** random.choice([3, 9, 20, 40])))
        if random.random() < 0.6:
            text += "." + "".join(random.choices("0123456789", k=random.choice([1, 2, 2, 3, 6, 20])))
        if random.random() < 0.2:
            text += random.choice("eE") + random.choice(["", "+", "-"]) + str(random.randrange(40))
        if random.random() < 0.1:
            at = random.randint(0, len(text))
            text = text[:at] + random.choice("0+-. e\u0663,") + text[at:]
        return f'"{text}"', number_in(text, kind)

    return made


def number_in(text: str, kind: pa.DataType) -> Any:
    """By Python's own parser of JSON."""
    refused = json.JSONDecoder(parse_int=lambda t: ("i", t), parse_float=lambda t: ("f", t))
    try:
        form, digits = refused.decode(text)
    except ValueError:
        return MALFORMED
    if digits != text or not text.isascii():
        return MALFORMED  # with spaces around it
    if pa.types.is_integer(kind):
        return int(digits) if form == "i" and -(2**63) <= int(digits) < 2**63 else MALFORMED
    if pa.types.is_floating(kind):
        double = float(digits)
        return MALFORMED if math.isinf(double) else double
    before, _, exponent = digits.lower().partition("e")
    if abs(int(exponent or "0")) > 1000:  # a fraction would have as many digits
        return MALFORMED if Fraction(before) else Fraction(0)
    return exact(Fraction(digits), kind)


MADE: dict[str, tuple[pa.DataType, Encoding, Callable[[Random], Made]]] = {
    **{name: (TIMESTAMP, Encoding(name), an_epoch(name)) for name in UNITS},
    "cut": (TIMESTAMP, Encoding("epoch_nanos", truncates=True), an_epoch("epoch_nanos", truncates=True)),
    "days": (DATE, Encoding("epoch_days"), a_day),
    "base64": (AMOUNT, Encoding("base64"), a_decimal(AMOUNT)),
    "wide base64": (WIDE, Encoding("base64"), a_decimal(WIDE)),
    "bigint": (pa.int64(), Encoding("text"), a_number(pa.int64())),
    "decimal": (AMOUNT, Encoding("text"), a_number(AMOUNT)),
    "wide decimal": (WIDE, Encoding("text"), a_number(WIDE)),
    "double": (pa.float64(), Encoding("text"), a_number(pa.float64())),
}


def shown(value: Any) -> str:
    """A 0 with its sign, a decimal without its scale, a time without the name of its zone."""
    if isinstance(value, datetime):
        return value.isoformat()
    return repr(Fraction(value) if isinstance(value, Decimal) else value)


@pytest.mark.parametrize("name", MADE)
def test_values_made_up_by_chance_are_what_python_makes_of_them(name: str) -> None:
    kind, encoding, make = MADE[name]
    random, good, left = Random(f"{name} 53"), 0, VALUES
    while left > 0:
        made = [make(random) for _ in range(min(left, AT_ONCE))]
        left -= len(made)
        for (text, wanted), found in zip(made, read(kind, encoding, *(text for text, _ in made)), strict=True):
            assert shown(MALFORMED if isinstance(found, str) else found) == shown(wanted), (text, found)
            good += wanted is not MALFORMED
    assert good > VALUES * 0.1, "most are good values, and some are not"
    assert good < VALUES


def test_an_encoding_of_one_column_leaves_the_others_as_they_are() -> None:
    """Two columns of one field, which is read one by one; a field that has the encoding's form and another type."""
    schema = pa.schema([("at", TIMESTAMP), ("raw", pa.int64()), ("s", pa.string())])
    fields = {"at": FieldOf("t", Encoding("epoch_millis")), "raw": FieldOf("t")}
    records = [b'{"t": 1000, "s": "1"}', b'{"t": 1e3, "s": 1.50}', b'{"t": null}']
    columns, why = JsonDecoder(schema, ["raw"], None, fields).decode_array(pa.array(records, pa.binary()))
    assert columns[0].to_pylist() == [utc("1970-01-01T00:00:01"), None, None]
    assert [column.to_pylist() for column in columns[1:]] == [[1000, None, None], ["1", None, None]]
    assert why == [
        None,
        "t: a number with a fraction or an exponent, not a whole number of milliseconds since 1970",
        "t: null or missing, and declared not null",
    ]


def test_a_text_beside_keeps_its_digits_though_no_column_needs_them() -> None:
    schema = pa.schema([("d", AMOUNT), ("s", pa.string())])
    columns, _ = JsonDecoder(schema, [], None, {"d": FieldOf("d", Encoding("text"))}).decode_values(
        [b'{"d": "1.50", "s": 1.50}']
    )
    assert [column.to_pylist() for column in columns] == [[Decimal("1.50")], ["1.50"]]
