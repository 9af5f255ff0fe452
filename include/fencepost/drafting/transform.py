"""Writes `transform.sql` of a drafted pipeline. Spark reads it exactly as meant, whatever the names.

For several sources the result is the union of their records. If all of them have the same columns, the union works row by row,
under layout `source`. Otherwise a column that a source does not have is null, and the layout is `output`, so that a person
can write a join in place of the union.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fencepost.config.source import Source
from fencepost.drafting.columns import UNITS, YEARS, DraftColumn, Fields
from fencepost.drafting.draft_source import DraftSource
from fencepost.drafting.names import free
from fencepost.drafting.writing import PLAIN
from fencepost.formats.column_names import without_case
from fencepost.formats.quoting import quoted

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


@dataclass(frozen=True)
class SelectedColumn:
    """A column that a draft's transform selects from a source: its name in the result, the expression in SQL, its type, and
    a comment. `column` is the source's column that it has unchanged, or None.
    """

    name: str
    expression: str
    type: str
    comment: str = ""
    column: DraftColumn | None = None

    @property
    def sql(self) -> str:
        """Returns the column in a SELECT."""
        name = identifier(self.name)
        return self.expression if self.expression in (self.name, name) else f"{self.expression} AS {name}"


def identifier(name: str) -> str:
    """Returns the name of a column or of a view in Spark SQL."""
    if PLAIN.fullmatch(name) and name.lower() not in WORDS_OF_SQL:
        return name
    return quoted(name)


KEY, TOMBSTONE, TOPIC = "_key", "_tombstone", "_topic"


def selected_columns(fields: Fields, source: Source) -> list[SelectedColumn]:
    """Returns what a transform selects from a source: the key unchanged, every column by its name, and the times that epoch
    numbers mean. `_tombstone` follows the key if the source passes tombstones. For a topic of changes it also selects what each
    change is and where it comes from.
    """
    found = [SelectedColumn(KEY, KEY, "binary", "the source's key, which output.key names")]
    if source.tombstones == "pass":
        found.append(SelectedColumn(TOMBSTONE, TOMBSTONE, "boolean", "a tombstone stays a tombstone"))
    for column in fields.columns:
        found.append(SelectedColumn(column.output, identifier(column.name), column.type, column=column))
        if column.unit:
            limit = "to the microsecond" if column.unit == "nanoseconds" else "null outside the years 1 to 9999"
            comment = f"{column.unit} since 1970; {limit}"
            found.append(SelectedColumn(column.time, _converted(column), "timestamp", comment))
    if source.envelope is not None:
        found += _of_change(fields)
    return found


def transform_sql(fields: Fields, source: Source) -> str:
    """Returns the text of `transform.sql` for an only source."""
    about = ABOUT.format(topic=source.topic) + ("" if source.envelope is None else OF_DELETES)
    return f"{about}{_select(selected_columns(fields, source))}FROM source\n"


def _select(columns: Sequence[SelectedColumn]) -> str:
    last = len(columns) - 1
    lines = [(f"{one.sql}{'' if n == last else ','}", one.comment) for n, one in enumerate(columns)]
    return "SELECT\n" + "".join(f"  -- {comment}\n  {line}\n" if comment else f"  {line}\n" for line, comment in lines)


ABOUT = (
    "-- One row for each record of topic {topic}. Rename, convert, filter with WHERE: it works row by row, and nothing is\n"
    "-- shuffled. `fencepost try` shows the result on a sample.\n"
)
OF_DELETES = (
    "-- A delete is a row too. It has the columns that the database logs: the key alone, unless the table has REPLICA IDENTITY\n"
    "-- FULL (PostgreSQL). Without deletes: WHERE _op != 'delete'. The rows are the table's history, not its present state.\n"
)
# What a change has beside its row: the expression, the column's name and type, and a comment.
OF_CHANGE = (
    ("_op", "op", "string", "create, read (by a snapshot), update or delete"),
    ("_source.ts", "changed_at", "timestamp", "when the database made the change"),
    ("_source.lsn", "lsn", "bigint", "the place in PostgreSQL's log; other databases have _source.position"),
    (
        "_offset",
        "source_offset",
        "bigint",
        "changes of one transaction may have one lsn: order by lsn, then by offset",
    ),
)


def _of_change(fields: Fields) -> list[SelectedColumn]:
    taken = {without_case(name) for column in fields.columns for name in (column.output, column.time) if name}
    return [
        SelectedColumn(free(name, taken), expression, kind, comment) for expression, name, kind, comment in OF_CHANGE
    ]


def _converted(column: DraftColumn) -> str:
    name, per_second = identifier(column.name), UNITS[column.unit]
    if column.unit == "nanoseconds":  # a bigint of nanoseconds covers the years 1677 to 2262
        return f"timestamp_micros({name} div 1000)"
    first, last = YEARS[0] * per_second, (YEARS[1] + 1) * per_second - 1
    function = {"seconds": "timestamp_seconds", "milliseconds": "timestamp_millis"}.get(column.unit, "timestamp_micros")
    return f"CASE WHEN {name} BETWEEN {first} AND {last} THEN {function}({name}) END"


@dataclass(frozen=True)
class UnionColumn:
    """A column of a union. `selected` has what each source gives for it, by the source's name. The column is null for
    records of other sources.
    """

    name: str
    selected: Mapping[str, SelectedColumn]


@dataclass(frozen=True)
class DraftUnion:
    """The union of the records of several sources."""

    sources: Sequence[DraftSource]

    @cached_property
    def columns(self) -> tuple[UnionColumn, ...]:
        """Returns the columns by name. Columns with one name and several types stay apart, each with its source's name in
        front. A column with the record's topic follows, unless all sources are bytes, whose output has one column.
        """
        by_name = dict[str, dict[str, SelectedColumn]]()
        for one in self.sources:
            for column in selected_columns(one.fields, one.source):
                by_name.setdefault(without_case(column.name), {})[one.name] = column
        shared = {name for name, selected in by_name.items() if len({one.type for one in selected.values()}) == 1}
        taken, found = set(shared), list[UnionColumn]()
        for name, selected in by_name.items():
            if name in shared:
                found.append(UnionColumn(next(iter(selected.values())).name, selected))
            else:
                found += [
                    UnionColumn(free(f"{source}_{column.name}", taken), {source: column})
                    for source, column in selected.items()
                ]
        if any(one.source.format != "bytes" for one in self.sources):
            topic = SelectedColumn(TOPIC, TOPIC, "string")
            found.append(UnionColumn(free("topic", taken), {one.name: topic for one in self.sources}))
        return tuple(found)

    @property
    def is_alike(self) -> bool:
        """Returns whether all sources have the same columns. A tombstone has none, so they may differ in passing them."""
        names = {one.name for one in self.sources}
        return all(column.selected.keys() == names for column in self.columns if column.name != TOMBSTONE)

    @property
    def fields(self) -> Fields:
        """Returns the fields of the union's rows, for checks. A record has null in a column that its source does not have."""
        columns = []
        for column in self.columns:
            first = next((one.column for one in column.selected.values() if one.column is not None), None)
            if first is None:  # it is computed
                continue
            values = list[object]()
            for one in self.sources:
                own = column.selected.get(one.name)
                known = None if own is None else own.column
                values += [None] * one.fields.good if known is None else known.values
            columns.append(replace(first, values=values, output=column.name))
        each = [one.fields for one in self.sources]
        return Fields(
            columns=tuple(columns),
            left_out={},
            records=sum(one.records for one in each),
            tombstones=sum(one.tombstones for one in each),
            malformed={reason: count for one in each for reason, count in one.malformed.items()},
            excluded=sum(one.excluded for one in each),
        )

    @property
    def sql(self) -> str:
        """Returns the text of `transform.sql`."""
        topics = " and ".join(one.source.topic for one in self.sources)
        about = OF_ALIKE.format(topics=topics) if self.is_alike else self._about_join(topics)
        about += OF_DELETES if any(one.source.envelope is not None for one in self.sources) else ""
        commented = set[str]()
        return about + "UNION ALL\n".join(self._of_source(one.name, commented) for one in self.sources)

    def _of_source(self, source: str, commented: set[str]) -> str:
        """Returns what the union selects from a source. A comment stands where its column has a value first."""
        columns = []
        for column in self.columns:
            own = column.selected.get(source)
            if own is None:
                missing = "false" if column.name == TOMBSTONE else "NULL"
                columns.append(SelectedColumn(column.name, missing, ""))
                continue
            comment = "" if column.name in commented else own.comment
            commented.add(column.name)
            columns.append(replace(own, name=column.name, comment=comment))
        return f"{_select(columns)}FROM {identifier(source)}\n"

    def _about_join(self, topics: str) -> str:
        """Returns the comment about sources with different columns. It shows a join by a column that the first two have, an id
        if possible, or by their keys.
        """
        first, second = (identifier(one.name) for one in self.sources[:2])
        both = [
            column
            for column in self.columns
            if {self.sources[0].name, self.sources[1].name} <= column.selected.keys()
            and all(one.column is not None for one in column.selected.values())
        ]
        by_id = [
            one for one in both if any("id" in x.column.words for x in one.selected.values() if x.column is not None)
        ]
        on = next(iter(by_id or both), None)
        left, right = (KEY, KEY) if on is None else (on.selected[one.name].expression for one in self.sources[:2])
        return OF_OTHERS.format(topics=topics, join=f"FROM {first} JOIN {second} ON {first}.{left} = {second}.{right}")


OF_ALIKE = (
    "-- One row for each record of topics {topics}. Rename, convert, filter with WHERE: it works row by row, and nothing\n"
    "-- is shuffled. `fencepost try` shows the result on a sample.\n"
)
OF_OTHERS = (
    "-- One row for each record of topics {topics}. A column that a source does not have is null. It is a beginning: put the\n"
    "-- sources together as you need them, and use every source. For a join, write\n"
    "--   {join}\n"
    "-- and name the columns with their source. A partner that comes a day later needs `lookback`: see docs/inputs.md.\n"
    "-- `fencepost try` shows the result on a sample.\n"
)
