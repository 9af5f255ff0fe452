"""A column of each of PostgreSQL's types that the connector reads, and random values of each, as SQL.

Not here: `xml` and `hstore`, which the wheel's PostgreSQL is built without.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Chance = Callable[[Random], str]  # gives an SQL expression of the column's type

MOODS = ("sad", "ok", "happy", 'it\'s {odd}, "quite"')
TOASTED = 3000  # characters or bytes that a row's page does not keep, stored without compression
SELDOM = 0.02  # of the values of a type that has ones which Spark or JSON cannot hold: each sets its row aside
TEXTS = (
    "",
    " ",
    "null",
    "a",
    "ab  ",
    "ünïcödé 日本語 😀",
    "line\nbreak\ttab",
    "quotes \" and ' and \\ back",
    "{curly, braces}",
    "\x7f\x01",
    "e\u0301",
    "NaN",
    "infinity",
    "0x1F",
)


@dataclass(frozen=True)
class Column:
    """A column. `toasted`: values are long, and stored beside the row."""

    name: str
    type: str
    chance: Chance
    required: bool = False
    toasted: bool = False


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def one_of(*values: str) -> Chance:
    return lambda chance: chance.choice(values)


def integer(bits: int) -> Chance:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def made(chance: Random) -> str:
        return f"({chance.choice([low, high, 0, -1, 1, chance.randint(low, high), chance.randint(-200, 200)])})"

    return made


def decimal(digits: int, scale: int) -> Chance:
    """Up to so many digits, `scale` of them behind the point, and the borders of their bytes."""

    def made(chance: Random) -> str:
        most = 10**digits - 1
        borders = [sign * (256**count // 2 + off) for count in range(1, 17) for sign in (1, -1) for off in (-1, 0, 1)]
        unscaled = chance.choice(
            [0, 1, -1, most, -most, chance.randint(-most, most), chance.choice([b for b in borders if abs(b) <= most])]
        )
        if scale == 0:
            return f"({unscaled})"
        whole, rest = divmod(abs(unscaled), 10**scale)
        return f"({'-' if unscaled < 0 else ''}{whole}.{rest:0{scale}})"

    return made


def any_decimal(chance: Random) -> str:
    """Of any scale, with zeros at the end among them; some that no decimal of 38 digits with ten behind the point holds."""
    return decimal(chance.randint(15, 28), 12 if chance.random() < SELDOM else chance.choice([0, 1, 3, 9, 10]))(chance)


def floating(kind: str, *borders: str) -> Chance:
    """Any number of the type, NaN and the infinities among them."""
    borders = ("0", "-0", "1e-7", "0.1", *borders)

    def made(chance: Random) -> str:
        choice = chance.random()
        if choice < SELDOM:
            value = chance.choice(["NaN", "Infinity", "-Infinity"])
        else:
            value = chance.choice(borders) if choice < 0.4 else repr(chance.uniform(-1e6, 1e6))
        return f"'{value}'::{kind}"

    return made


def texts(length: int | None = None) -> Chance:
    def made(chance: Random) -> str:
        value = chance.choice(TEXTS) if chance.random() < 0.6 else f"random {chance.getrandbits(64)}"
        return text(value[:length])

    return made


def bytes_(least: int, most: int) -> Chance:
    return lambda chance: rf"'\x{chance.randbytes(chance.randint(least, most)).hex()}'::bytea"


def date_of(year: int, chance: Random) -> str:
    return f"{year:04}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"


def time_of_day(chance: Random) -> str:
    hour, minute, second = chance.randrange(24), chance.randrange(60), chance.randrange(60)
    return f"{hour:02}:{minute:02}:{second:02}.{chance.randrange(10**6):06}"


def moment(kind: str, digits: int | None, *rare: str) -> Chance:
    """A time with so many digits behind the second (six if None), before 1970 too, and seldom one of `rare`."""
    near = (
        *("1969-12-31 23:59:59.999999", "1970-01-01", "1900-02-28 00:00:00.000001", "0001-01-01"),
        "9999-12-30 23:59:59.999999",
    )
    cast = kind if digits is None else f"{kind}({digits})"

    def made(chance: Random) -> str:
        choice = chance.random()
        if choice < 0.25:
            return f"'{chance.choice(rare or near) if choice < SELDOM else chance.choice(near)}'::{cast}"
        zone = chance.choice(["Z", "+05:30", "-11", "+00"]) if kind == "timestamptz" else ""
        year = chance.choice([chance.randint(2, 9998), chance.randint(1900, 2100)])
        return f"'{date_of(year, chance)} {time_of_day(chance)}{zone}'::{cast}"

    return made


def day(chance: Random) -> str:
    if chance.random() < SELDOM:
        value = chance.choice(["infinity", "-infinity", "0044-03-15 BC", "12345-06-07", "5874897-12-31"])
    else:
        value = date_of(chance.choice([1, 1582, 1969, 1970, 9999, chance.randint(1, 9999)]), chance)
    return f"'{value}'::date"


def clock(chance: Random) -> str:
    return f"'{chance.choice(['00:00', '24:00', '23:59:59.999999', *[time_of_day(chance)] * 4])}'::time"


def clock_with_zone(chance: Random) -> str:
    return f"'{time_of_day(chance)}{chance.choice(['Z', '+05:30', '-08', '+14'])}'::timetz"


def span(chance: Random) -> str:
    """Without months, whose length the connector guesses. It counts seconds in a double, so they are of sixty-fourths."""
    days, parts = chance.randint(-500, 500), chance.randint(-(10**8), 10**8)
    return f"make_interval(days => {days}, secs => {parts} / 64.0)"


def identifier(chance: Random) -> str:
    return f"'{uuid.UUID(int=chance.getrandbits(128))}'::uuid"


def document(kind: str) -> Chance:
    some = ("{}", "null", '"text"', "12.50", "[1, null, 2]", '{"a": {"b": [1, 2.50, "ü"]}}', '{ "spaced" :  1 }')

    def made(chance: Random) -> str:
        number = f'{{"n": {chance.randint(-(10**18), 10**18)}}}'
        return f"{text(chance.choice([*some, number]))}::{kind}"

    return made


def host(chance: Random) -> str:
    some = f"172.16.{chance.randrange(256)}.{chance.randrange(256)}"
    return f"'{chance.choice(['10.1.2.3', '192.168.0.1/24', '::1', '2001:db8::1/64', some])}'::inet"


def mac(count: int) -> Chance:
    return lambda chance: f"'{chance.randbytes(count).hex(':')}'::macaddr{8 if count == 8 else ''}"


def bits(least: int, most: int, kind: str) -> Chance:
    return lambda chance: f"B'{''.join(chance.choice('01') for _ in range(chance.randint(least, most)))}'::{kind}"


def array(of: Chance, kind: str, least: int = 0, most: int = 4) -> Chance:
    def made(chance: Random) -> str:
        items = [of(chance) if chance.random() < 0.85 else "NULL" for _ in range(chance.randint(least, most))]
        return f"ARRAY[{', '.join(items)}]::{kind}[]"

    return made


def long_text(chance: Random) -> str:
    return text("".join(chance.choices("abcdefghij ü'", k=chance.randint(TOASTED, TOASTED + 500))))


def range_of(kind: str, low: Chance, high: Chance) -> Chance:
    def made(chance: Random) -> str:
        bounds = chance.choice(["[)", "[]", "(]", "()"])
        return chance.choice(
            [
                f"'empty'::{kind}",
                f"{kind}({low(chance)}, {high(chance)}, '{bounds}')",
                f"{kind}(NULL, {high(chance)})",
                f"{kind}(NULL, NULL)",
            ]
        )

    return made


def small(low: int, high: int) -> Chance:
    return lambda chance: f"({chance.randint(low, high)})"


YES = one_of("true", "false")
FAR = ("infinity", "-infinity", "0044-03-15 12:00:00 BC", "20000-01-02 03:04:05")
COLUMNS = (
    Column("small", "smallint", integer(16)),
    Column("whole", "integer", integer(32)),
    Column("big", "bigint", integer(64)),
    Column("cents", "numeric(12,2)", decimal(12, 2)),
    Column("exact", "numeric(38,10)", decimal(38, 10)),
    Column("loose", "numeric", any_decimal),
    Column("tiny", "real", floating("real", "3.4028235e38", "1e-45", "16777217")),
    Column("wide", "double precision", floating("float8", "1.7976931348623157e308", "5e-324", "9007199254740993")),
    Column("yes", "boolean", YES),
    Column("words", "text", texts()),
    Column("short", "varchar(20)", texts(20)),
    Column("padded", "char(5)", texts(5)),
    Column("raw", "bytea", bytes_(0, 12)),
    Column("day", "date", day),
    Column("clock", "time", clock),
    Column("clock_zone", "timetz", clock_with_zone),
    Column("second", "timestamp(0)", moment("timestamp", 0, *FAR)),
    Column("milli", "timestamp(3)", moment("timestamp", 3, *FAR)),
    Column("micro", "timestamp", moment("timestamp", None, *FAR)),
    Column("instant", "timestamptz", moment("timestamptz", None, *FAR)),
    Column("span", "interval", span),
    Column("ident", "uuid", identifier),
    Column("mood", "mood", one_of(*(f"{text(mood)}::mood" for mood in MOODS))),
    Column("doc", "json", document("json")),
    Column("docb", "jsonb", document("jsonb")),
    Column("host", "inet", host),
    Column("net", "cidr", lambda chance: f"'10.{chance.randrange(256)}.0.0/16'::cidr"),
    Column("mac", "macaddr", mac(6)),
    Column("mac8", "macaddr8", mac(8)),
    Column("price", "money", lambda chance: f"({chance.randint(-(10**12), 10**12)}::numeric / 100)::money"),
    Column("flag", "bit(1)", bits(1, 1, "bit(1)")),
    Column("mask", "bit(12)", bits(12, 12, "bit(12)")),
    Column("any_bits", "bit varying(20)", bits(1, 20, "varbit(20)")),
    Column("names", "text[]", array(texts(), "text")),
    Column("counts", "integer[]", array(integer(32), "integer")),
    Column("ids", "uuid[]", array(identifier, "uuid")),
    Column("spot", "point", lambda chance: f"point({chance.uniform(-180, 180)!r}, {chance.randint(-90, 90)})"),
    Column("ints", "int4range", range_of("int4range", small(-50, 0), small(1, 50))),
    Column("nums", "numrange", range_of("numrange", small(-50, 0), small(1, 50))),
    Column("days", "daterange", range_of("daterange", lambda _: "'2020-01-01'::date", lambda _: "'2021-01-01'::date")),
    Column("big_text", "text", long_text, toasted=True),
    Column("big_raw", "bytea", bytes_(TOASTED, TOASTED + 500), toasted=True),
    Column("big_names", "text[]", array(long_text, "text", 1, 2), toasted=True),
    Column("big_counts", "integer[]", array(integer(32), "integer", 900, 1000), toasted=True),
    Column("big_ids", "uuid[]", array(identifier, "uuid", 150, 170), toasted=True),
    Column("big_doc", "jsonb", lambda chance: f"jsonb_build_object('long', {long_text(chance)})", toasted=True),
    Column("must_count", "integer", integer(32), required=True),
    Column("must_cents", "numeric(12,2)", decimal(12, 2), required=True),
    Column("must_words", "text", texts(), required=True),
    Column("must_raw", "bytea", bytes_(0, 12), required=True),
    Column("must_instant", "timestamptz", moment("timestamptz", None), required=True),
    Column("must_ident", "uuid", identifier, required=True),
    Column("must_names", "text[]", array(texts(), "text"), required=True),
)
BY_NAME = {column.name: column for column in COLUMNS}


def random_value(column: Column, chance: Random) -> str:
    """An SQL expression: a value of the column, or null now and then where it may be."""
    return "NULL" if not column.required and chance.random() < 0.12 else column.chance(chance)
