"""`suggest`, `judge`, `diff` and `trace` on batches in Avro, with logical types and a schema that has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from conftest import at, day
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import create_topic, produce, read_all
from steps import latest, on_session, run

Make = Callable[..., Pipeline]

DAYS, ROWS = 7, 8  # a double has not all digits of `large`
FIRST = """
SELECT _key, n, string(n) AS kind, n + 4611686018427387905 AS large, CAST(n * 0.25 AS decimal(9,2)) AS price,
       timestamp_seconds(1767225600 + n) AS at, date_add(date'2026-01-01', n) AS due, named_struct('a', n, 'b', name) AS both
FROM {source}
"""
SECOND = FIRST.replace("0.25", "IF(n = 3, 0.5, 0.25)").replace("FROM", ", n % 2 = 0 AS even FROM") + "WHERE n <> 5"


@pytest.fixture
def pipeline(make_pipeline: Make, broker: Broker, schema_registry: SchemaRegistry, spark: Any) -> Pipeline:
    """Seven days of eight rows; the first day is written again by another transform, with a column more."""
    made = make_pipeline(
        output={"format": "avro", "key": "_key", "partitions": 1},
        schema_registry={"url": schema_registry.url, "auto_register": True},
    )
    create_topic(broker.bootstrap, made.source.topic, 1)
    for number in range(1, DAYS + 1):
        rows = [(b"k%d" % n, {"n": n, "name": f"<{n}>"}, 0, at(number)) for n in range(ROWS)]
        produce(broker.bootstrap, made.source.topic, rows)
    produce(broker.bootstrap, made.source.topic, [(b"late", {}, 0, at(DAYS + 1))])
    (made.folder / "transform.py").unlink()
    sql = made.folder / "transform.sql"
    sql.write_text(FIRST)
    for number in range(1, DAYS + 1):
        run(spark, made, day(number))
    sql.write_text(SECOND)
    run(spark, made, day(1), reprocess=True)
    return made


@pytest.mark.deep
def test_batches_in_avro_are_looked_back_on(
    pipeline: Pipeline, broker: Broker, spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is suggested passes on all that it was drawn from; a difference, and each way of a record, is what was written."""

    on_session(monkeypatch, spark, pipeline)

    def said(name: str, *options: str) -> Any:
        done = CliRunner().invoke(app, [name, pipeline.name, *options, "--json"], catch_exceptions=False)
        return json.loads(done.stdout)

    found = said("suggest")
    assert (found["batches"], found["not_read"]) == (DAYS, [])
    kwargs = {(one["type"], one["kwargs"].get("column")): one["kwargs"] for one in found["suggestions"]}
    between = "expect_column_values_to_be_between"
    assert kwargs[between, "price"] == {"column": "price", "min_value": 0.0, "max_value": 1.75}
    assert kwargs[between, "large"] == {"column": "large", "min_value": 2**62 + 1, "max_value": 2**62 + 8}
    assert kwargs["expect_column_values_to_be_in_set", "kind"]["value_set"] == [str(n) for n in range(ROWS)]
    suite = tmp_path / "suite.yaml"
    entries = [{"type": one["type"], "kwargs": one["kwargs"]} for one in found["suggestions"]]
    suite.write_text(yaml.safe_dump({"expectations": entries}))
    judged = said("judge", "--suite", str(suite))["published"]
    assert [one["now"] for one in judged] == ["passed"] * DAYS, judged
    entries = [{"type": between, "kwargs": {"column": "large", "max_value": float(2**62 - 512)}}]
    suite.write_text(yaml.safe_dump({"expectations": entries}))
    assert [one["now"] for one in said("judge", "--suite", str(suite))["published"]] == ["rejected"] * DAYS

    span = ("--start", "2026-01-01", "--end", "2026-01-02", "--revisions", "1", "2")
    by_key = said("diff", *span, "--key", "_key")
    assert {name: by_key[name] for name in ("same", "changed", "removed", "added")} == {
        "same": 0,
        "changed": ROWS - 1,
        "removed": 1,
        "added": 0,
    }
    assert (by_key["columns"], by_key["only_after"]) == ({"price": 1, "even": ROWS - 1}, ["even"])
    (three,) = (one for one in by_key["sample"] if one["before"] and one["after"] and one["before"]["n"] == 3)
    assert (three["before"]["price"], three["after"]["price"]) == (0.75, 1.5)
    assert three["after"]["both"] == {"a": 3, "b": "<3>"}
    assert three["after"]["_key"] == "k3"

    records = [r for r in read_all(broker.bootstrap, pipeline.output.topic) if r.key == b"k3"]
    now = str(latest(pipeline, day(1)).id)
    (record,) = (r for r in records if r.batch == now)
    place = f"{pipeline.output.topic}:{record.partition}:{record.offset}"
    assert [one["batch"] for one in said("trace", "--output", place)["batches"]] == [now]
    traced = said("trace", "--source", f"{pipeline.source.topic}:0:3")
    assert traced["rows"] == [place]
    assert said("trace", "--source", f"{pipeline.source.topic}:0:5")["found"] == [
        "Today's transform makes no row from it."
    ]
