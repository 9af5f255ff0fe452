"""What tasks tell OpenLineage's provider that they read and wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.state import TaskInstanceState
from jsonschema import Draft202012Validator
from openlineage.client.serde import Serde

from fencepost.airflow import build_dag, lineage
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, SettingsError
from fencepost.model import Batch, State, StepResult
from fencepost.paths import reports_folder
from fencepost.protocol.view import View
from unit.quality import reports
from unit.quality.reports import REPORTS

from .conftest import PIPELINE_YAML, ContextOf

MakePipeline = Callable[..., Pipeline]
ROOT = Path(__file__).parents[2]
FACET = json.loads((ROOT / "docs" / "lineage-batch.schema.json").read_text())
DONE: dict[str, Any] = {
    "rows": 7,
    "sources": {"in": 9},
    "quarantined": {"malformed": 2},
    "frontier": {"in": {"0": 5}},
    "published_at": "2013-03-02T06:00:00+00:00",
    "output": {},
}
SUITE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {min_value: 1}}]\n"
TABLE = """
source: {topic: in, format: json, schema: {a: int}}
output: {kind: postgres, table: reporting.delays}
schedule: {cron: "0 0 * * *", start: 2013-03-01}
kafka: {bootstrap.servers: "kafka-1:9093,kafka-2:9093"}
postgres: {host: db.internal, dbname: flights, user: f, password: hunter2}
"""


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider sends events somewhere."""
    monkeypatch.setattr(lineage, "is_on", lambda: True)


Told = Callable[..., dict[str, Any]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, context_of: ContextOf, result: StepResult) -> Told:
    """What the provider extracts from a task whose step does that, as it stands in an event."""

    def run(
        pipeline: Pipeline, step: str, details: dict[str, Any], state: State = State.WRITTEN, *, changed: bool = True
    ) -> dict[str, Any]:
        done = result.model_copy(update={"step": step, "state": state, "details": details, "changed": changed})
        monkeypatch.setattr(f"fencepost.steps.{step}.{step}_without_spark", lambda *_, **__: done)
        monkeypatch.setattr("fencepost.airflow.spark_operator.announce", lambda *_: False)
        context: Any = context_of()
        context["ti"].returned = {"plan": {"state": "published" if not changed else "planned"}}
        pipeline.expectations_file.write_text(SUITE)
        task = build_dag(pipeline).get_task(step)
        task.execute(context)
        return extracted(task, TaskInstanceState.SUCCESS)

    return run


def extracted(task: Any, state: TaskInstanceState) -> dict[str, Any]:
    """By the provider's own manager."""
    run = SimpleNamespace(run_id="run 1")
    found: OperatorLineage[Any, Any] = ExtractorManager().extract_metadata(run, task, state, None)
    told: dict[str, Any] = json.loads(Serde.to_json(found))
    facets = told.pop("run_facets")
    assert all(name.startswith("fencepost_") for name in facets)
    for facet in facets.values():
        Draft202012Validator(FACET).validate(facet)
    return told | {"facets": facets}


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in datasets]


SOURCE, OUTPUT = ("kafka://127.0.0.1:1", "in"), ("kafka://127.0.0.1:1", "out")


