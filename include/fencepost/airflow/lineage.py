"""Builds the lineage of a task's step, its inputs and outputs, for Airflow's OpenLineage provider.

The lineage is built in the task's own process, from the step's result, the ledger's verdict and the report on this
machine. The provider asks for it in a separate process, with little time, and ends that process. A step that found its
work done has read and written nothing.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost import __version__
from fencepost.airflow.question import report_of
from fencepost.config.pipeline import Pipeline
from fencepost.config.services.postgres import POSTGRES
from fencepost.config.side_tables import FileTable, QueryTable, TopicTable
from fencepost.kafka.client_settings import lineage_namespace
from fencepost.model import Batch, Interval, State, StepResult
from fencepost.postgres.lineage_name import lineage_name
from fencepost.quality.checks import CheckResult, Status
from fencepost.quality.report import Report
from fencepost.suite.declared import Severity

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import InputDatasetFacet, OutputDatasetFacet, RunFacet

PRODUCER = f"urn:fencepost:{__version__}"
SEVERITIES = {Severity.CRITICAL: "error", Severity.WARNING: "warn"}  # OpenLineage's terms


def is_on() -> bool:
    """Returns whether the provider is installed and sends events."""
    if find_spec("airflow.providers.openlineage") is None:
        return False
    from airflow.providers.openlineage import conf

    return not conf.is_disabled()


def of_step(
    pipeline: Pipeline, interval: Interval, result: StepResult, *, judged: bool, finished: bool
) -> OperatorLineage[Any, Any] | None:
    """Returns the lineage of a step that succeeded. `finished` says that the run has published the batch, if it is
    published.
    """
    details: dict[str, Any] = result.details
    facets = _batch_facet(pipeline, interval, result.batch, result.revision, str(result.state), details)
    match result.step:
        case "write" if result.changed:
            outputs = [_quarantine(pipeline, details)] if pipeline.quarantines else []
            return _lineage([*_sources(pipeline, details), *_tables(pipeline, details)], outputs, facets)
        case "validate" if judged:
            report = _report_at(str(details.get("report") or ""), result)
            return _lineage([_judged(pipeline, report.evaluation.checks if report else ())], [], facets)
        case "advance" if finished and result.state is State.PUBLISHED:
            outputs = [_output(pipeline, details["rows"]), *_current(pipeline, details)]
            return _lineage([*_sources(pipeline, details), *_tables(pipeline, details)], outputs, facets)
    return None


def of_verdict(pipeline: Pipeline, batch: Batch) -> OperatorLineage[Any, Any]:
    """Returns the lineage of a step whose verdict stops the batch. It has the judged dataset and the result."""
    report, verdict, written = report_of(batch), batch.verdict, batch.written
    details = {
        "verdict": str(verdict.outcome) if verdict else None,
        "validation": verdict.number if verdict else None,
        "rows": written.rows if written else None,
        "quarantined": written.quarantined if written else {},
        "adds_to": batch.adds_to,
    }
    facets = _batch_facet(pipeline, batch.interval, str(batch.id), batch.revision, str(batch.state), details)
    return _lineage([_judged(pipeline, report.evaluation.checks if report else ())], [], facets)


def nothing() -> OperatorLineage[Any, Any]:
    """Returns the lineage of a task without datasets."""
    return _lineage([], [], {})


def _lineage(
    inputs: list[InputDataset], outputs: list[OutputDataset], facets: dict[str, RunFacet]
) -> OperatorLineage[Any, Any]:
    from airflow.providers.openlineage.extractors import OperatorLineage

    return OperatorLineage(inputs=inputs, outputs=outputs, run_facets=facets)


def _sources(pipeline: Pipeline, details: dict[str, Any]) -> list[InputDataset]:
    """Returns the datasets that the batch was read from: its source topics, or the quarantine topic for an addition."""
    place = lineage_namespace(pipeline, pipeline.lineage.kafka)
    return [_read(place, topic, rows) for topic, rows in details["sources"].items()]


def _tables(pipeline: Pipeline, details: dict[str, Any]) -> list[InputDataset]:
    """Returns the datasets of the side tables. A query's rows are not those of the tables that it reads, so these have no
    number of rows.
    """
    rows, found = details.get("tables") or {}, []
    for name, table in pipeline.tables.items():
        match table:
            case TopicTable():
                place = lineage_namespace(pipeline, pipeline.lineage.kafka)
                found.append(_read(place, table.topic, rows.get(name)))
            case FileTable():
                # The absolute path differs between machines and between versions of a DAG bundle.
                found.append(_read("file", f"{pipeline.name}/{table.file}", rows.get(name)))
            case QueryTable():
                settings = pipeline.server_of(name).plain(POSTGRES)
                found += [_read(*lineage_name(settings, pipeline.lineage, one)) for one in _tables_in(table.query)]
    return found


def _tables_in(query: str) -> list[str]:
    """Returns the tables that a query reads, as it names them, by the provider's parser. The result is empty if the
    parser does not understand the query.
    """
    from openlineage_sql import parse

    found = parse([query], dialect="postgres")
    return sorted({one.qualified_name for one in found.in_tables}) if found else []


def _read(namespace: str, name: str, rows: int | None = None) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    found: dict[str, InputDatasetFacet] = {}
    if rows is not None:
        found["inputStatistics"] = statistics.InputStatisticsInputDatasetFacet(rowCount=rows)
    return InputDataset(namespace, name, inputFacets=found)


def _quarantine(pipeline: Pipeline, details: dict[str, Any]) -> OutputDataset:
    rows = sum((details.get("quarantined") or {}).values())
    return _written(lineage_namespace(pipeline, pipeline.lineage.kafka), pipeline.quarantine_topic, rows)


def _output(pipeline: Pipeline, rows: int) -> OutputDataset:
    return _written(*pipeline.output.lineage_name(pipeline, pipeline.lineage), rows)


def _current(pipeline: Pipeline, details: dict[str, Any]) -> list[OutputDataset]:
    """Returns the current table, if the publication has brought one up to date."""
    name, keys = pipeline.output.current_lineage_name(pipeline, pipeline.lineage), details.get("current")
    return [_written(*name, keys["changed"])] if name is not None and keys else []


def _written(namespace: str, name: str, rows: int) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    found: dict[str, OutputDatasetFacet] = {
        "outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(rowCount=rows)
    }
    return OutputDataset(namespace, name, outputFacets=found)


def _judged(pipeline: Pipeline, checks: tuple[CheckResult, ...]) -> InputDataset:
    """Returns the output as the dataset that was judged. The checks are those of the report. Without a report on this
    machine there is no facet.
    """
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality

    if not checks:
        return InputDataset(*pipeline.output.lineage_name(pipeline, pipeline.lineage))
    assertions = [
        quality.Assertion(
            assertion=check.type,
            success=check.status is Status.PASSED,
            column=_column(check),
            severity=SEVERITIES.get(check.severity),
            name=check.title,
            description=check.description or None,
            expected=json.dumps(check.kwargs, ensure_ascii=False, sort_keys=True),
            actual=_counted(check),
        )
        for check in checks
    ]
    facet = quality.DataQualityAssertionsDatasetFacet(assertions=assertions)
    return InputDataset(
        *pipeline.output.lineage_name(pipeline, pipeline.lineage), inputFacets={"dataQualityAssertions": facet}
    )


def _column(check: CheckResult) -> str | None:
    column = check.kwargs.get("column")
    return column if isinstance(column, str) else None


def _counted(check: CheckResult) -> str:
    """Returns a check's counts. It never returns the observed value, which may be a record's."""
    if check.status is Status.ERRORED:
        return "not evaluated"
    if check.unexpected_count is None:
        return str(check.status)
    return f"{check.unexpected_count:,} of {check.element_count:,} records are unexpected"


def _report_at(path: str, result: StepResult) -> Report | None:
    """Returns the report that a step has named. Returns None if the report is not on this machine, or belongs to
    another batch.
    """
    try:
        report = Report.model_validate_json(Path(path).with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = (str(report.batch.id), report.number) == (result.batch, result.details.get("validation"))
    return report if same else None


def _batch_facet(
    pipeline: Pipeline, interval: Interval, batch: str, revision: int, state: str, details: dict[str, Any]
) -> dict[str, RunFacet]:
    from fencepost.airflow.lineage_facets import FencepostBatchRunFacet

    return {
        "fencepost_batch": FencepostBatchRunFacet(
            pipeline=pipeline.name,
            batch=batch,
            interval={"start": interval.start.isoformat(), "end": interval.end.isoformat()},
            revision=revision,
            state=state,
            adds_to=details.get("adds_to"),
            verdict=details.get("verdict"),
            validation=details.get("validation") or None,
            rows=details.get("rows"),
            quarantined=dict(details.get("quarantined") or {}),
            producer=PRODUCER,
        )
    }
