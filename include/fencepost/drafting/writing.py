"""Writes the three files of a drafted pipeline. YAML and Spark read their texts exactly as meant, whatever the names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fencepost.config.source import Source, SourceColumn
from fencepost.config.strict_yaml import read_yaml
from fencepost.drafting.columns import UNITS, YEARS, DraftColumn, Fields
from fencepost.drafting.names import free
from fencepost.errors import SettingsError
from fencepost.formats.column_names import without_case
from fencepost.formats.quoting import quoted

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
PLAIN_TYPE = re.compile(r"[A-Za-z0-9_<>:(),]+( not null)?")
WORDS_OF_YAML = frozenset("true false null yes no on off y n nan inf".split())
# Spark reads these words as more than names in some places.
WORDS_OF_SQL = frozenset(
    """all and any anti array as asc at authorization both by case cast check collate column constraint create cross cube
    current current_date current_time current_timestamp current_user date day dec decimal delete desc describe distinct div drop
    else end escape except exists explain extract false fetch filter first for foreign from full function grant group grouping
    having hour if in inner insert int integer intersect interval into is join last lateral leading left like limit local map
    minus minute month natural not null offset on only or order outer over overlaps partition position primary qualify range
    references right rlike row rows second select semi session_user set some start struct table tablesample then time timestamp
    to trailing true union unique unknown unpivot update user using values view when where window with within year""".split()
)
LISTED = 20  # left-out names that are listed in comments


def scalar(text: Any) -> str:
    """Returns a YAML value that is read back as this text, number or boolean."""
    if not isinstance(text, str):
        return json.dumps(text)
    if PLAIN.fullmatch(text) and text.lower() not in WORDS_OF_YAML:
        return text
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65_536 else f"\\U{code:08x}"


def printable(text: str) -> str:
    """Returns a record's text without characters that could end a line or change a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def in_comment(text: str) -> str:
    """Returns a record's name, printable and shortened, for a comment."""
    shown = printable(text) or '""'
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def block(text: str) -> Any:
    """Returns the content of a YAML text on its own, or None if it cannot be read."""
    with TemporaryDirectory(prefix="fencepost-") as folder:
        file = Path(folder) / "section.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            return read_yaml(file)
        except SettingsError:
            return None


def with_comments(lines: Sequence[tuple[str, str]], indent: str) -> str:
    """Returns the lines with aligned comments. After a long line the comment is not aligned."""
    width = min(34, max((len(line) for line, comment in lines if comment), default=0))
    return "".join(
        f"{indent}{line:{width}}  # {comment}\n" if comment else f"{indent}{line}\n" for line, comment in lines
    )


def column_line(name: str, column: SourceColumn) -> str:
    """Returns a column's declaration in YAML: its type alone, or a mapping of everything that is declared about it."""
    settings = column.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if settings.keys() == {"type"} and column.type is not None:
        return f"{scalar(name)}: {column.type if PLAIN_TYPE.fullmatch(column.type) else scalar(column.type)}"
    ordered = {part: settings[part] for part in ("field", *settings) if part in settings}
    return f"{scalar(name)}: {{{', '.join(f'{part}: {scalar(value)}' for part, value in ordered.items())}}}"


def listed(names: Mapping[str, str]) -> str:
    """Returns the names that are left out, each in a comment with its reason."""
    lines = [f"    # left out: {in_comment(name)}: {why}\n" for name, why in list(names.items())[:LISTED]]
    if len(names) > LISTED:
        lines.append(f"    # left out: {len(names) - LISTED:,} more names\n")
    return "".join(lines)


def identifier(name: str) -> str:
    """Returns a column's name in Spark SQL."""
    if PLAIN.fullmatch(name) and name.lower() not in WORDS_OF_SQL:
        return name
    return quoted(name)


