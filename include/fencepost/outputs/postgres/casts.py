"""Decides how values get into a column of a type that is not exactly their own, and which values the column cannot hold.
Pure.

Such values are copied into a temporary table as they are, checked there, and converted by the server. A value is cast to
the type without its modifier. The server applies the modifier when it assigns the value: an explicit cast to varchar(3)
would cut the text without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import types as t

from fencepost.outputs.postgres.identifiers import quoted

MOMENT, TEXT, VARCHAR = "timestamp with time zone", "text", "character varying"
ENUM = "enum"
CHECKED = ("uuid", "inet", "cidr", "json", "jsonb", ENUM)  # whose text the server may refuse
LENGTH_OFFSET = 4  # a modifier of varchar is the length and 4
# In the text of JSON: the number -0 with what follows it, and a text, which may hold what looks like a number.
MINUS_ZERO = r"E'-0(\\.0+)?([eE][-+]?[0-9]+)?[[:space:]]*(,|]|}|$)'"
JSON_TEXT = r"""E'"([^"\\\\]|\\\\.)*"'"""
# The type below the domains of each column of the table $1, and of an array the type below the domains of its elements.
BASE_TYPES = """WITH RECURSIVE under (
    number, oid, modifier, depth, is_array, domain, element_domain, not_null, elements_not_null
) AS (
    SELECT attnum, atttypid, atttypmod, 0, false, 0::oid, 0::oid, false, false FROM pg_catalog.pg_attribute
    WHERE attrelid = $1::bigint::oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT number, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
        CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE modifier END, depth + 1, is_array OR t.typtype <> 'd',
        CASE WHEN domain = 0 AND NOT is_array AND t.typtype = 'd' THEN t.oid ELSE domain END,
        CASE WHEN element_domain = 0 AND is_array THEN t.oid ELSE element_domain END,
        not_null OR (NOT is_array AND t.typnotnull), elements_not_null OR (is_array AND t.typnotnull)
    FROM under JOIN pg_catalog.pg_type AS t ON t.oid = under.oid
    WHERE t.typtype = 'd' OR (NOT is_array AND t.typsubscript = 'pg_catalog.array_subscript_handler'::regproc)
), named (oid, name) AS (
    SELECT t.oid, format('%I.%I', n.nspname, t.typname) FROM pg_catalog.pg_type AS t
    JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace
)
SELECT DISTINCT ON (number) a.attname::text,
    CASE WHEN t.typtype = 'e' THEN 'enum' WHEN t.typnamespace = 'pg_catalog'::regnamespace
        THEN format_type(t.oid, NULL) ELSE '' END,
    element.name, coalesce(whole.name, ''), under.modifier, is_array, coalesce(of.name, ''), coalesce(of_elements.name, ''),
    not_null, elements_not_null
FROM under JOIN pg_catalog.pg_type AS t ON t.oid = under.oid JOIN named AS element ON element.oid = t.oid
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = $1::bigint::oid AND a.attnum = number
LEFT JOIN named AS whole ON whole.oid = CASE WHEN is_array THEN t.typarray ELSE t.oid END
LEFT JOIN named AS of ON of.oid = domain LEFT JOIN named AS of_elements ON of_elements.oid = element_domain
ORDER BY number, depth DESC"""


@dataclass(frozen=True)
class BaseType:
    """The type of a column below its domains. Of an array it is the type of the elements, below their domains.

    `kind` is the name of a type of the server's own without a modifier, `enum`, or empty for other types. `element` and
    `whole` are quoted names: of that type, and of the column's type, which for an array is the array. `modifier` is the
    server's number, and -1 if there is none. `domain` and `element_domain` are the quoted names of domains, and empty if
    there are none.
    """

    kind: str
    element: str
    whole: str
    modifier: int = -1
    is_array: bool = False
    domain: str = ""
    element_domain: str = ""
    not_null: bool = False
    elements_not_null: bool = False


@dataclass(frozen=True)
class CastCheck:
    """A reason against a value. `fails` is the SQL condition that a wrong value fulfils. `what` describes such values."""

    fails: str
    what: str


@dataclass(frozen=True)
class Cast:
    """How values get into a column. `copied` is the type in which the driver copies them. `value` is the SQL expression
    that converts them.
    """

    name: str
    copied: str
    value: str
    checks: tuple[CastCheck, ...]


def cast_of(name: str, base: BaseType | None, kind: t.DataType) -> Cast | None:
    """Returns how values of this Spark type get into the column of this name, or None if they cannot be converted. It
    does not ask whether the column holds such values without a conversion.
    """
    is_list = isinstance(kind, t.ArrayType)
    of = kind.elementType if isinstance(kind, t.ArrayType) else kind
    if base is None or base.is_array is not is_list:
        return None
    if isinstance(of, t.StringType) and base.kind in (TEXT, VARCHAR, *CHECKED):
        copied = TEXT
    elif isinstance(of, t.TimestampType) and base.kind == MOMENT and not (base.domain or base.element_domain):
        copied = MOMENT
    else:
        return None
    column = quoted(name)
    if is_list:
        of_elements = _checks(base, "u.e", base.element_domain, not_null=base.elements_not_null)
        any_of = f"EXISTS (SELECT 1 FROM unnest({column}) AS u (e) WHERE "
        checks = [CastCheck(f"{any_of}{one.fails})", f"arrays with {one.what}") for one in of_elements]
        checks += _of_domain(f"{column}::text", base.domain, not_null=base.not_null)
    else:
        checks = list(_checks(base, column, base.domain, not_null=base.not_null))
    return Cast(name, f"{copied}[]" if is_list else copied, f"{column}::{base.whole}", tuple(checks))


def _checks(base: BaseType, value: str, domain: str, *, not_null: bool) -> Iterator[CastCheck]:
    """Yields the checks of one value, or of one element."""
    if base.kind in CHECKED:
        shown = f"type {base.element}" if base.kind == ENUM else base.kind
        yield CastCheck(_invalid(value, base.element), f"values that {shown} does not accept")
    if base.kind == "jsonb":
        yield CastCheck(
            f"NOT ({value} IS JSON WITH UNIQUE KEYS)",
            "values in which an object has a name twice, of which jsonb would keep one",
        )
        without_texts = f"regexp_replace({value}, {JSON_TEXT}, '', 'g')"
        yield CastCheck(
            f"{value} ~ {MINUS_ZERO} AND {without_texts} ~ {MINUS_ZERO}",
            "values with the number -0, which jsonb cannot hold",
        )
    if base.kind == VARCHAR and base.modifier >= 0:
        length = base.modifier - LENGTH_OFFSET
        yield CastCheck(f"char_length({value}) > {length}", f"texts of more than {length} characters, blanks included")
    if base.kind == MOMENT and base.modifier >= 0:
        yield CastCheck(
            f"{value}::timestamp({base.modifier}) with time zone <> {value}",
            f"times with more than {base.modifier} digits of a second",
        )
    yield from _of_domain(value, domain, not_null=not_null)


def _of_domain(value: str, domain: str, *, not_null: bool) -> Iterator[CastCheck]:
    if domain:
        yield CastCheck(_invalid(value, domain), f"values that domain {domain} does not accept")
    if not_null:
        yield CastCheck(f"{value} IS NULL", f"nulls, which domain {domain} does not accept")


def _invalid(value: str, name: str) -> str:
    """Returns the condition that the text is no value of the type with this quoted name."""
    literal = name.replace("\\", "\\\\").replace("'", "''")
    return f"NOT pg_input_is_valid({value}, E'{literal}')"
