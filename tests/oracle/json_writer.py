"""Generated JSON records for a schema: values that fit, values at the edges, values that do not, and broken texts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa

UTC_TIME, PLAIN_TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
LEAVES: dict[str, pa.DataType] = {
    "i8": pa.int8(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "dec": pa.decimal128(5, 2),
    "wide": pa.decimal128(38, 10),
    "s": pa.string(),
    "b": pa.binary(),
    "ok": pa.bool_(),
    "day": pa.date32(),
    "t": UTC_TIME,
    "ntz": PLAIN_TIME,
}
STRUCT = pa.struct(list(LEAVES.items()))
SCHEMA = pa.schema(
    [
        *LEAVES.items(),
        *((f"list_{name}", pa.list_(kind)) for name, kind in LEAVES.items()),
        *((f"map_{name}", pa.map_(pa.string(), kind)) for name, kind in LEAVES.items()),
        ("st", STRUCT),
        ("deep", pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(STRUCT)))]))),
    ]
)
# Whatever the field's type: what a producer, or somebody with bad intentions, may have put there.
ANYTHING = [
    *("0", "-0", "5", "-1", "127", "128", "-128", "-129", "32767", "32768", "2147483647", "2147483648", "200", "1.0", "1e2"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "12345678901234567890123456", "1" + "0" * 400),
    *("1.10", "-0.0", "0.1", "999.99", "999.995", "1000", "1e3", "1E-2", "1.5e-7", "1e400", "-1e400", "1e-400", "1e38", "1e39"),
    *("16777217", "16777217.0000000001", "3.4028235e38", "3.4028236e38", "1.7976931348623157e308", "1.7976931348623159e308"),
    *("4.9e-324", "2e-324", "1.401298464324817e-45", "7e-46", "0.00", "0e10", "1234567890123456789012345678.0123456789"),
    *("1234567890123456789012345678.01234567891", "99999999999999999999999999999", "9007199254740993", "1.00000017881393432617"),
    *("true", "false", "null", '""', '" "', '"5"', '"1.5"', '"true"', '"1,234.5"', '"NaN"', '"Infinity"', '"null"'),
    *('"2024-02-29"', '"2023-02-29"', '"2024-02-29 junk"', '"2024"', '"2024-02"', '"2024-2-9"', '"24-02-29"', '"20240229"'),
    *('"2024-W01-1"', '"2024-060"', '"+2024-02-29"', '"0000-01-01"', '"0001-01-01"', '"9999-12-31"', '"10000-01-01"', '"now"'),
    *('"2024-13-01"', '"2024-00-10"', '"2024-02-29T"', '"2024-02-29Z"', '"12:00"', '"T12:00:00"', '"epoch"', '"\\u0031:00"'),
    *('"2024-02-29T12:00"', '"2024-02-29 12:00:01"', '"2024-02-29T12"', '"2024-02-29T24:00:00"', '"2024-02-29T23:59:60Z"'),
    *('"2024-02-29T12:00:00Z"', '"2024-02-29T12:00:00.1Z"', '"2024-02-29T12:00:00.123456+01:00"'),
    *('"2024-02-29T12:00:00.1234567Z"', '"2024-02-29T12:00:00.00000000Z"'),
    *('"2024-02-29T12:00:00.123456000Z"', '"2024-02-29T12:00:00,5Z"', '"2024-02-29T12:00:00.Z"', '"2024-02-29T12:00:00+0130"'),
    *('"2024-02-29T12:00:00-18"', '"2024-02-29T12:00:00+19:00"', '"2024-02-29T12:00:00+01:60"', '"2024-02-29T12:00:00+1:00"'),
    *('"2024-02-29T12:00:00 Z"', '"2024-02-29T12:00:00Europe/Vienna"', '"2024-02-29T12:00:00[UTC]"', '"2024-02-29t12:00:00z"'),
    *('"0001-01-01T00:00:00Z"', '"0001-01-01T00:00:00+01:00"', '"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59-01:00"'),
    *('"\\u0662024-02-29"', '"\uff12024-02-29"', '" 2024-02-29"', '"2024-02-29\\n"', '"1969-12-31T23:59:59.999999Z"'),
    *('"AP8="', '"AP8"', '"AP9="', '"!"', '"QQ=="', '"QR=="', '"Q Q=="', '"QQ==QQ=="', '"QUJD"', '"QUJD\\n"', '"-_8="', '"="'),
    *("[]", "[[]]", "{}", "[1, null]", '{"a" : 1.10}', '{"a":1,"a":2}', '{"a":{"b":[1,{"c":1,"c":2}]}}', '[ {"x" : "\\u00e9"} ]'),
    *('"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00"', '"\\ude00\\ud83d"', '"\\\\ud83d"', '"\\\\\\ud83d"', '"\\ud83d\\\\\\ude00"'),
    *('"\\u0000"', '"\\u0001\\n\\t\\"\\/"', '"\\x"', '"\\u12"', '"a\nb"', '"\x01"', '"\x7f\u2028\U0001f600"', '{"\\ud83d":1}'),
    *("NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "0x1", "1_000", "--1", "-", "1e", "tru", "True", "'a'", "\u0661"),
    # The edges of what a type holds, and of what a library that converts may hold.
    *("1e-39", "1e-40", "1e-41", "1e-50000000", "1e50000000", "1e-99999999999999999999", "0e999999999"),
    *("-0e99999999999999999999", "0.00E-99999999999999999999", "1" + "0" * 50 + "e-49", "0." + "0" * 60, f"0.{'0' * 40}1"),
    *("9" * 38, "9" * 39, "1" + "0" * 38, f"0.{'9' * 38}", "1e27", "1e28", "1e29", "-1e99999999999999999999"),
    *(f"-{'9' * 28}.{'9' * 10}", "0.01e-1", "1000e-3"),
    *(str(2**128 - 2**103 - 1), str(2**128 - 2**103), f"{2**128 - 2**103 - 1}.9", f"-{2**128 - 2**103 - 1}.9"),
    *(f"{2**128 - 2**103}e0",),
    *(str(2**1024 - 2**970 - 1), str(2**1024 - 2**970), f"-{2**1024 - 2**970 - 1}.9", str(2.0**-150), f"{2.0**-150}000000001e0"),
    *('"0004-02-29"', '"1900-02-29"', '"2000-02-29"', '"2024-04-31"', '"2024-06-30"', '"2024-00-01"', '"2024-01-00"'),
    *('"0000-12-31T23:30:00-01:00"', '"0000-12-31 23:59-00:01"', '"0001-01-01T00:00-00:01"', '"0001-01-01T18:59+18:59"'),
    *('"0001-01-01T18:58+18:59"', '"9999-12-31T23:59:59.9999990+00:00"', '"9999-12-31T23:59:59.999999-00:01"'),
    *('"9999-12-31T05:00-18:59"', '"2024-02-29T12:00-18:59"', '"2024-02-29T12:60Z"', '"2024-02-29T12:00:00.000001+18"'),
    *("[1,]", "[,1]", '{"a":1,}', '{"a"}', "{1:2}", "[1 2]", "/**/1", "1//", "", "1}", "]", '{"a":1,"\\u0061":2}'),
]  # fmt: skip


def generate(random: Random, schema: pa.Schema = SCHEMA) -> bytes:
    """One record: mostly with a few fields that fit, sometimes with one that may not, sometimes broken as a text."""
    names = random.sample(schema.names, random.randint(0, 6))
    pairs = [(name, _fitting(random, schema.field(name).type)) for name in names]
    if random.random() < 0.3:
        pairs.append((f"unknown{random.randint(0, 9)}", random.choice(ANYTHING)))
    if random.random() < 0.5 and pairs:
        at = random.randrange(len(pairs))
        pairs[at] = (pairs[at][0], _unfit(random, pairs[at][1]))
    if random.random() < 0.05 and pairs:
        pairs.append(random.choice(pairs))
    random.shuffle(pairs)
    text = _object(random, pairs)
    return _broken(random, text.encode("utf-8")) if random.random() < 0.1 else text.encode("utf-8")


def _blank(random: Random) -> str:
    return random.choice(["", "", "", " ", "\n", " \t\r\n"])


def _object(random: Random, pairs: list[tuple[str, str]]) -> str:
    between = [f"{_name(random, n)}{_blank(random)}:{_blank(random)}{v}{_blank(random)}" for n, v in pairs]
    return "{" + ",".join(between) + "}"


def _name(random: Random, name: str) -> str:
    if random.random() < 0.05 and name:
        return f'"\\u{ord(name[0]):04x}{name[1:]}"'
    return json.dumps(name)


def _unfit(random: Random, text: str) -> str:
    """Something else in its place, or somewhere within it."""
    at = [i for i, c in enumerate(text) if c in ":[,"]
    if at and random.random() < 0.7:
        cut = random.choice(at) + 1
        return text[:cut] + random.choice(ANYTHING) + random.choice(["", ","]) + text[cut:]
    return random.choice(ANYTHING)


def _broken(random: Random, value: bytes) -> bytes:
    at = random.randint(0, len(value))
    junk = [
        b"",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"\xef\xbb\xbf",
        b"\x00",
        b"{}",
        b",",
        b'"',
        b"\\",
        b"}",
        b"]",
        b" ",
        b"\xc2\xa0",
    ]
    return value[:at] + random.choice(junk) + value[at + random.choice([0, 0, 1]) :]  # fmt: skip


def _fitting(random: Random, kind: pa.DataType) -> str:
    if random.random() < 0.05:
        return "null"
    if pa.types.is_struct(kind):
        fields = random.sample(list(kind), random.randint(0, min(4, kind.num_fields)))
        return _object(random, [(f.name, _fitting(random, f.type)) for f in fields])
    if pa.types.is_map(kind):
        keys = random.sample(["", "a", "b c", "\u00e9", '"', "\U0001f600", "\0"], random.randint(0, 3))
        return _object(random, [(key, _fitting(random, kind.item_type)) for key in keys])
    if pa.types.is_list(kind):
        items = [_fitting(random, kind.value_type) for _ in range(random.randint(0, 3))]
        return f"[{_blank(random)}" + f"{_blank(random)},".join(items) + "]"
    return next(make for is_it, make in MAKERS if is_it(kind))(random, kind)


def _integer(random: Random, kind: pa.DataType) -> str:
    edge = 1 << (kind.bit_width - 1)
    return str(random.choice([0, 5, -5, edge - 1, -edge, random.randrange(-edge, edge)]))


def _decimal(random: Random, kind: pa.DataType) -> str:
    whole = "9" * random.randint(1, kind.precision - kind.scale)
    part = "".join(random.choices("0123456789", k=random.randint(0, kind.scale)))
    return random.choice(["", "-"]) + whole + (f".{part}" if part else "") + random.choice(["", "", "e0"])


def _real(random: Random, kind: pa.DataType) -> str:
    limit = 30 if kind.bit_width == 32 else 290
    digits = "".join(random.choices("0123456789", k=random.randint(1, 40)))
    exponent = random.choice(["", f"e{random.randint(-limit, limit)}", f"E+{random.randint(0, limit)}"])
    return f"{random.choice(['', '-'])}{random.randint(0, 9)}.{digits}{exponent}"


def _text(random: Random, kind: pa.DataType) -> str:
    text = "".join(random.choices('ab"\\/\b\n\0\u00e9\u2028\U0001f600 1', k=random.randint(0, 8)))
    return json.dumps(text, ensure_ascii=random.random() < 0.5)


def _moment(random: Random, kind: pa.DataType) -> str:
    r = random.randint
    day = f"{r(2, 9998):04}-{r(1, 12):02}-{r(1, 28):02}"
    if random.random() < 0.1:
        return f'"{day}"'
    second = random.choice(["", f":{r(0, 59):02}", f":{r(0, 59):02}.{r(0, 999_999):06}", f":{r(0, 59):02}.{r(0, 9)}"])
    zone = random.choice(["", "Z", "z", "+00:00", "-18:00", f"+{r(0, 17):02}:{r(0, 59):02}", "+0530", "-03"])
    return f'"{day}{random.choice("T t")}{r(0, 23):02}:{r(0, 59):02}{second}{zone if kind.tz else ""}"'


MAKERS: list[tuple[Callable[[pa.DataType], bool], Callable[[Random, Any], str]]] = [
    (pa.types.is_integer, _integer),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_floating, _real),
    (pa.types.is_string, _text),
    (pa.types.is_boolean, lambda random, _: random.choice(["true", "false"])),
    (pa.types.is_binary, lambda random, _: json.dumps(base64.b64encode(random.randbytes(random.randint(0, 9))).decode())),
    (pa.types.is_date, lambda random, _: f'"{random.randint(1, 9999):04}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"'),
    (pa.types.is_timestamp, _moment),
]  # fmt: skip
