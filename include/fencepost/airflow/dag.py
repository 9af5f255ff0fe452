"""Builds a DAG for each pipeline, with the four steps as its tasks.

An import error belongs to a file. Airflow marks every DAG of the file and schedules none of them
(`_update_import_errors` in airflow/dag_processing/collection.py, `dags_needing_dagruns` in airflow/models/dag.py). So
one file has the DAGs of the good pipelines, and another file raises the errors of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from airflow.sdk import DAG, Param, TriggerRule, get_parsing_context

from fencepost.airflow.after_step import watch
from fencepost.airflow.arguments import check_arguments, merged
from fencepost.airflow.deadline import alert_of
from fencepost.airflow.decision import DECIDE, AgainOperator, DecideOperator
from fencepost.airflow.operators import PlanOperator
from fencepost.airflow.spark_operator import AdvanceOperator, FencepostSparkOperator
from fencepost.airflow.timetable import IntervalTimetable
from fencepost.config.files import pipeline_folders
from fencepost.config.loading import load_pipeline, load_pipelines
from fencepost.config.pipeline import Pipeline
from fencepost.config.public_settings import public_settings
from fencepost.errors import SettingsError
from fencepost.paths import pipelines_folder

STEPS: tuple[Literal["write", "validate"], ...] = ("write", "validate")
REPROCESS_HELP = (
    "Write and judge published intervals again: the same frozen input, a new revision of the output. The new revision "
    "replaces the old one when it is published. Off: published intervals stay as they are. Each backfill does this "
    "once: a run that is cleared later writes nothing again. In the backfill form, tick 'Override parameters on "
    "existing runs' too; otherwise existing runs do not get this parameter."
)
REPLAY_HELP = (
    "Send the quarantined records of published intervals through the present transform and checks. Records that pass are "
    "published as an addition to their interval; records that fail stay in quarantine. Source offsets do not "
    "move. Each backfill does this once. It cannot be combined with Reprocess. In the backfill form, tick "
    "'Override parameters on existing runs' too."
)
ANOTHER_CLUSTER_HELP = (
    "The pipeline now uses another Kafka cluster than its last publication did. Without this parameter, a plan on the "
    "new cluster is refused. The parameter confirms the present cluster, once for each backfill. In the backfill "
    "form, tick 'Override parameters on existing runs' too."
)
SOURCES_CHANGED_HELP = (
    "The pipeline now reads other topics than its newest batch did. Without this parameter, a plan is refused. The parameter "
    "confirms the present topics, once for each backfill. In the backfill form, tick 'Override parameters on existing runs' "
    "too."
)


@dataclass(frozen=True)
class Team:
    """A team's settings for all of its DAGs. `folder` has the pipelines. A folder of None means this machine's folder."""

    folder: Path | None = None
    dag_args: Mapping[str, Any] = field(default_factory=dict)
    default_args: Mapping[str, Any] = field(default_factory=dict)


def build_dags(
    folder: str | Path | None = None,
    dag_args: Mapping[str, Any] | None = None,
    default_args: Mapping[str, Any] | None = None,
) -> dict[str, DAG]:
    """Returns the DAGs of all pipelines that can be read, by name.

    `folder` has the pipelines. Without it, the pipelines are in the folder that `FENCEPOST_PIPELINES` names. For a DAG
    file in a bundle, give a folder beside it. Tasks pass the folder to their jobs, and the DAG carries the settings
    that Airflow's pages need, without secrets. `dag_args` go to each DAG, and `default_args` to each task. Arguments
    that decide about batches are refused. Callbacks run after Fencepost's own callbacks.

    To run a task, Airflow parses the file again. Then only the task's pipeline is loaded, with all of its settings. If
    it can no longer be read, the error is raised, and is in the task's log. The DAG processor needs no logins, so it
    does not need the variables of `kafka`, `schema_registry`, `postgres` and `spark`.

    Raises:
        ValueError: an argument would decide about batches. The message has the setting that decides instead.
    """
    team = Team(Path(folder).absolute() if folder is not None else None, dag_args or {}, default_args or {})
    check_arguments(team.dag_args, team.default_args)
    wanted = get_parsing_context().dag_id
    if wanted is None:
        return {name: _with_tasks(dag, pipeline) for name, (dag, pipeline) in _without_tasks(team)[0].items()}
    there = {entry.name: entry for entry in pipeline_folders(team.folder or pipelines_folder())}
    return {wanted: build_dag(load_pipeline(there[wanted]), team)} if wanted in there else {}


def refuse_broken_pipelines(folder: str | Path | None = None) -> None:
    """Raises one error with the reasons of all pipelines that have no DAG. It raises nothing if all have one. `folder`
    has the meaning of `build_dags`.

    Raises:
        SettingsError: has the file, the field, the value and what is allowed for every broken pipeline.
    """
    broken = _without_tasks(Team(Path(folder).absolute() if folder is not None else None))[1]
    if broken:
        listed = "\n".join(f"- {name}: {error}" for name, error in sorted(broken.items()))
        raise SettingsError(f"{len(broken)} of the pipelines cannot be read and have no DAG:\n{listed}")


def _without_tasks(team: Team) -> tuple[dict[str, tuple[DAG, Pipeline]], dict[str, Exception]]:
    """Returns all DAGs without their tasks, and the errors of the other pipelines. Building the tasks takes two thirds
    of the time.
    """
    pipelines, unreadable = load_pipelines(team.folder, at_parse=True)
    dags: dict[str, tuple[DAG, Pipeline]] = {}
    broken: dict[str, Exception] = dict(unreadable)
    for name, pipeline in pipelines.items():
        try:
            dags[name] = empty_dag(pipeline, team), pipeline
        except Exception as error:  # what Airflow refuses although the settings allow it
            broken[name] = error
    return dags, broken


def build_dag(pipeline: Pipeline, team: Team | None = None) -> DAG:
    """Returns the DAG of one pipeline: plan >> write >> validate >> advance. With `ask_operator_minutes` it also has
    the tasks of `decision.py`.
    """
    return _with_tasks(empty_dag(pipeline, team or Team()), pipeline)


def empty_dag(pipeline: Pipeline, team: Team) -> DAG:
    """Returns the DAG without tasks. Airflow checks a pipeline's settings when the DAG is built.

    Runs are scheduled runs or backfills, and the timetable refuses manual runs. As many runs are active at once as
    there are lanes. The pool limits Spark jobs, including those of backfills. `schedule.end` is exclusive, like every
    end in Fencepost. Airflow's `end_date` is inclusive.

    A run is never pinned to a version of its bundle. After a *clear*, a corrected transform has to run in the new
    version. A plan freezes what a batch depends on.
    """
    schedule, own = pipeline.schedule, pipeline.airflow
    public = public_settings(pipeline) if team.folder is not None else None
    of_tasks: dict[str, Any] = {
        **({"queue": own.queue} if own.queue is not None else {}),
        **({"owner": own.owner} if "owner" in own.model_fields_set or "owner" not in team.default_args else {}),
        "retries": schedule.retries,
        "retry_delay": timedelta(seconds=schedule.retry_delay_seconds),
        "execution_timeout": timedelta(minutes=schedule.timeout_minutes),
    }
    of_dag: dict[str, Any] = {"tags": ["fencepost", *own.tags]}
    return DAG(
        dag_id=pipeline.name,
        description=pipeline.description,
        doc_md=describe(pipeline),
        schedule=IntervalTimetable(schedule.cron, schedule.timezone, public),
        start_date=schedule.start,
        end_date=schedule.end - timedelta(microseconds=1) if schedule.end else None,
        catchup=schedule.catchup,
        allowed_run_types=["scheduled", "backfill", "manual"],  # type: ignore[list-item]  # manual: see timetable.py
        max_active_runs=pipeline.lanes,
        deadline=alert_of(pipeline, public),
        params={
            "reprocess": Param(False, type="boolean", title="Reprocess", description=REPROCESS_HELP),
            "replay": Param(False, type="boolean", title="Replay", description=REPLAY_HELP),
            "another_cluster": Param(False, type="boolean", title="Another cluster", description=ANOTHER_CLUSTER_HELP),
            "sources_changed": Param(False, type="boolean", title="Sources changed", description=SOURCES_CHANGED_HELP),
        },
        auto_register=False,  # otherwise the file that only reports broken pipelines would define these DAGs too
        disable_bundle_versioning=True,
        default_args=merged(of_tasks, team.default_args),
        **merged(of_dag, team.dag_args),
    )


def _with_tasks(dag: DAG, pipeline: Pipeline) -> DAG:
    with dag:
        plan = PlanOperator(task_id="plan", pipeline=pipeline)
        pool = pipeline.airflow.pool
        write = FencepostSparkOperator(task_id="write", step="write", pipeline=pipeline, pool=pool)
        validate = FencepostSparkOperator(task_id="validate", step="validate", pipeline=pipeline, pool=pool)
        asks = pipeline.quality.ask_operator_minutes > 0
        rule = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS if asks else TriggerRule.ALL_SUCCESS
        copies = {"pool": pool} if pipeline.output.is_copied else {}
        advance = AdvanceOperator(task_id="advance", pipeline=pipeline, trigger_rule=rule, **copies)
        if asks:
            decide = DecideOperator(task_id=DECIDE, pipeline=pipeline)
            again = [AgainOperator(task_id=f"{step}_again", step=step, pipeline=pipeline, pool=pool) for step in STEPS]
            plan >> write >> validate >> decide >> again[0] >> again[1] >> advance
            decide >> advance
        else:
            plan >> write >> validate >> advance
    watch(dag, pipeline)
    dag.validate()  # type: ignore[no-untyped-call]
    return dag


def _topics(pipeline: Pipeline) -> str:
    """Returns the source topics in Markdown, such as "topics `orders` and `payments`"."""
    *others, last = [f"`{topic}`" for topic in pipeline.source_topics]
    return f"topics {', '.join(others)} and {last}" if others else f"topic {last}"


def describe(pipeline: Pipeline) -> str:
    """Returns the DAG's documentation in Airflow."""
    folder = f"pipelines/{pipeline.folder.name}"
    asks = ""
    if pipeline.quality.ask_operator_minutes:
        asks = (
            "| `decide` | asks what to do about a rejected batch, on its tab *Required actions* | clear it: it "
            "asks again |\n"
        )
    staged = pipeline.output.is_staged
    verb = "copies" if pipeline.output.is_copied else "commits"
    copies = f", which it {verb} from `{pipeline.staging_topic}`," if staged else ""
    readers = (
        "Readers of the output see nothing of a\nbatch before it has passed, or a person has decided to publish it."
        if staged
        else f"To read judged data\nonly, read up to the offsets of group `{pipeline.validated_group}`, and keep records whose "
        "header\n`fencepost-batch` names a published batch."
    )
    return f"""\
### {pipeline.name}

{pipeline.description}

From {_topics(pipeline)} to {pipeline.output.description.replace(" ", " `", 1)}`. Settings: `{folder}/pipeline.yaml`.
Transform: `{folder}/{pipeline.transform_file.name}`. Expectations: `{folder}/expectations.yaml`.

A run processes its data interval. You can repeat a run: if its interval is published, the run succeeds and changes nothing.
Only a backfill with *reprocess* writes a published interval again. A backfill with *replay* adds the quarantined records that
pass now. Each backfill does so once: a run that is cleared later keeps its parameters, and writes nothing again.

| task | does | when it is red |
|---|---|---|
| `plan` | freezes the source offsets, after earlier runs have planned | do what the message says, then clear it |
| `write` | transforms, and writes in Kafka transactions | clear it: committed records stay as they are |
| `validate` | reports the verdict; judges what was committed if the job of `write` has not | rejected: fix \
`expectations.yaml` and clear it, or fix the transform and clear `write` |
{asks}| `advance` | publishes the batch{copies} and moves the offsets | clear it: a second run changes nothing |

Offsets of group `{pipeline.group}` move only over an unbroken run of published intervals. {readers}
"""
