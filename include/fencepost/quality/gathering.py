"""Gathers what a batch's expectations need from its records, with one Spark aggregation over the records that are read
back.

If a batch passes, its records are read once. Some answers have no fixed size: sample rows, values outside a set, the
most common values, the number of records that repeat a key. Answers of this kind are gathered only if they are needed.
The records are then read once more, compared with the receipts again, and kept on disk until the answers are complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fencepost.quality.checks import SampleRow
from fencepost.quality.columns import (
    COORDINATES,
    HASH,
    fails,
    grid_of,
    holds,
    key_column,
    prepared_column,
    where_holds,
)
from fencepost.quality.prepare import Prepared
from fencepost.quality.samples import sample_row
from fencepost.suite.catalogue import Kind, Scope
from fencepost.suite.conditions import Operand, is_member, unique_key
from fencepost.suite.figures import Figure, ranks_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

# A batch of fewer records is judged without generated code, because compiling the code would take longer.
FEW = 20_000
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# Above this number of records their values are not sorted in memory: they are read once more, counted, and sorted on
# disk.
ORDERED_IN_MEMORY = 1_000_000
LISTED = 20  # how many values outside a set are listed; the rest are counted
MOST_COMMON = "expect_column_most_common_value_to_be_in_set"


class NotAsPromised(Exception):
    """The records that were read are not those of the receipts."""

    def __init__(self, rows: int, fingerprint: int) -> None:
        super().__init__(f"{rows} records with fingerprint {fingerprint:016x}")
        self.rows, self.fingerprint = rows, fingerprint


class Promised(NamedTuple):
    """The number of rows and the fingerprint by the batch's receipts. Without a fingerprint nothing is compared."""

    rows: int
    fingerprint: int | None

    def compare(self, rows: int, fingerprint: int) -> None:
        """Raises NotAsPromised if the rows or the fingerprint differ from the receipts."""
        if (rows, fingerprint) != self:
            raise NotAsPromised(rows, fingerprint)


class Answer(NamedTuple):
    """The records' answer to one expectation.

    `elements` is the number of records that satisfy row_condition, and `judged` the number of those records that have a
    value. For an expectation about single records, `unexpected` is the number of records that fail. `figure` is what
    was computed from a column. Other `metrics` have the names that Great Expectations gives them.
    """

    elements: int
    judged: int | None = None
    unexpected: int | None = None
    figure: Any = None
    metrics: Mapping[str, Any] = {}


