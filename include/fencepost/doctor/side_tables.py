"""Checks a pipeline's side tables.

Files and queries are read as a run reads them, without Spark. Only Spark decodes the records of a topic, so `topics.py`
checks the topic alone, and `fencepost try` reads its records.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import FencepostError
from fencepost.findings import Finding, error, ok


def check_side_tables(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks that a run could read each file and each query, and that the rows are as the settings say."""
    read = [name for name in pipeline.tables if name not in pipeline.topic_tables]
    if not read:
        yield ok("no side table is a file or a query")
    for name in read:
        yield _reading(pipeline, name)


def _reading(pipeline: Pipeline, name: str) -> Finding:
    from fencepost.side_tables.reading import read_by_driver

    try:
        state = read_by_driver(pipeline, name).state
    except FencepostError as failed:  # also a missing right, because no other check would report it
        return error(str(failed), "", kind=type(failed))
    size = f"{state.bytes / 1024 / 1024:,.1f} MB"
    return ok(f"side table {name}, {pipeline.tables[name].description}: {count_of(state.rows, 'row')}, {size}")
