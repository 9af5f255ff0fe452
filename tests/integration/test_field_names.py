"""Fields of any name: read in columns, within structs, and written from columns. With Spark's own parser, and through a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from pyspark.sql.types import StructField, StructType

from conftest import at, day
from fencepost import read_validated
from fencepost.config.pipeline import Pipeline
from fencepost.config.sql_types import is_sql_type
from fencepost.drafting.types import arrow_of
from fencepost.errors import SettingsError
from fencepost.formats import FORMATS, REGISTRY_FORMATS
from fencepost.formats.declared import Declared
from fencepost.formats.json import fields_of
from fencepost.formats.quoting import column_named, quoted
from fencepost.formats.written_names import with_written_names
from fencepost.ledger.deployment import Deployment
from fencepost.model import RegisteredSchema
from fencepost.outputs.asset import extra_of
from fencepost.preview.trace import location_of, trace_source
from fencepost.preview.trial import try_pipeline
from fencepost.preview.trial_input import of_interval
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import plan_and_write, run

Make = Callable[..., Pipeline]

SIGNS = "`` `.@-_ ,:<>()'\"\\$%{}/*é\n#x1"


def test_sparks_own_parser_reads_every_struct_that_is_accepted_as_it_is(spark: Any) -> None:
    """Names of any signs, also within arrays and maps; and the other code that reads types reads the same."""
    from pyspark.sql.pandas.types import to_arrow_schema

    random, read = Random(53), 0
    for _ in range(200):
        names = ["".join(random.choices(SIGNS, k=random.randint(1, 5))) for _ in range(3)]
        inner = ", ".join(
            f"{quoted(name)}: {kind}" for name, kind in zip(names, ("int", "string", "date"), strict=True)
        )
        text = random.choice(["struct<{}>", "array<struct<{}>>", "map<string, struct<a: struct<{}>>>"]).format(inner)
        if len({name.lower() for name in names}) < 3:
            assert not is_sql_type(text)
            continue
        assert is_sql_type(text), text
        (field,) = fields_of({"c": text}).fields
        found, kind = field.dataType, json.dumps(field.dataType.jsonValue())
        assert all(json.dumps(name) in kind for name in names), text
        assert to_arrow_schema(StructType([StructField("c", found)])).field("c").type == arrow_of(text), text
        assert StructType.fromDDL(f"c {text}") == fields_of({"c": text})
        read += 1
    assert read > 100


def test_a_column_with_a_back_quote_is_one_column(spark: Any) -> None:
    frame = spark.range(1).selectExpr(f"1 AS {quoted('a`b')}", f"2 AS {quoted('a.b')}", "struct(3 AS b) AS a")
    assert frame.select(column_named("a`b"), column_named("a.b")).collect() == [(1, 2)]


VALUES = {"n": 1, "s": "x", "v": "y", "b": 2, "e": 3, "d": 1.5}
NAMES = {"n": "user-id", "s": "_key", "v": "value", "b": "a`b.c", "e": "", "d": "_json"}
AVRO_NAMES = {"n": "user_id", "s": "_key", "v": "_malformed", "b": "_offset"}


@pytest.mark.parametrize("name", ["json", "json_schema", "avro"])
def test_fields_are_written_and_read_back_by_their_own_names(name: str, spark: Any) -> None:
    """Names that the columns beside have too, and those that Spark and this product use."""
    form, names = FORMATS[name], AVRO_NAMES if name == "avro" else NAMES
    frame = spark.createDataFrame([tuple(VALUES.values())], "n int, s string, v string, b bigint, e int, d double")
    fields = with_written_names(frame.schema, names)
    schema = None
    if name in REGISTRY_FORMATS:
        registry_form = REGISTRY_FORMATS[name]
        text = registry_form.derive(fields, "Row", None)
        text = registry_form.written(text, (), columns=True, mapped=names.values())
        schema = RegisteredSchema(subject="s", id=7, text=text)
        registry_form.check_fits(fields, schema)
        assert set(registry_form.fields(schema, Declared())) == {names.get(column, column) for column in VALUES}
    encoded = form.write(frame, fields, schema)
    raw = frame.select(encoded.data.alias("value"))
    if name == "json":
        assert json.loads(bytes(raw.head()["value"])) == {NAMES[column]: value for column, value in VALUES.items()}
    recorded = StructType.fromJson(json.loads(fields.json()))
    beside = [column_named("k").alias("_key"), column_named("k").alias("_offset")]
    for why in (None, "_unparsed"):
        back = form.parse(raw.selectExpr("value", "9 AS k"), recorded, beside, schema, why)
        assert back.columns[: len(VALUES) + 2] == [*VALUES, "_key", "_offset"]
        assert [tuple(row)[: len(VALUES) + 2] for row in back.collect()] == [(*VALUES.values(), 9, 9)]
    broken = raw.selectExpr("unhex('00') AS value", "9 AS k")
    (row,) = form.parse(broken, recorded, beside, schema, "_unparsed").collect() if name == "json" else [None]
    assert row is None or (row["n"], row["_unparsed"]) == (None, "not a JSON object with fields of the output's types")


def test_a_reason_against_a_write_says_the_fields_own_name(spark: Any) -> None:
    frame = spark.sql("SELECT double('NaN') AS d")
    encoded = FORMATS["json"].write(frame, with_written_names(frame.schema, {"d": "the-d"}), None)
    assert frame.select(encoded.unfit).head()[0] == "the-d: JSON has no NaN and no Infinity"


RENAMED = 'def transform(frame):\n    return frame.selectExpr("_key", "user_id", "at", "inner.`a b` AS ab", "amount")\n'
RULE = """
expectations:
  - {type: expect_column_values_to_be_between, severity: quarantine, kwargs: {column: user_id, max_value: 5}}
  - {type: expect_column_values_to_not_be_null, kwargs: {column: at}}
