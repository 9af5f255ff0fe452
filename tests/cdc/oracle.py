"""What the database says of a published history and of a current table. Both are compared in PostgreSQL, as its own texts.

A connector that was killed tells some changes again, and a reader sees these again, too: a change is known by its place in the
log, its operation and its key. Of each key, the published changes in the order of the log have to be those of the history that
the database kept. The current table has to be the database's table itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from .database import KEYED, Database
from .every_type import COLUMNS

NAMES = [column.name for column in COLUMNS]
OPERATIONS = {"c": "create", "r": "read", "u": "update", "d": "delete"}
YEARS = "({0} >= '0001-01-01' and {0} < '10000-01-01')"
NO_NUMBER = "({0})::text in ('NaN', 'Infinity', '-Infinity')"
TEXT = "case when {0} is not null then format('%s', {0}) end"  # as the type's output function has it
# Bits as a number's bytes, the lowest first, without the last ones that are 0.
NUMBER_OF = "lpad({0}::text, 24, '0')::bit(24)::int"
BYTE = "lpad(to_hex((" + NUMBER_OF + " >> {1}) & 255), 2, '0')"
BITS = "regexp_replace(" + " || ".join(BYTE.replace("{1}", str(shift)) for shift in (0, 8, 16)) + ", '(00)+$', '')"


@dataclass(frozen=True)
class Expected:
    """Of a column: its published value and its value in the history, as texts to compare. {0} is the value.

    Under the condition `unfit` the value cannot be read, so its record is malformed. So it is under `infinite`, unless the
    pipeline reads the column's infinities as null.
    """

    published: str = "{0}::text"
    kept: str = "{0}::text"
    unfit: str = "false"
    infinite: str = "false"


BYTES = Expected("encode({0}, 'hex')", "encode({0}, 'hex')")
AS_TEXT = Expected(kept=TEXT)
LIST = Expected(kept="to_jsonb({0})::text")
NUMBER = Expected(infinite=NO_NUMBER)
MOMENT = Expected(unfit=f"isfinite({{0}}) and not {YEARS}", infinite="not isfinite({0})")
# What is not here is compared as it is.
EXPECTED = {
    "loose": Expected(kept="{0}::numeric(38,10)::text", unfit="{0} <> round({0}, 10) or abs({0}) >= 1e28"),
    "tiny": NUMBER,
    "wide": NUMBER,
    **dict.fromkeys(("padded", "doc", "docb", "big_doc", "mood", "ident", "host", "net", "mac", "mac8"), AS_TEXT),
    **dict.fromkeys(("ints", "nums", "days", "must_ident"), AS_TEXT),
    **dict.fromkeys(("raw", "big_raw", "must_raw"), BYTES),
    **dict.fromkeys(("day", "second", "milli", "micro", "instant", "must_instant"), MOMENT),
    "clock": Expected(kept="(extract(epoch from {0}) * 1000000)::bigint::text"),
    "clock_zone": Expected(kept="({0} at time zone 'UTC')::time::text || 'Z'"),
    "span": Expected(kept="(extract(epoch from {0}) * 1000000)::bigint::text"),
    "price": Expected(kept="{0}::numeric(19,2)::text"),
    "flag": Expected(kept="({0} = B'1')::text"),
    **dict.fromkeys(("mask", "any_bits"), Expected("encode({0}, 'hex')", BITS)),
    **dict.fromkeys(("names", "counts", "ids", "big_names", "big_counts", "big_ids", "must_names"), LIST),
    "spot": Expected("({0}->>'x')::float8 || ' ' || ({0}->>'y')::float8", "{0}[0] || ' ' || {0}[1]"),
}
# Without the whole old row in the log, a deletion tells its key alone. The connector makes up the columns that may not be null.
MADE_UP = {
    "must_count": "0",
    "must_cents": "0.00",
    "must_words": "",
    "must_raw": "",
    "must_instant": "1970-01-01 00:00:00+00",
    "must_ident": "",
    "must_names": "[]",
}


def expected(name: str) -> Expected:
    return EXPECTED.get(name, Expected())


def differences(database: Database, table: str, published: str, nulls: Collection[str]) -> list[str]:
    """Where a published history of a table is not the database's own; all of both is compared.

    `published` has the row's columns, and `op`, `lsn` and `place` (the offset). `nulls` are the columns whose infinities are
    read as null.
    """
    word = " ".join(f"when '{letter}' then '{word}'" for letter, word in OPERATIONS.items())
    rows = database.run(f"""
        with once as (
          select distinct on (case op when 'read' then null else lsn end, op, id) * from {published}
          order by case op when 'read' then null else lsn end, op, id, place
        ), a as (
          select id, op, row_number() over (partition by id order by lsn, place) as nth, {_published()} from once p
        ), b as (
          select id, case op {word} end as op, row_number() over (partition by id order by seq) as nth, {_told(table, nulls)}
          from history h where source = '{table}' and op <> 't' and not {_unfit(table, nulls)}
        )
        select id, nth, {_difference("op", *NAMES)} from a full join b using (id, nth)
        where {_differ("op", *NAMES)} order by id, nth limit 20
    """)
    return [f"change {nth} of id {number} {what}" for number, nth, what in rows]


def current_differences(database: Database, table: str, current: str, nulls: Collection[str]) -> list[str]:
    """Where a current table is not the database's table as it is now. No newest change of a key may be unreadable.

    `nulls` are the columns whose infinities are read as null.
    """
    ours = ", ".join(f"{_kept(name, f's.{name}', nulls)} as {name}" for name in NAMES)
    rows = database.run(f"""
        with a as (select id, {_published()} from {current} p), b as (select id, {ours} from {table} s)
        select id, {_difference(*NAMES)} from a full join b using (id) where {_differ(*NAMES)} order by id limit 20
    """)
    return [f"row of id {number} {what}" for number, what in rows]


def newest_differences(database: Database, published: str, current: str) -> list[int]:
    """The keys whose row in a current table is not, to the last bit, the newest one of the published history."""
    columns = ("op", "lsn", "place", *NAMES)
    rows = database.run(f"""
        with newest as (select distinct on (id) * from {published} order by id, fencepost_interval desc, place desc),
        a as (select * from newest where not gone)
        select id from a full join {current} b using (id)
        where a.id is null or b.id is null or row({_all("a", columns)})::record *<> row({_all("b", columns)})::record
    """)
    return [number for (number,) in rows]


def unfit_changes(database: Database, table: str, nulls: Collection[str]) -> Counter[tuple[int, str]]:
    """How often each change, by key and operation, cannot be read: its record is malformed."""
    rows = database.run(
        f"select id, op from history h where source = '{table}' and op <> 't' and {_unfit(table, nulls)}"
    )
    return Counter((number, op) for number, op in rows)


def unread_keys(database: Database, table: str, nulls: Collection[str]) -> list[tuple[int, str]]:
    """The keys whose newest change cannot be read, each with that change's operation."""
    return database.run(f"""
        select id, op from (
          select distinct on (id) id, op, {_unfit(table, nulls)} as unfit from history h
          where source = '{table}' and op <> 't' order by id, seq desc
        ) newest where unfit order by id
    """)


