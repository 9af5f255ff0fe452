"""Runs the steps that need Spark. A job is submitted only if Spark has something to do, and never outlives its task.

Whatever ends the task also ends its driver. When the task's process ends, `spark-submit.sh` ends the JVM. When the JVM
ends, so does the driver (`fencepost.steps.jobs`). The task ends when its supervisor ends. The provider alone would kill only the
JVM, and nothing if the task's process is killed. Fencing is the real guarantee, and this module makes zombies rare.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowTaskTimeout,
)
from pydantic import JsonValue

from fencepost.airflow.addresses import report_place
from fencepost.airflow.after_step import StepNotes, after_step, after_verdict
from fencepost.airflow.assets import announce, publications
from fencepost.airflow.connections import with_connections
from fencepost.airflow.lineage import nothing
from fencepost.airflow.operators import airflow_errors, interval_of, report
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, ReceiptsDisagree, TableRefusedData, VerdictUndetermined
from fencepost.model import Interval, StepResult, offsets_of
from fencepost.spark.master import check_master, master_of
from fencepost.spark.parent import tied_to_parent
from fencepost.steps.handover import handed_over
from fencepost.steps.jobs import JobOutcome
from fencepost.steps.run_interval import Step, without_spark

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

SPARK_JOBS = Path(__file__).resolve().with_name("spark_jobs")  # the folder of the script for spark-submit
LAST_LINES = 15
REPORTED = {kind.__name__ for kind in (BatchRejected, VerdictUndetermined, ReceiptsDisagree)}
DECIDED = REPORTED | {TableRefusedData.__name__}  # errors that the ledger records


class FencepostSparkOperator(SparkSubmitOperator):
    """Runs a step for the interval, on Spark if the step needs Spark.

    The job reports through a file, and every attempt has a new file. So XCom gets the step's own result. The step's own
    error fails the task, and the error's class decides whether Airflow retries. A job that ends without an outcome was
    killed, and is retried.
    """

    def __init__(self, *, step: Step, pipeline: Pipeline, **kwargs: Any) -> None:
        kwargs.setdefault("spark_binary", str(SPARK_JOBS / "spark-submit.sh"))
        kwargs.setdefault("conn_id", pipeline.airflow.spark_connection)
        super().__init__(application=str(SPARK_JOBS / "run_step.py"), name=f"{pipeline.name}.{step}", **kwargs)
        self.step = step
        self.pipeline = pipeline
        self.step_notes = StepNotes()

    def execute(self, context: Context) -> dict[str, JsonValue]:  # type: ignore[override]
        """Runs the step and returns its result."""
        return report(self.log, self.run_step(context, interval_of(context)))

    def run_step(self, context: Context, interval: Interval) -> StepResult:
        """Runs the step and returns its result. An error that has a report links to the report."""
        began, pipeline = time.monotonic(), self.pipeline
        try:
            with airflow_errors(pipeline):
                pipeline = with_connections(pipeline)
                result = self._without_spark(pipeline, context, interval)
            result = result or self._on_spark(pipeline, context, interval)
        except AirflowException as error:
            kind, run = str(error).partition(":")[0], context["dag_run"]
            if kind in DECIDED:
                after_verdict(self, pipeline, context, interval, time.monotonic() - began)
            if kind not in REPORTED:
                raise
            raise type(error)(f"{error} Report: {report_place(run.dag_id, run.run_id)}") from error
        judged = self.step == "validate" and (result.changed or self._has_just_been_judged(context))
        after_step(self, pipeline, context, interval, result, time.monotonic() - began, judged=judged)
        return result

    def get_openlineage_facets_on_complete(self, task_instance: object) -> OperatorLineage[Any, Any]:
        """Returns the lineage of the task, even of a task that failed. The provider requires the method's name."""
        return self.step_notes.lineage or nothing()

    def on_kill(self) -> None:
        """Ends the JVM, if there is one. The driver and its workers end with it."""
        if self._hook is not None:
            self._hook.on_kill()

    def _without_spark(self, pipeline: Pipeline, context: Context, interval: Interval) -> StepResult | None:
        judged = self.step == "validate" and self._has_just_been_judged(context)
        return without_spark(self.step, pipeline, interval, rejected=judged)

    def _has_just_been_judged(self, context: Context) -> bool:
        """Returns whether the job that wrote the batch in this run has also judged it. If the task validate is cleared,
        it judges the batch again.
        """
        wrote = _returned(context, self.task_id.replace("validate", "write"))
        return context["ti"].try_number == 1 and bool(wrote.get("changed"))

    def _on_spark(self, pipeline: Pipeline, context: Context, interval: Interval) -> StepResult:
        """Runs the step as a Spark job. `pipeline` has the settings of its connections. `self.pipeline` never gets
        these settings, because Airflow renders and logs operators.
        """
        master = self._check_connection()
        with (
            TemporaryDirectory(prefix="fencepost-") as folder,
            tied_to_parent(),
            _handed_over(pipeline, Path(folder) / "settings") as settings,
        ):
            file = Path(folder) / "outcome.json"
            self._prepare(interval, file, master, _returned(context, "plan"), settings)
            failure: AirflowException | None = None
            try:
                super().execute(context)
            except AirflowFailException:
                raise
            except AirflowException as error:
                failure = error
            except AirflowTaskTimeout:
                done = JobOutcome.read(file)
                if done is None or done.result is None:
                    raise
                self.on_kill()  # the job was still judging what it had written; the task validate can do that
            outcome = JobOutcome.read(file)
        if outcome is None:
            raise AirflowException(_no_outcome(self.step, failure))
        if outcome.result is None:
            kind = AirflowException if outcome.retriable else AirflowFailException
            raise kind(f"{outcome.error}: {outcome.message}")
        return outcome.result

    def _prepare(
        self, interval: Interval, outcome: Path, master: str, planned: Mapping[str, Any], settings: Sequence[str]
    ) -> None:
        from fencepost.spark.submit import check_java, local_dirs, package_zip, submit_conf

        self._hook = None  # the provider keeps the command of the last attempt, with its arguments
        with airflow_errors(self.pipeline):
            check_java()
            self.conf = submit_conf(self.pipeline, master, offsets_of(planned.get("details")))
            self.py_files = str(package_zip())
        self.env_vars = {
            "PYSPARK_PYTHON": sys.executable,
            "FENCEPOST_PARENT": str(os.getpid()),
            **local_dirs(self.conf, master),
        }
        self.application_args = [
            self.step,
            *("--folder", str(self.pipeline.folder)),
            *("--start", interval.start.isoformat()),
            *("--end", interval.end.isoformat()),
            *settings,
            *("--outcome", str(outcome)),
        ]

    def _check_connection(self) -> str:
        """Returns the Spark master in the connection. It refuses a connection that the provider or Spark would misread.

        Without the connection the provider's hook submits to YARN (`_resolve_connection` in its hooks/spark_submit.py). In
        cluster mode the task can reach neither the driver nor the file with the outcome.
        """
        name = self._conn_id
        try:
            connection = BaseHook.get_connection(name)
        except AirflowNotFoundException:  # also raised if the API does not answer for a moment, so it is retried
            raise AirflowException(
                f"there is no Airflow connection {name!r}, so the Spark master is unknown. Add it in the "
                f"UI, or set AIRFLOW_CONN_{name.upper()} for Airflow, for example to "
                '{"conn_type": "spark", "host": "local[2]"}; host may also be spark://host:7077, yarn or '
                "k8s://https://host."
            ) from None
        if connection.extra_dejson.get("deploy-mode") == "cluster":
            raise AirflowFailException(
                f"connection {name!r} has deploy-mode cluster, and only client works. In cluster mode a driver could "
                "outlive its task. Remove deploy-mode from the connection's extra."
            )
        master = master_of(connection.conn_type, connection.host, connection.port)
        with airflow_errors(self.pipeline):
            check_master(master, f"Airflow's connection {name!r}")
        return master


