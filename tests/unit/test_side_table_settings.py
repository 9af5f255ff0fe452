"""The section `tables` of pipeline.yaml: what it may say, and the sentence for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import FileTable, QueryTable, TopicTable
from fencepost.errors import SettingsError

FILE = {"file": "airlines.csv", "key": "carrier"}
TOPIC = {"topic": "customers", "schema": {"name": "string"}, "key": "id"}
BAD_NAME = (
    "the name of a side table has at most 63 of a-z, 0-9 and _, begins with a letter, and is no keyword of Python: it is the "
    "name of an argument or of a view"
)


def load(folder: Path, tables: Any, **sections: Any) -> Pipeline:
    settings = {
        "source": {"topic": "in", "schema": {"n": "int"}},
        "output": {"topic": "out"},
        "schedule": {"start": "2026-01-01"},
        "postgres": {"host": "db", "dbname": "sales", "user": "reader"},
        "tables": tables,
    }
    folder = folder / "orders"
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.yaml").write_text(yaml.safe_dump({**settings, **sections}))
    (folder / "transform.py").write_text("def transform(source, airlines):\n    return source\n")
    (folder / "expectations.yaml").write_text("expectations: [{type: expect_table_row_count_to_be_between}]")
    return load_pipeline(folder, offline=True)


def test_each_kind_of_table_is_read_with_its_defaults(tmp_path: Path) -> None:
    query = {"query": "SELECT code, rate FROM rates", "key": "none", "not_empty": False, "max_megabytes": 5}
    customers = {**TOPIC, "key_format": "json", "key_schema": {"id": "int"}}
    found = load(tmp_path, {"airlines": FILE, "customers": customers, "rates": query}).tables
    airlines, topic, rates = found["airlines"], found["customers"], found["rates"]
    assert isinstance(airlines, FileTable)
    assert (airlines.format, airlines.key, airlines.not_empty, airlines.max_megabytes) == (
        "csv",
        ("carrier",),
        True,
        64,
    )
    assert isinstance(topic, TopicTable)
    assert (topic.source.topic, topic.source.tombstones, topic.format) == ("customers", "drop", "json")
    assert isinstance(rates, QueryTable)
    assert (rates.key, rates.not_empty, rates.most_bytes) == ((), False, 5 * 1024 * 1024)


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ("airlines.csv", "tables: not a section of names and values (found 'airlines.csv')"),
        ({"airlines": "airlines.csv"}, "tables.airlines: not a section (found 'airlines.csv')"),
        ({"airlines": {"key": "k"}}, "tables.airlines: give one of file, topic, query; it has none of them"),
        (
            {"airlines": {"jdbc": "x", "key": "k"}},
            "tables.airlines: give one of file, topic, query; it has none of them",
        ),
        ({"airlines": FILE | TOPIC}, "tables.airlines: give one of file, topic, query; it has file and topic"),
        ({"airlines": {"file": "a.csv"}}, "tables.airlines.key: required but missing"),
        (
            {"airlines": FILE | {"key": None}},
            "tables.airlines.key: left empty; give a column, a list of columns, or none",
        ),
        (
            {"airlines": FILE | {"key": []}},
            "tables.airlines.key: an empty list; give a column, a list of columns, or none",
        ),
        ({"airlines": FILE | {"key": ["k", "K"]}}, "tables.airlines.key: k and K are the same column"),
        (
            {"airlines": FILE | {"schema": {"name": "string"}}},
            "tables.airlines: key: carrier is not in schema; the columns are name",
        ),
        (
            {"airlines": FILE | {"schema": {"carrier": "int", "Carrier": "int"}}},
            "tables.airlines.schema: columns 'Carrier' and 'carrier' differ only in case: to Spark they are the same",
        ),
        ({"Airlines": FILE}, f"tables: 'Airlines': {BAD_NAME}"),
        ({"2_airlines": FILE}, f"tables: '2_airlines': {BAD_NAME}"),
        ({"class": FILE}, f"tables: 'class': {BAD_NAME}"),
        ({"a" * 64: FILE}, f"tables: '{'a' * 64}': {BAD_NAME}"),
        (
            {"source": FILE},
            "tables: source is the name of the section for an only source; give the side table another name",
        ),
        *(
            (
                {"airlines": FILE | {"file": path}},
                f"tables.airlines.file: give the path of a file in the pipeline's folder, without .. (found '{path}')",
            )
            for path in ("../a.csv", "/etc/a.csv", "x/../../a.csv")
        ),
        (
            {"airlines": FILE | {"file": "airlines.txt"}},
            "tables.airlines.file: the name ends with .csv, .jsonl, .ndjson, .parquet, which says how the file is read (found "
            "'airlines.txt')",
        ),
        (
            {"airlines": FILE | {"max_megabytes": 1025}},
            "tables.airlines.max_megabytes: Input should be less than or equal to 1024 (found 1025)",
        ),
    ],
)
def test_a_wrong_table_is_refused_with_its_name(tmp_path: Path, tables: Any, why: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, tables)
    assert str(raised.value) == f"{tmp_path}/orders/pipeline.yaml: {why}."


@pytest.mark.parametrize(
    ("table", "fields"),
    [
        (FILE, {"key", "file", "schema", "not_empty", "max_megabytes"}),
        (TOPIC, {"key", "topic", "schema", "key_schema", "format", "envelope"}),
        ({"query": "SELECT 1", "key": "none"}, {"key", "query", "schema"}),
    ],
)
def test_an_unknown_field_is_answered_with_the_fields_of_that_kind(
    tmp_path: Path, table: dict[str, Any], fields: set[str]
) -> None:
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, {"airlines": {**table, "delimiter": ";"}})
    before, _, allowed = str(raised.value).partition("unknown field; allowed here are ")
    assert before == f"{tmp_path}/orders/pipeline.yaml: tables.airlines.delimiter: "
    listed = set(allowed.removesuffix(" (found ';').").split(", "))
    assert fields <= listed
    assert not {"columns", "key_columns", "captured_table"} & listed, "names of the code, not of YAML"


def test_a_topic_is_refused_like_a_source(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"tables\.customers: format json needs a schema"):
        load(tmp_path, {"customers": {"topic": "customers", "key": "_key"}})
    with pytest.raises(SettingsError, match=r"tables\.customers: key_format: json needs key_schema: a mapping"):
        load(tmp_path, {"customers": {**TOPIC, "key_format": "json"}})
    with pytest.raises(
        SettingsError, match=r"tables\.customers: key_schema needs key_format: json, json_schema or avro"
    ):
        load(tmp_path, {"customers": {**TOPIC, "key_schema": {"id": "int"}}})


@pytest.mark.parametrize(
    ("topic", "what"),
    [
        ("out", "output.topic"),
        ("fencepost.orders.staging", "output.staging_topic"),
        ("fencepost.orders.quarantine", "quality.quarantine_topic"),
        ("fencepost.orders.ledger", "the ledger"),
        ("fencepost.orders.published", "the topic of announcements"),
    ],
)
def test_a_topic_that_the_pipeline_writes_is_no_side_table(tmp_path: Path, topic: str, what: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, {"customers": TOPIC | {"topic": topic}})
    assert str(raised.value).endswith(
        f"tables.customers.topic is {what} ({topic}), which the pipeline itself writes; a retry would look up what the attempt "
        "before it has written."
    )
    assert load(tmp_path, {"customers": TOPIC | {"topic": "in"}}).topic_tables["customers"].topic == "in"


def test_a_table_with_schemas_in_a_registry_asks_for_one_and_names_its_own_subjects(tmp_path: Path) -> None:
    avro = {"topic": "customers", "key": "_key_id", "format": "avro", "key_format": "avro"}
    with pytest.raises(
        SettingsError, match=r"tables\.customers\.format: avro and tables\.customers\.key_format: avro needs sch"
    ):
        load(tmp_path, {"customers": avro})
    pipeline = load(tmp_path, {"customers": avro | {"key_subject": "k"}}, schema_registry={"url": "http://127.0.0.1:1"})
    assert pipeline.uses_registry
    assert [part.subject for part in pipeline.table_parts("customers")] == ["customers-value", "k"]
