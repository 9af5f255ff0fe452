"""Builds a DAG for each pipeline, with the four steps as its tasks.

An import error belongs to a file: Airflow marks every DAG of that file, and schedules none of them
(`_update_import_errors` in airflow/dag_processing/collection.py, `dags_needing_dagruns` in
airflow/models/dag.py). So one file gives the DAGs of the good pipelines, and another raises the errors of the others.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from airflow.sdk import DAG, Param, TriggerRule, get_parsing_context

from fencepost.airflow.deadline import alert_of
from fencepost.airflow.decision import DECIDE, AgainOperator, DecideOperator
from fencepost.airflow.operators import PlanOperator
from fencepost.airflow.pools import SPARK_POOL
from fencepost.airflow.spark_operator import AdvanceOperator, FencepostSparkOperator
from fencepost.airflow.timetable import IntervalTimetable
from fencepost.config.files import pipeline_folders
from fencepost.config.loading import find_pipeline, load_pipelines
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.paths import pipelines_folder

STEPS: tuple[Literal["write", "validate"], ...] = ("write", "validate")
REPROCESS_HELP = (
    "Write and judge published intervals again: the same frozen input, a new revision of the output. The new "
    "revision replaces the old one when it is published. Off: published intervals stay as they are. In the "
    "backfill form, tick 'Override parameters on existing runs' too; otherwise existing runs do not get this "
    "parameter."
)
REPLAY_HELP = (
    "Send the quarantined records of published intervals through the present transform and checks. Those that pass are "
    "published as an addition to their interval; those that fail stay in quarantine. Source offsets do not move. Not "
    "together with Reprocess. In the backfill form, tick 'Override parameters on existing runs' too."
)


def build_dags() -> dict[str, DAG]:
    """The DAGs of all pipelines that can be read, by name.

    Airflow parses the file again to run a task; then only that task's pipeline is loaded. If it cannot be read by now, the
    error is raised, and stands in the task's log.
    """
    wanted = get_parsing_context().dag_id
    if wanted is None:
        return {name: _with_tasks(dag, pipeline) for name, (dag, pipeline) in _without_tasks()[0].items()}
    if wanted not in {folder.name for folder in pipeline_folders(pipelines_folder())}:
        return {}
    return {wanted: build_dag(find_pipeline(wanted))}


def refuse_broken_pipelines() -> None:
    """Raise one error with the reasons of all pipelines that have no DAG, if there are any.

    Raises:
        SettingsError: has for every broken pipeline the file, the field, what was found and what is allowed.
    """
    broken = _without_tasks()[1]
    if broken:
        listed = "\n".join(f"- {name}: {error}" for name, error in sorted(broken.items()))
        raise SettingsError(f"{len(broken)} of the pipelines cannot be read and have no DAG:\n{listed}")


def _without_tasks() -> tuple[dict[str, tuple[DAG, Pipeline]], dict[str, Exception]]:
    """All DAGs before they get their tasks, which take two thirds of the time; and why the other pipelines have none."""
    pipelines, unreadable = load_pipelines()
    dags: dict[str, tuple[DAG, Pipeline]] = {}
    broken: dict[str, Exception] = dict(unreadable)
    for name, pipeline in pipelines.items():
        try:
            dags[name] = empty_dag(pipeline), pipeline
        except Exception as error:  # what Airflow refuses and the settings allow
            broken[name] = error
    return dags, broken


def build_dag(pipeline: Pipeline) -> DAG:
    """The DAG of one pipeline: plan >> write >> validate >> advance; with `ask_operator_minutes` as in `decision.py`."""
    return _with_tasks(empty_dag(pipeline), pipeline)


def empty_dag(pipeline: Pipeline) -> DAG:
    """The DAG without tasks: all that Airflow could refuse of a pipeline's settings.

    Runs are scheduled or backfills; the timetable refuses manual ones. As many runs are active at once as there are
    lanes. The pool bounds Spark jobs, those of backfills too. `schedule.end` is exclusive, like every end here;
    Airflow's `end_date` is not.
    """
    schedule = pipeline.schedule
    return DAG(
        dag_id=pipeline.name,
        description=pipeline.description,
        doc_md=describe(pipeline),
        schedule=IntervalTimetable(schedule.cron, timezone=schedule.timezone),
        start_date=schedule.start,
        end_date=schedule.end - timedelta(microseconds=1) if schedule.end else None,
        catchup=schedule.catchup,
        allowed_run_types=["scheduled", "backfill", "manual"],  # type: ignore[list-item]  # manual: see timetable.py
        max_active_runs=pipeline.lanes,
        deadline=alert_of(schedule),
        params={
            "reprocess": Param(False, type="boolean", title="Reprocess", description=REPROCESS_HELP),
            "replay": Param(False, type="boolean", title="Replay", description=REPLAY_HELP),
        },
        tags=["fencepost"],
        auto_register=False,  # otherwise the file that only reports broken pipelines would also have these DAGs
        default_args={
            "owner": "fencepost",
            "retries": schedule.retries,
            "retry_delay": timedelta(seconds=schedule.retry_delay_seconds),
            "execution_timeout": timedelta(minutes=schedule.timeout_minutes),
        },
    )


def _with_tasks(dag: DAG, pipeline: Pipeline) -> DAG:
    with dag:
        plan = PlanOperator(task_id="plan", pipeline=pipeline)
        write = FencepostSparkOperator(task_id="write", step="write", pipeline=pipeline, pool=SPARK_POOL)
        validate = FencepostSparkOperator(task_id="validate", step="validate", pipeline=pipeline, pool=SPARK_POOL)
        asks = pipeline.quality.ask_operator_minutes > 0
        rule = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS if asks else TriggerRule.ALL_SUCCESS
        is_copied = pipeline.output.publish == "staged" and pipeline.output.topic is not None
        copies = {"pool": SPARK_POOL} if is_copied else {}
        advance = AdvanceOperator(task_id="advance", pipeline=pipeline, trigger_rule=rule, **copies)
        if asks:
            decide = DecideOperator(task_id=DECIDE, pipeline=pipeline)
            again = [
                AgainOperator(task_id=f"{step}_again", step=step, pipeline=pipeline, pool=SPARK_POOL) for step in STEPS
            ]
            plan >> write >> validate >> decide >> again[0] >> again[1] >> advance
            decide >> advance
        else:
            plan >> write >> validate >> advance
    dag.validate()  # type: ignore[no-untyped-call]
    return dag


def describe(pipeline: Pipeline) -> str:
    """The DAG's documentation in Airflow."""
    folder = f"pipelines/{pipeline.folder.name}"
    asks = ""
    if pipeline.quality.ask_operator_minutes:
        asks = "| `decide` | asks what to do about a rejected batch, on its tab *Required actions* | clear it: it asks again |\n"
    staged, is_topic = pipeline.output.publish == "staged", pipeline.output.topic is not None
    copies = f", which it {'copies' if is_topic else 'commits'} from `{pipeline.staging_topic}`," if staged else ""
    readers = (
        "Readers of the output see nothing of a\nbatch before it has passed, or a person has decided to publish it."
        if staged
        else f"To read judged data\nonly, read up to the offsets of group `{pipeline.validated_group}`, and keep records whose "
        "header\n`fencepost-batch` names a published batch."
    )
    return f"""\
### {pipeline.name}

{pipeline.description}

From topic `{pipeline.source.topic}` to {pipeline.output.told.replace(" ", " `", 1)}`. Settings: `{folder}/pipeline.yaml`.
Transform: `{folder}/{pipeline.transform_file.name}`. Expectations: `{folder}/expectations.yaml`.

A run processes its data interval, and you can repeat it: on a published interval it is a green no-op. Only a
backfill with *reprocess* writes a published interval again. One with *replay* adds the quarantined records that pass now.

| task | does | when it is red |
|---|---|---|
| `plan` | freezes the source offsets, once earlier runs have | do what the message says, then clear it |
| `write` | transforms, and writes in Kafka transactions | clear it: what is committed stays as it is |
| `validate` | reports the verdict; judges what was committed if the job of `write` has not | rejected: fix \
`expectations.yaml` and clear it, or fix the transform and clear `write` |
{asks}| `advance` | publishes the batch{copies} and moves the offsets | clear it: a second run changes nothing |

Offsets of group `{pipeline.group}` move only over an unbroken run of published intervals. {readers}
"""
