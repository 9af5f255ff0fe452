"""Reads side tables that are files."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from fencepost.config.files import open_file, unreadable
from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import FileTable
from fencepost.counts import count_of
from fencepost.errors import TableUnavailable
from fencepost.formats.declared import NOTHING_DECLARED
from fencepost.formats.json import json_decoder
from fencepost.formats.rows import decode_first
from fencepost.side_tables.content import Refuse, TableContent, check_required, check_size, content_of, refused
from fencepost.side_tables.csv_rows import read_csv
from fencepost.side_tables.declared import declared_columns
from fencepost.side_tables.parquet_rows import read_parquet

MARK = b"\xef\xbb\xbf"  # a byte order mark in UTF-8
READS, PAUSE = 5, 0.2  # how often a file is read that changes meanwhile, and the seconds between


def read_file_table(pipeline: Pipeline, name: str, table: FileTable) -> TableContent:
    """Returns the content of a side table that is a file. The file is read once, by the driver. Executors need no access
    to it.

    CSV is read by `csv_rows.py` and Parquet by `parquet_rows.py`. Each line of a JSON lines file is read as a source reads
    a record of format `json`. Empty lines are skipped.

    Raises:
        SettingsError: the file cannot be read.
        TableUnavailable: the file is being written.
        SideTableRefused: the content does not fit the settings.
    """
    data = _content(pipeline, name, table.path(pipeline.folder))
    refuse = partial(refused, pipeline, name)
    if table.format == "parquet":
        rows, schema = read_parquet(data, table.types, refuse, partial(check_size, pipeline, name))
    elif table.format == "csv":
        rows, schema = read_csv(data.removeprefix(MARK), table.types, refuse)
    else:
        rows, schema = _read_json_lines(data.removeprefix(MARK), table, refuse)
    check_required(rows, table.required, refuse, "the file")
    return content_of(pipeline, name, rows, schema)


def _content(pipeline: Pipeline, name: str, file: Path) -> bytes:
    """Returns the bytes of the file, as they are at one moment.

    A file that is replaced meanwhile is its old content or its new one. A file that is written in place may be read in
    the middle of it, so a read counts only if the file is the same after it.
    """
    for _ in range(READS):
        with open_file(file) as opened:
            try:
                before = _state(opened.fileno())
                check_size(pipeline, name, before[0])
                data = opened.read(before[0] + 1)
                if _state(opened.fileno()) == before and len(data) == before[0]:
                    return data
            except OSError as error:
                raise unreadable(file, error) from None
        time.sleep(PAUSE)
    raise TableUnavailable(
        f"pipeline {pipeline.name}: side table {name}: {file} changed during each of {READS} reads. Run the step again once the "
        "file is written. To change it safely, write another file and rename it to this name."
    )


def _state(number: int) -> tuple[int, int, int]:
    found = os.fstat(number)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read_json_lines(data: bytes, table: FileTable, refuse: Refuse) -> tuple[pa.Table, StructType]:
    """Returns the rows of JSON lines, and their schema."""
    lines = data.split(b"\n")
    numbers = [number for number, line in enumerate(lines) if line.strip()]
    values = pa.array([lines[number] for number in numbers], pa.binary())
    del lines
    schema = declared_columns(table.types)
    fields = to_arrow_schema(schema)
    decode = decode_first(
        json_decoder(fields, table.required, NOTHING_DECLARED),
        [*fields.names, *"tombstone why excluded".split()],
        keep=False,
    )
    batches, why = list[pa.RecordBatch](), list[str | None]()
    for batch in decode([pa.RecordBatch.from_arrays([values], ["value"])]):
        why += batch.column(batch.num_columns - 2).to_pylist()
        batches.append(batch.select(range(len(fields))))
    if malformed := [at for at, reason in enumerate(why) if reason is not None]:
        first = malformed[0]
        others = f" ({count_of(len(malformed) - 1, 'other line is', 'other lines are')} malformed too)"
        raise refuse(
            f"line {numbers[first] + 1:,} is malformed: {why[first]}{others if malformed[1:] else ''}. Correct the file, or the "
            "schema in pipeline.yaml."
        )
    return pa.Table.from_batches(batches, fields if not batches else None), schema