def _published() -> str:
    """The columns of a published row `p`, as texts."""
    return ", ".join(f"({expected(name).published.format(f'p.{name}')})::text as {name}" for name in NAMES)


def _told(table: str, nulls: Collection[str]) -> str:
    """The columns of a change `h` of the history, as the connector tells of it, as texts."""
    return ", ".join(f"{_told_value(table, name, _kept(name, f'(h.was).{name}', nulls))} as {name}" for name in NAMES)


def _told_value(table: str, name: str, kept: str) -> str:
    made_up = f"else '{MADE_UP[name]}'" if name in MADE_UP else ""
    return f"case when op <> 'd' then {kept} {made_up} end" if table == KEYED else kept


def _kept(name: str, value: str, nulls: Collection[str]) -> str:
    kept = f"({expected(name).kept.format(value)})::text"
    return f"case when {expected(name).infinite.format(value)} then null else {kept} end" if name in nulls else kept


def _unfit(table: str, nulls: Collection[str]) -> str:
    found = [f"coalesce({expected(name).unfit.format(f'(h.was).{name}')}, false)" for name in NAMES]
    found += [
        f"coalesce({expected(name).infinite.format(f'(h.was).{name}')}, false)" for name in NAMES if name not in nulls
    ]
    conditions = " or ".join(found)
    return (
        f"(op <> 'd' and (coalesce(unsent, '{{}}') <> '{{}}' or {conditions}))" if table == KEYED else f"({conditions})"
    )


def _difference(*names: str) -> str:
    """What is different between a published row `a` and one `b` of the database's."""
    told = ", ".join(f"case when a.{n} is distinct from b.{n} then '{n}: {_says(n)} end" for n in names)
    return (
        f"case when a.id is null then 'is missing' when b.id is null then 'is too much' "
        f"else nullif(array_to_string(array[{told}], '; '), '') end"
    )


def _differ(*names: str) -> str:
    return f"a.id is null or b.id is null or ({_all('a', names)}) is distinct from ({_all('b', names)})"


def _says(name: str) -> str:
    published, kept = (f"coalesce(left({side}.{name}, 60), 'null')" for side in "ab")
    return f"published ' || {published} || ', kept ' || {kept}"


def _all(side: str, names: Iterable[str]) -> str:
    return ", ".join(f"{side}.{name}" for name in names)