class BatchRecords:
    """A batch's records and the prepared expectations about them."""

    def __init__(self, frame: DataFrame, ready: Sequence[Prepared], promised: Promised) -> None:
        self._ready, self._promised = ready, promised
        self._types = {f.name: f.dataType for f in frame.schema.fields}
        self._few = promised.rows <= FEW
        self._frame = frame
        self._kept: DataFrame | None = None
        self._names: dict[tuple[Any, ...], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.unpersist()

    def ask(self) -> dict[int, Answer]:
        """Returns the answer to each expectation, by its index in the suite.

        Raises:
            NotAsPromised: the records are not those of the receipts.
        """
        from fencepost.rows.fingerprint import counts_of

        with self._evaluated():
            row = self.build().head()
        assert row is not None
        if self._promised.fingerprint is not None:
            self._promised.compare(*counts_of(row))
        return {one.declared.index: self._answer(one, row) for one in self._ready}

    def build(self) -> DataFrame:
        """Returns the analysed aggregation. It reads nothing."""
        from fencepost.rows.fingerprint import counting

        asked = self._asked()
        aggregates = counting(HASH) if self._promised.fingerprint is not None else _count()
        for one in self._ready:
            aggregates += [column.alias(f"{one.declared.index}_{n}") for n, column in enumerate(self._aggregates(one))]
        return asked.agg(*aggregates)

    def samples(
        self, failed: Sequence[Prepared], kinds: Mapping[str, Kind], limit: int
    ) -> dict[int, tuple[SampleRow, ...]]:
        """Returns the first records that fail each of these expectations, by partition and offset."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        if not failed or not limit:
            return {}
        marked = self._records()
        for one in failed:
            if one.entry.unique:
                marked = marked.withColumn(self._fails(one), self._times(one) > 1)
        numbers = [F.when(F.col(self._fails(one)), F.lit(one.declared.index)) for one in failed]
        columns = dict.fromkeys(name for one in failed for name in one.columns)
        first = Window.partitionBy("_check").orderBy("_partition", "_offset")
        rows = (
            marked.select(*COORDINATES, *columns, F.explode(F.array_compact(F.array(*numbers))).alias("_check"))
            .withColumn("_place", F.row_number().over(first))
            .where(F.col("_place") <= limit)
            .orderBy("_check", "_place")
        )
        by_index = {one.declared.index: one for one in failed}
        found: dict[int, list[SampleRow]] = {index: [] for index in by_index}
        with self._evaluated():
            for row in rows.collect():
                index = row["_check"]
                found[index].append(sample_row(row.asDict(), by_index[index].columns, kinds))
        return {index: tuple(sample) for index, sample in found.items()}

    def _asked(self, *, whole: bool = False) -> DataFrame:
        """Returns the columns that each expectation is about. With `whole` it adds the coordinates and the checked
        columns.
        """
        from pyspark.sql import functions as F

        columns: dict[str, Column] = {}
        if self._promised.fingerprint is not None:
            columns[HASH] = F.col(HASH)
        for one in self._ready:
            if one.condition is not None:
                columns[self._when(one)] = holds(one.condition)
            if one.entry.fails is not None:
                columns[self._fails(one)] = fails(one, self._types)
            elif one.entry.unique:
                key = unique_key([key_column(name, self._types[name]) for name in one.columns], one.kwargs)
                columns[self._value(one)] = where_holds(one, key)
            elif one.entry.scope is Scope.COLUMN:
                (name,) = one.columns
                columns[self._value(one)] = where_holds(one, prepared_column(name, self._types[name]))
        if whole:
            columns |= {name: F.col(name) for name in COORDINATES}
            columns |= {name: prepared_column(name, self._types[name]) for one in self._ready for name in one.columns}
        return self._frame.select(*(column.alias(name) for name, column in columns.items()))

    def _records(self) -> DataFrame:
        """Returns the records, which are read once more and kept on disk."""
        from pyspark import StorageLevel

        from fencepost.rows.fingerprint import count_and_sum

        if self._kept is None:
            self._kept = self._asked(whole=True).persist(
                StorageLevel.DISK_ONLY
            )  # in memory, a large batch would fill the heap
            if self._promised.fingerprint is not None:
                self._promised.compare(*count_and_sum(self._kept, HASH))
        return self._kept

    def _answer(self, one: Prepared, row: Row) -> Answer:
        found = [row[f"{one.declared.index}_{n}"] for n in range(len(self._aggregates(one)))]
        elements = row["rows"] if one.condition is None else found.pop(0)
        if one.entry.fails is not None:
            judged, unexpected = found
            return Answer(elements, judged, unexpected)
        if one.entry.unique:
            judged, distinct = found
            return Answer(elements, judged, 0 if judged == distinct else self._repeated(one))
        if one.entry.scope is Scope.TABLE:
            return Answer(elements)
        judged, *found = found
        if not judged and not one.entry.counts:
            return Answer(elements, judged)
        if (figure := one.entry.figure) is not None:
            if figure.ranked and not self._orders_in_memory:
                found = [self._at_ranks(one, figure, judged)]
            grid = self._operand(one).grid
            return Answer(elements, judged, figure=figure.drawn(elements, judged, grid, *found))
        if one.declared.type == MOST_COMMON:
            return Answer(elements, judged, metrics={"column.most_common_value": self._most_common(one)})
        return Answer(elements, judged, metrics=self._sets(one, *found))

    def _repeated(self, one: Prepared) -> int:
        """Returns the number of records whose key another record has too."""
        from pyspark.sql import functions as F

        times = self._records().where(F.col(self._value(one)).isNotNull()).groupBy(self._value(one)).count()
        with self._evaluated():
            row = times.where("count > 1").agg(F.sum("count").alias("records")).head()
        assert row is not None
        return int(row["records"])

    def _most_common(self, one: Prepared) -> list[Any]:
        from pyspark.sql import functions as F

        times = self._records().where(F.col(self._value(one)).isNotNull()).groupBy(self._value(one)).count()
        most = (
            times.groupBy("count")
            .agg(F.sort_array(F.collect_list(self._value(one))).alias("values"))
            .orderBy(F.desc("count"))
        )
        with self._evaluated():
            row = most.select("values").head()
        assert row is not None
        return list(row["values"])

    def _sets(self, one: Prepared, outside: int, inside: Sequence[Any]) -> dict[str, Any]:
        """Returns which members of the set are not in the column, and which values of the column are not in the set."""
        missing = set(one.kwargs["value_set"]) - set(inside)
        beyond, more = self._outside(one) if outside else ([], 0)
        return {
            "column.distinct_values.not_in_set": beyond,
            "column.distinct_values.not_in_set.count": more,
            "column.distinct_values.missing_from_column": list(missing)[:LISTED],
            "column.distinct_values.missing_from_column.count": len(missing),
        }

    def _outside(self, one: Prepared) -> tuple[list[Any], int]:
        """Returns the first values that are not in the set, and their total number."""
        operand = self._operand(one)
        beyond = self._records().where(~is_member(operand, one.kwargs["value_set"]))
        values = beyond.select(operand.column.alias("value")).distinct()
        with self._evaluated():
            listed = [row["value"] for row in values.limit(LISTED).collect()]
            return listed, len(listed) if len(listed) < LISTED else values.count()

    def _aggregates(self, one: Prepared) -> list[Column]:
        """Returns the aggregates of an expectation. If it has a row_condition, the first aggregate is the number of
        records that satisfy it.
        """
        from pyspark.sql import functions as F

        elements = [] if one.condition is None else [F.count_if(self._when(one))]
        if one.entry.fails is not None:
            return [*elements, F.count(self._fails(one)), F.count_if(self._fails(one))]
        if one.entry.scope is Scope.TABLE:
            return elements
        value = F.col(self._value(one))
        if one.entry.unique:
            # Few values are sorted in one phase. Four phases would take longer to plan.
            distinct = F.size(F.collect_set(value)) if self._few else F.count_distinct(value)
            return [*elements, F.count(value), distinct]
        if (figure := one.entry.figure) is not None:
            ranked = [self._in_order(one, figure)] if figure.ranked and self._orders_in_memory else []
            return [*elements, F.count(value), *figure.aggregates(self._operand(one)), *ranked]
        if one.declared.type == MOST_COMMON:
            return [*elements, F.count(value)]
        inside = is_member(self._operand(one), one.kwargs["value_set"])
        return [*elements, F.count(value), F.count_if(~inside), F.collect_set(F.when(inside, value))]

    def _in_order(self, one: Prepared, figure: Figure) -> Column:
        """Returns the values at a figure's ranks, sorted within the aggregation."""
        from pyspark.sql import functions as F

        value = F.col(self._value(one))
        ordered, name = F.sort_array(F.collect_list(value)), self._value(one)
        places = [
            F.expr(f"int(greatest(1, (decimal(count({name})) * {a} + {b}) div {c}))")
            for a, b, c in ranks_of(figure, one.kwargs)
        ]
        return F.array(*(F.try_element_at(ordered, place) for place in places))

    def _at_ranks(self, one: Prepared, figure: Figure, judged: int) -> list[Any]:
        """Returns the values at a figure's ranks. The values come from a second read, which sorts many records on disk."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        ranks = [max(1, (a * judged + b) // c) for a, b, c in ranks_of(figure, one.kwargs)]
        value = F.col(self._value(one))
        times = self._records().where(value.isNotNull()).groupBy(value.alias("value")).count()
        counted = times.withColumn("last", F.sum("count").over(Window.orderBy("value")))
        wanted = F.lit(False)
        for rank in set(ranks):
            wanted |= (F.lit(rank) > F.col("last") - F.col("count")) & (F.lit(rank) <= F.col("last"))
        with self._evaluated():
            rows = counted.where(wanted).orderBy("value").collect()
        return [next(row["value"] for row in rows if rank <= row["last"]) for rank in ranks]

    @property
    def _orders_in_memory(self) -> bool:
        return self._promised.rows <= ORDERED_IN_MEMORY

    def _operand(self, one: Prepared) -> Operand:
        """Returns the values of an expectation about one column, as they were gathered."""
        from pyspark.sql import functions as F

        return Operand(F.col(self._value(one)), grid_of(self._types[one.columns[0]]))

    def _times(self, one: Prepared) -> Column:
        """Returns the number of records that have the same key as a record. The result is null if the record is not
        judged.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        value = F.col(self._value(one))
        return F.when(value.isNotNull(), F.count("*").over(Window.partitionBy(value)))

    def _when(self, one: Prepared) -> str:
        return self._name("when", one.condition)

    def _fails(self, one: Prepared) -> str:
        return f"_fails_{one.declared.index}"

    def _value(self, one: Prepared) -> str:
        """Returns the name of the column that all expectations about the same values use. So Spark can share their
        aggregates.
        """
        return self._name("value", one.columns, one.condition, one.entry.unique and one.kwargs.get("ignore_row_if"))

    def _name(self, *of: Any) -> str:
        return f"_{of[0]}_{self._names.setdefault(of, len(self._names))}"

    def _evaluated(self) -> AbstractContextManager[None]:
        """Lets Spark evaluate with generated code or without it, depending on the number of records."""
        from fencepost.spark.sql_settings import set_for_now

        return set_for_now(self._frame.sparkSession, INTERPRETED if self._few else {})


def _count() -> list[Column]:
    from pyspark.sql import functions as F

    return [F.count("*").alias("rows")]