class AdvanceOperator(FencepostSparkOperator):
    """Publishes the batch. No other task moves offsets. This task also emits the asset event of the output.

    Spark copies a staged batch that is too large for one transaction. Everything else is done in the task's own
    process.
    """

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(step="advance", pipeline=pipeline, outlets=[publications(pipeline)], **kwargs)

    def execute(self, context: Context) -> dict[str, JsonValue]:  # type: ignore[override]
        """Publishes the batch, or finds that it is published, and emits the asset event once."""
        interval = interval_of(context)
        result = self.run_step(context, interval)
        if announce(context, self.pipeline, result):
            self.log.info("asset event for batch %s", result.batch)
        return report(self.log, result)


@contextmanager
def _handed_over(pipeline: Pipeline, pipe: Path) -> Iterator[Sequence[str]]:
    """Yields the arguments that tell the job where the settings of its connections are. There are none if it has no
    connections.
    """
    with airflow_errors(pipeline), handed_over(pipeline, pipe) as there:
        yield ("--settings", str(pipe)) if there else ()


def _returned(context: Context, task_id: str) -> Mapping[str, Any]:
    """Returns what a task of this run returned. It is empty if Airflow has no result of the task."""
    found: Any = context["ti"].xcom_pull(task_ids=task_id)
    return found if isinstance(found, Mapping) else {}


def _no_outcome(step: str, failure: AirflowException | None) -> str:
    """Returns the message for a job that left no outcome. It has the job's exit code and last lines, and never its
    command line.
    """
    if failure is None:
        return f"the {step} job ended with exit code 0 but left no outcome; see the log above"
    found = re.search(r"Error code is: (-?\d+)\.(?:\s*Last spark-submit output:)?(.*)", str(failure), re.DOTALL)
    if found is None:
        return f"the {step} job could not be run: {failure}"
    lines = "\n".join(found.group(2).strip().splitlines()[-LAST_LINES:])
    return (
        f"the {step} job ended with exit code {found.group(1)} before it could report: it was killed "
        "(timeout, out of memory, a lost node) or could not start. Nothing is half done, so a retry "
        f"is safe. Last lines:\n{lines}"
    )
