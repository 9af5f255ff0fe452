"""A source record is published whole or quarantined whole: if one of its rows fails a rule, none of its rows is published.

If rows of a record fail, the first row with the lowest rule goes to quarantine, and all other rows of the record are
withheld. A replay sends the record through the transform again, which then gives all of its rows. If some rows of the
record were published before, they would be published twice.

If a transform may give several rows for a record, flagged rows have the record's place in the source (`RECORD_PLACE`, null if it
is not known) and `RULE`. `WITHHELD` marks the rows that are not written. There are two functions for it:

- under layout `source` the rows of a record follow each other, because narrow operators keep the order. `whole_records` groups
  them on the way to the writer, across Arrow batches too, without a shuffle;
- under layout `output` the rows of a record may be anywhere, and a shuffle by key would separate them. `withheld_rows` is a
  window in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fencepost.errors import SettingsError

if TYPE_CHECKING:  # Python's workers import this module, and do without Spark's SQL
    from pyspark.sql import Column

# The columns with the topic, partition and offset of a row's record.
RECORD_PLACE = {"topic": "record_topic", "partition": "record_partition", "offset": "record_offset"}
TOPIC, PARTITION, OFFSET = RECORD_PLACE.values()
RULE = "rule"  # the number of the rule that a row fails, or null
WITHHELD = "withheld"  # true for a row that is not written, because its record goes to quarantine with another row


def whole_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Adds `WITHHELD` to the rows, in batches with all rows of each record. Rows without `RECORD_PLACE` do not change.

    Raises:
        SettingsError: rows of one record do not follow each other.
    """
    records = _Records()
    held: list[pa.RecordBatch] = []  # the rows of a record that may continue in the next batch
    for batch in batches:
        if OFFSET not in batch.schema.names:
            yield batch
            continue
        if not len(batch):
            continue
        starts = starts_of(records.places(batch))
        first, last = int(starts[0]), int(starts[-1])
        if held and not records.is_same(held[-1], batch):
            yield records.decided(held)
            held = []
        elif held:
            first = int(starts[1]) if len(starts) > 1 else len(batch)
            held.append(batch.slice(0, first))
            if first == len(batch):
                continue
            yield records.decided(held)
            held = []
        if first < last:
            yield records.decided([batch.slice(first, last - first)])
        held = [batch.slice(last)]
    if held:
        yield records.decided(held)
    records.check_whole()


@dataclass
class _Records:
    """The places of all records so far, and a number for each topic."""

    seen: list[npt.NDArray[np.int64]] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)

    def decided(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Returns all rows of some records, with `WITHHELD`. If rows of a record fail, only the first row with the
        lowest rule is written.
        """
        rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        places = self.places(rows)
        starts, known = starts_of(places), places[:, -1] >= 0
        lengths = np.diff(np.append(starts, len(rows)))
        record = np.repeat(np.arange(len(starts)), lengths)
        self.seen.append(places[starts][known[starts]])
        withheld = np.zeros(len(rows), dtype=bool)
        failed = np.nonzero(rows.column(RULE).is_valid().to_numpy(zero_copy_only=False) & known)[0]
        if len(failed):
            rule = rows.column(RULE).to_numpy(zero_copy_only=False)[failed]
            in_order = failed[np.lexsort((failed, rule, record[failed]))]
            records, first = np.unique(record[in_order], return_index=True)
            withheld = np.isin(record, records)
            withheld[in_order[first]] = False
        kept = [name for name in rows.schema.names if name not in (*RECORD_PLACE.values(), RULE)]
        return rows.select(kept).append_column(WITHHELD, pa.array(withheld))

    def check_whole(self) -> None:
        """Checks that the rows of each record followed each other. Otherwise a record could be published in part and
        quarantined in part.
        """
        if not self.seen:
            return
        places = np.concatenate(self.seen)
        found, counts = np.unique(places, axis=0, return_counts=True)
        if len(found) == len(places):
            return
        number, partition, offset = found[counts > 1][0]
        topic = next(topic for topic, known in self.topics.items() if known == number)
        raise SettingsError(
            f"the rows of one source record do not follow each other: between the rows of the record at topic {topic}, "
            f"partition {partition}, offset {offset} there are rows of another record. With rules of severity "
            "quarantine, output.layout: source needs this order, so that a record is published whole or quarantined "
            "whole. Keep the source's order in the transform (no sortWithinPartitions), set output.layout: output, or "
            "leave _record out of the result: then failed rows are kept one by one."
        )

    def is_same(self, before: pa.RecordBatch, after: pa.RecordBatch) -> bool:
        """Returns whether the last row of a batch and the first row of the next belong to the same known record."""
        place = self.places(before.slice(len(before) - 1))[0]
        return bool(place[-1] >= 0 and np.array_equal(place, self.places(after.slice(0, 1))[0]))

    def places(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Returns the topic's number, the partition and the offset of each row's record, or -1 if they are not known."""
        named = rows.column(TOPIC).dictionary_encode()
        numbers = [self.topics.setdefault(topic, len(self.topics)) for topic in named.dictionary.to_pylist()]
        topics = np.array([*numbers, -1])[named.indices.fill_null(-1).to_numpy()]
        others = [rows.column(name).cast(pa.int64()).fill_null(-1).to_numpy() for name in (PARTITION, OFFSET)]
        return np.stack([topics, *others], axis=1)


def starts_of(places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the positions where the rows of another record begin. A row of an unknown record counts as a record of
    its own.
    """
    new = np.any(places[1:] != places[:-1], axis=1) | (places[1:, -1] < 0)
    return np.concatenate([[0], np.nonzero(new)[0] + 1])


def withheld_rows(rule: Column, place: Sequence[Column], alone: Column) -> Column:
    """Returns whether a row is withheld, for rows in any order. The column is a window over the rows of each record, so
    it shuffles.

    `place` is the topic, partition and offset of the row's record. `alone` spreads the rows of unknown records over
    Spark's partitions.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    known = place[-1].isNotNull()
    of_record = Window.partitionBy(*place, F.when(~known, alone)).orderBy(rule.asc_nulls_last())
    return known & F.first(rule).over(of_record).isNotNull() & (F.row_number().over(of_record) > 1)