def test_an_advance_leads_from_source_to_output(pipeline: Pipeline, told: Told) -> None:
    found = told(pipeline, "advance", DONE, State.PUBLISHED)
    assert (names(found["inputs"]), names(found["outputs"])) == ([SOURCE], [OUTPUT])
    assert found["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 7
    facet = found["facets"]["fencepost_batch"]
    expected = {"pipeline": "counted", "revision": 1, "state": "published", "rows": 7, "quarantined": {"malformed": 2}}
    assert {name: facet[name] for name in expected} == expected


def test_an_addition_comes_from_quarantine(pipeline: Pipeline, told: Told) -> None:
    kept = {"fencepost.counted.quarantine": 2}
    found = told(pipeline, "advance", DONE | {"adds_to": 1, "sources": kept}, State.PUBLISHED)
    assert names(found["inputs"]) == [("kafka://127.0.0.1:1", "fencepost.counted.quarantine")]
    assert found["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 2
    assert found["facets"]["fencepost_batch"]["adds_to"] == 1


@pytest.mark.parametrize(("step", "state"), [("write", State.WRITTEN), ("advance", State.PUBLISHED)])
def test_each_topic_that_the_batch_has_read_is_an_input_with_its_own_rows(
    pipeline: Pipeline, told: Told, step: str, state: State
) -> None:
    """A batch that was planned before a source was added has not read it, whatever the pipeline reads now."""
    sources = {"orders": 9, "payments": 4, "refunds": None}
    found = told(pipeline, step, DONE | {"sources": sources}, state)
    assert names(found["inputs"]) == [("kafka://127.0.0.1:1", topic) for topic in sources]
    rows = [one["inputFacets"].get("inputStatistics", {}).get("rowCount") for one in found["inputs"]]
    assert rows == [9, 4, None], "of the third nothing was counted"


@pytest.mark.parametrize(
    ("more", "kafka", "table"),
    [
        ("", "kafka://kafka-1:9093", ("postgres://db.internal:5432", "flights.reporting.delays")),
        (
            "lineage: {kafka: kafka.example.com:9092, postgres: db.example.com:5433}",
            "kafka://kafka.example.com:9092",
            ("postgres://db.example.com:5433", "flights.reporting.delays"),
        ),
    ],
)
def test_names_are_those_of_the_specification_and_the_host_can_be_set(
    make_pipeline: MakePipeline, told: Told, more: str, kafka: str, table: tuple[str, str]
) -> None:
    found = told(make_pipeline(settings=TABLE + more), "advance", DONE, State.PUBLISHED)
    assert (names(found["inputs"]), names(found["outputs"])) == ([(kafka, "in")], [table])
    assert "hunter2" not in json.dumps(found)


def test_a_current_table_is_a_second_output_once_it_was_brought_up_to_date(
    make_pipeline: MakePipeline, told: Told
) -> None:
    current = "table: reporting.delays, current: {table: newest, key: [a], order_by: [fencepost_interval]}"
    pipeline = make_pipeline(settings=TABLE.replace("table: reporting.delays", current))
    done = DONE | {"current": {"table": "reporting.newest", "deleted": 1, "changed": 5, "same": 2}}
    found = told(pipeline, "advance", done, State.PUBLISHED)
    place = "postgres://db.internal:5432"
    assert names(found["outputs"]) == [(place, "flights.reporting.delays"), (place, "flights.reporting.newest")]
    assert found["outputs"][1]["outputFacets"]["outputStatistics"]["rowCount"] == 5
    assert names(told(pipeline, "advance", DONE, State.PUBLISHED)["outputs"]) == [(place, "flights.reporting.delays")]


LOOKED_UP = """
tables:
  airlines: {file: look/airlines.csv, key: carrier}
  customers: {topic: customers, key: [id], schema: {id: int}}
  rates: {query: "WITH c AS (SELECT * FROM dim.rates JOIN money USING (code)) SELECT * FROM c", key: none}
  now: {query: "SELECT now() AS moment", key: none}
"""


def test_side_tables_are_inputs_of_write_and_advance_and_a_query_stands_for_the_tables_in_it(
    make_pipeline: MakePipeline, told: Told
) -> None:
    pipeline = make_pipeline(settings=TABLE + LOOKED_UP)
    counted = DONE | {"tables": {"airlines": 16, "customers": 120, "rates": 3, "now": 1}}
    found, kafka, place = told(pipeline, "write", counted), "kafka://kafka-1:9093", "postgres://db.internal:5432"
    # The name of the folder is the pipeline's. No absolute path: it differs between machines and versions of a bundle.
    tables = [("file", f"{pipeline.name}/look/airlines.csv"), (kafka, "customers")]
    tables += [(place, "flights.dim.rates"), (place, "flights.money")]
    assert names(found["inputs"]) == [(kafka, "in"), *tables]
    rows = [one["inputFacets"].get("inputStatistics", {}).get("rowCount") for one in found["inputs"]]
    assert rows == [9, 16, 120, None, None], "a query's rows are not those of a table that it reads"
    found = told(pipeline, "advance", DONE, State.PUBLISHED)
    assert names(found["inputs"]) == [(kafka, "in"), *tables]
    assert not [one["inputFacets"] for one in found["inputs"][1:] if one["inputFacets"]]


@pytest.mark.parametrize("bad", ["kafka.example.com", "kafka://kafka:9092", "a b:1"])
def test_a_host_is_named_with_its_port(make_pipeline: MakePipeline, bad: str) -> None:
    with pytest.raises(SettingsError, match=r"lineage\.kafka: not host:port"):
        make_pipeline(settings=f"{PIPELINE_YAML}\nlineage: {{kafka: '{bad}'}}\n")


def test_a_write_leads_to_quarantine_where_there_is_one(
    make_pipeline: MakePipeline, pipeline: Pipeline, told: Told
) -> None:
    found = told(pipeline, "write", DONE)
    assert (names(found["inputs"]), names(found["outputs"])) == ([SOURCE], [])
    assert found["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 9
    kept = PIPELINE_YAML.replace("format: bytes}\noutput", "format: bytes, on_malformed: quarantine}\noutput")
    found = told(make_pipeline("kept", kept), "write", DONE)
    assert names(found["outputs"]) == [("kafka://127.0.0.1:1", "fencepost.kept.quarantine")]
    assert found["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2


def judged(name: str) -> Batch:
    batch = REPORTS[name].batch.model_copy(update={"pipeline": "counted"})
    return reports.judged(REPORTS[name].model_copy(update={"batch": batch}), reports_folder())


def test_a_validate_that_passes_tells_its_checks_of_the_output_as_its_input(
    pipeline: Pipeline, told: Told, result: StepResult
) -> None:
    batch = judged("passed_with_warning")
    assert batch.verdict is not None
    details = {"verdict": "passed", "validation": 1, "report": batch.verdict.report, "quarantined": {}, "rows": 842}
    result.__dict__["batch"] = str(batch.id)
    found = told(pipeline, "validate", details)
    assert (names(found["inputs"]), found["outputs"]) == ([OUTPUT], [])
    assertions = found["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(one["success"], one["severity"]) for one in assertions] == [*[(True, "error")] * 4, (False, "warn")]
    assert assertions[0]["column"] == "carrier"


@pytest.mark.parametrize("name", ["rejected", "hostile"])
def test_a_validate_that_fails_tells_them_too_and_no_record(
    pipeline: Pipeline, context_of: ContextOf, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    batch = judged(name)

    def step(*_: Any, **__: Any) -> StepResult:
        raise BatchRejected("batch: no.")

    monkeypatch.setattr("fencepost.steps.validate.validate_without_spark", step)
    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.__init__", lambda self, pipeline: None)
    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.read", lambda self: View.of((batch,)))
    task = build_dag(pipeline).get_task("validate")
    context = context_of() | {"data_interval_start": batch.interval.start, "data_interval_end": batch.interval.end}
    with pytest.raises(AirflowFailException):
        task.execute(context)
    found = extracted(task, TaskInstanceState.FAILED)
    assert (names(found["inputs"]), found["outputs"]) == ([OUTPUT], [])
    assertions = found["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    failed = [one for one in assertions if not one["success"]]
    assert failed
    assert found["facets"]["fencepost_batch"]["verdict"] == "rejected"
    told = json.dumps(found)
    for check in REPORTS[name].evaluation.checks:
        for row in check.sample:
            assert all(
                json.dumps(value) not in told for value in row.values.values() if isinstance(value, str) and value
            )


@pytest.mark.parametrize(
    ("step", "state"), [("write", State.PUBLISHED), ("validate", State.WRITTEN), ("advance", State.PUBLISHED)]
)
def test_a_step_that_found_its_work_done_has_no_datasets(
    pipeline: Pipeline, told: Told, step: str, state: State
) -> None:
    found = told(pipeline, step, DONE | {"verdict": "passed"}, state, changed=False)
    assert (found["inputs"], found["outputs"], found["facets"]) == ([], [], {})


def test_the_schema_has_each_field_of_the_facet() -> None:
    from fencepost.airflow.lineage_facets import FencepostBatchRunFacet

    fields = {field.name for field in FencepostBatchRunFacet.__attrs_attrs__}
    assert fields == set(FACET["properties"])