def transform_sql(fields: Fields, source: Source) -> str:
    """Returns the text of `transform.sql`. The query selects every column by its name, the times that epoch numbers
    mean, and the key unchanged. It also selects `_tombstone` if the source passes tombstones, and for a topic of changes
    what each change is and where it comes from.
    """
    selected = [("_key", "the source's key, which output.key names")]
    if source.tombstones == "pass":
        selected.append(("_tombstone", "a tombstone stays a tombstone"))
    for column in fields.columns:
        name = identifier(column.name)
        renamed = column.output != column.name
        selected.append((f"{name} AS {identifier(column.output)}" if renamed else name, ""))
        if column.unit:
            limit = "to the microsecond" if column.unit == "nanoseconds" else "null outside the years 1 to 9999"
            selected += [(_converted(column), f"{column.unit} since 1970; {limit}")]
    if source.envelope is not None:
        selected += _of_change(fields)
    last = len(selected) - 1
    lines = [(f"{line}{'' if n == last else ','}", comment) for n, (line, comment) in enumerate(selected)]
    body = "".join(f"  -- {comment}\n  {line}\n" if comment else f"  {line}\n" for line, comment in lines)
    return (
        f"{ABOUT.format(topic=source.topic)}{'' if source.envelope is None else OF_DELETES}SELECT\n{body}FROM source\n"
    )


ABOUT = (
    "-- One row for each record of topic {topic}. Rename, convert, filter with WHERE: it works row by row, and nothing is\n"
    "-- shuffled. `fencepost try` shows the result on a sample.\n"
)
OF_DELETES = (
    "-- A delete is a row too. It has the columns that the database logs: the key alone, unless the table has REPLICA IDENTITY\n"
    "-- FULL (PostgreSQL). Without deletes: WHERE _op != 'delete'. The rows are the table's history, not its present state.\n"
)
# What a change has beside its row: the expression, the column's name, and a comment.
OF_CHANGE = (
    ("_op", "op", "create, read (by a snapshot), update or delete"),
    ("_source.ts", "changed_at", "when the database made the change"),
    ("_source.lsn", "lsn", "the place in PostgreSQL's log; other databases have _source.position"),
    ("_offset", "source_offset", "changes of one transaction may have one lsn: order by lsn, then by offset"),
)


def _of_change(fields: Fields) -> list[tuple[str, str]]:
    taken = {without_case(name) for column in fields.columns for name in (column.output, column.time) if name}
    return [(f"{expression} AS {free(name, taken)}", comment) for expression, name, comment in OF_CHANGE]


def _converted(column: DraftColumn) -> str:
    name, per_second = identifier(column.name), UNITS[column.unit]
    if column.unit == "nanoseconds":  # a bigint of nanoseconds covers the years 1677 to 2262
        return f"timestamp_micros({name} div 1000) AS {identifier(column.time)}"
    first, last = YEARS[0] * per_second, (YEARS[1] + 1) * per_second - 1
    function = {"seconds": "timestamp_seconds", "milliseconds": "timestamp_millis"}.get(column.unit, "timestamp_micros")
    return f"CASE WHEN {name} BETWEEN {first} AND {last} THEN {function}({name}) END AS {identifier(column.time)}"


def suite_yaml(checks: Sequence[Mapping[str, Any]], records: int) -> str:
    lines = [
        f"# Drafted from {records:,} sampled records: each check held for all of them. A warning is reported and stops "
        "nothing.\n# Make it `critical` to reject a batch, or `quarantine` to send a row to quarantine. "
        "docs/expectations.md lists the types.\nexpectations:\n"
    ]
    for check in checks:
        lines.append(f"  - type: {check['type']}\n    severity: {check['severity']}\n")
        lines.append(f"    description: {scalar(check['description'])}\n    kwargs:\n")
        for name, value in check["kwargs"].items():
            text = f"[{', '.join(map(scalar, value))}]" if isinstance(value, list) else scalar(value)
            lines.append(f"      {name}: {text}\n")
    return "".join(lines)
