"""The cases by id. Each is a function that measures on a bench and yields its results as they are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.bench import Bench
from benchmarks.cases import (
    avro,
    beside_flink,
    daily_run,
    encodings,
    envelope,
    gate,
    growth,
    header,
    join,
    lake,
    long_ledger,
    look_up,
    quarantine,
    retry,
    scan,
    sink,
    small_runs,
    staged,
    tables,
    transactions,
)
from benchmarks.results import Result

CASES: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "B1": sink.run,
    "B2": transactions.run,
    "B3": scan.run,
    "B4": retry.run,
    "B5": growth.run,
    "B6": header.run,
    "B7": daily_run.run,
    "B8": gate.run,
    "B9": long_ledger.run,
    "B10": quarantine.run,
    "B11": staged.run,
    "B12": avro.run,
    "B13": beside_flink.run,
    "B14": small_runs.run,
    "B15": tables.beside_jdbc,
    "B16": tables.backfill,
    "B17": encodings.run,
    "B18": envelope.run,
    "B19": lake.run,
    "B20": tables.converted,
    "B21": tables.changed_keys,
    "B22": look_up.run,
    "B23": join.beside_spark,
    "B24": join.look_back,
}
ON_REQUEST = {"B13"}  # installs software that nothing else here needs, so it runs only when it is named
