"""`fencepost schema --sample` and the doctor say what changed in a topic since it was declared."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from typer.testing import CliRunner

from conftest import at
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.fields import check_source_fields
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.run_check import run_check
from fencepost.drafting.types import arrow_of
from fencepost.findings import Level
from fencepost.formats.json import fields_of
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce

Make = Callable[..., Pipeline]

TYPES = [
    *(
        "string",
        "binary",
        "boolean",
        "tinyint",
        "BYTE",
        "smallint",
        "short",
        "int",
        "integer",
        "bigint",
        "long",
        "float",
        "real",
    ),
    *("double", "date", "timestamp", "timestamp_ntz", "decimal", "dec(5)", "numeric(38, 10)", "array<int>"),
    *("map<string, array<decimal(3,1)>>", "struct<a: int, b:struct<c: map<string,date>>>", "array< struct<x:int> >"),
]


@pytest.mark.deep
def test_declared_types_are_those_that_spark_makes_of_them(spark: Any) -> None:
    for sql in TYPES:
        (field,) = to_arrow_schema(fields_of({"x": sql}))
        assert arrow_of(sql) == field.type, sql


@pytest.mark.deep
def test_the_command_and_the_doctor_tell_what_drifted(
    broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline(source={"on_malformed": "quarantine"})
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n, "name": "x"}, n % 2, at(1)) for n in range(90)])
    command = ["schema", pipeline.name, "--sample", "100"]
    same = CliRunner().invoke(app, command)
    assert same.exit_code == 0
    assert "90 sampled records" in same.stdout
    assert "all fit what is declared" in same.stdout
    changed = [(b"k", {"n": "text", "name": "x", "[bold]": 1, "a\0": 1, "more": 1}, n % 2, at(1)) for n in range(10)]
    produce(broker.bootstrap, pipeline.source.topic, changed)
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 1
    assert "10.0%" in told.stdout
    assert "[bold]" in told.stdout
    plain = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert plain["misfits"] == [{"field": "n", "records": 10, "reason": "not an integer of 32 bits"}]
    assert plain["undeclared"] == [{"field": name, "records": 10, "type": "bigint"} for name in ("[bold]", "more")]
    assert [one["field"] for one in plain["undeclarable"]] == ["a\0"]
    assert plain["malformed"] == 10
    (found,) = run_check(check_source_fields, Inspection(pipeline))
    assert found.level is Level.WARNING
    assert "n does not fit in 10 of 100 sampled records" in found.found
    assert found.command == f"fencepost schema {pipeline.name} --sample 1000"