"""
SOURCE = {
    "schema": {
        "user_id": {"type": "int not null", "field": "user-id"},
        "at": {"type": "timestamp", "field": "@timestamp", "from": "epoch_millis"},
        "inner": "struct<`a b`: string, `c``d`: int>",
        "amount": {"type": "decimal(12,2)", "from": "text"},
    },
    "on_malformed": "quarantine",
}
MADE: list[tuple[bytes, Any]] = [
    (b"a", {"user-id": 1, "@timestamp": 1767225600000, "inner": {"a b": "x", "c`d": 1}, "amount": "12.30"}),
    (b"b", {"user-id": 2, "@timestamp": -1, "inner": None, "amount": None}),
    (b"much", {"user-id": 6, "@timestamp": 0, "inner": None, "amount": None}),
    (b"bad", {"user-id": None, "@timestamp": 0}),
    (b"worse", {"user-id": 1, "@timestamp": 1.5}),
]
WRITTEN = [
    {"user-id": 1, "@timestamp": "2026-01-01T00:00:00.000000Z", "ab": "x", "amount": 12.3},
    {"user-id": 2, "@timestamp": "1969-12-31T23:59:59.999000Z", "ab": None, "amount": None},
]


def test_a_run_refuses_a_written_name_of_no_column_before_it_stages(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(output={"fields": {"n": "number", "nobody": "x"}})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1}, 0, at(1))])
    with pytest.raises(
        SettingsError, match=r"output\.fields names the column 'nobody', which the result of .* It has n"
    ):
        plan_and_write(spark, pipeline, day(1))
    assert read_all(broker.bootstrap, pipeline.staging_topic) == []


def test_names_and_encodings_go_through_a_run(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read, judged, set apart with reasons, written, read back by a reader and by `trace`."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP", broker.bootstrap)
    output = {"fields": {"user_id": "user-id", "at": "@timestamp"}}
    quality = {"quarantine_limit": "none"}
    pipeline = make_pipeline(RENAMED, RULE, source=SOURCE, output=output, quality=quality)
    source = pipeline.source.topic
    create_topic(broker.bootstrap, source, 1)
    produce(broker.bootstrap, source, [(key, value, 0, at(1)) for key, value in MADE])

    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, of_interval(deployment, day(1)))
    assert (trial.read, trial.malformed, trial.written) == (5, 2, 2)
    assert [row["user_id"] for row in trial.rows] == ["1", "2"]

    result = run(spark, pipeline, day(1))
    assert [json.loads(r.value) for r in read_all(broker.bootstrap, pipeline.output.topic)] == WRITTEN
    kept = {r.key: dict(r.headers) for r in read_all(broker.bootstrap, pipeline.quarantine_topic)}
    reasons = {key: (headers.get("fencepost-reason") or b"").decode() for key, headers in kept.items()}
    assert reasons[b"bad"] == "user-id: null or missing, and declared not null"
    assert reasons[b"worse"].startswith("@timestamp: a number with a fraction or an exponent")
    assert b"much" in reasons
    rows = read_validated(spark, {**extra_of(result)}).orderBy("user_id").collect()
    amounts = [None if row["amount"] is None else str(row["amount"]) for row in rows]
    assert [(row["user_id"], row["ab"]) for row in rows] == [(1, "x"), (2, None)]
    assert amounts == ["12.30", None]
    found = trace_source(spark, deployment, deployment.ledger.read(), location_of("--source", f"{source}:0:0"))
    assert len(found.rows) == 1

    unknown = make_pipeline(
        RENAMED, RULE, pipeline.name, source=SOURCE, output={"fields": {"nobody": "x"}}, quality=quality
    )
    with pytest.raises(
        SettingsError, match=r"output\.fields names the column 'nobody', which the result of .+ does not have"
    ):
        try_pipeline(spark, Deployment.of(unknown), of_interval(deployment, day(1)))
    twice = make_pipeline(
        RENAMED, RULE, pipeline.name, source=SOURCE, output={"fields": {"user_id": "AT"}}, quality=quality
    )
    with pytest.raises(SettingsError, match="would be field 'at', or differ from it only in case"):
        run(spark, twice, day(1), reprocess=True)
